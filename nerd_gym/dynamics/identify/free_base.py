"""Inertial parameters of a robot with a free base, from data alone.

As in :mod:`.identify`, generalised forces are linear in the parameters, force = Y(q, qd, qdd) p: ten per link and the
armature and damping of each joint. In flight nothing pushes the base, and the joints' known forces set the scale.
Least squares at the middle of a frame gives a first guess, Gauss-Newton through the teacher's substeps the rest. With
the base's linear velocity in world axes and its angular velocity in body axes the teacher's substep is

    qd += dt qdd(q, qd);  p += dt v;  quat = quat exp(dt w);  joints += dt rates.

What the data cannot tell is left at a plain prior, as far as that leaves every link a body that can exist. If no bodies
explain the frames, the teacher may hold inertias of other links in its mass matrix (pairing.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from nerd_gym.data.reader import Transitions
from nerd_gym.dynamics.models.inertias import Inertias
from nerd_gym.physics.torch.engine import limit_force
from nerd_gym.physics.torch.regressor import PER_LINK, PRIOR_INERTIA, PRIOR_MASS, Regressor
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_conjugate, quat_exp, quat_log, quat_multiply

from .fixed_base import CALM, solve_rank
from .pairing import PairedRegressor, swaps

MOST_FRAMES = 1000  # that Gauss-Newton goes through
EXACT = 1e-4  # of a frame's change of velocity: no need to explain more
MISPAIRED = 0.1  # of a frame's change of velocity: right bodies explain more
WORTH = 0.5  # of what right bodies leave unexplained, which others must leave at most
FEW = 300  # frames that choose among pairings
LEAST = 1e-3  # of the prior: the smallest eigenvalue of a link's pseudo-inertia


class FreeIdentification:
    """Fits parameters to frames without contact."""

    def __init__(self, robot: RobotModel, inertia_of: Tensor | None = None):
        self.robot, self.inertia_of = robot, inertia_of
        self.regressor = Regressor(robot) if inertia_of is None else PairedRegressor(robot, inertia_of)
        m = robot.mj_model
        self._low, self._high = torch.as_tensor(robot.joint_range).unbind(-1)
        self._stiffness = torch.as_tensor(m.jnt_stiffness[1:].copy())
        self._rest = torch.as_tensor(m.qpos_spring[robot.joint_q].copy())

    def pull(self, q: Tensor, qd: Tensor, force: Tensor) -> Tensor:
        """Known generalised forces [B, nv]: none on the base; on joints the given ones, springs and limits."""
        q, rate = q[:, self.robot.joint_q], qd[:, self.robot.joint_qd]
        limit = limit_force(q, rate, self._low, self._high, self.robot.limit_gains)
        joints = force + limit - self._stiffness * (q - self._rest)
        return torch.cat([torch.zeros_like(qd[:, :6]), joints], -1)

    def guess(self, frames: Transitions) -> tuple[Tensor, Tensor]:
        """Parameters [P] by least squares on mean accelerations, and what the data do not tell of them [P, K].

        Rows are weighted by what they leave unexplained.
        The teacher looks at the motion where its substeps start: on average half a substep before a frame's middle.
        """
        q, qd, next_q, change = frames["q"], frames["qd"], frames["next_q"], frames["next_qd"] - frames["qd"]
        half = 0.5 * (1 - 1 / self.robot.substeps)
        turned = quat_log(quat_multiply(quat_conjugate(q[:, 3:7]), next_q[:, 3:7]))
        middle, rate = q + half * (next_q - q), qd + half * change
        middle[:, 3:7] = quat_multiply(q[:, 3:7], quat_exp(half * turned))
        y = self.regressor(middle, rate, change / self.robot.frame_dt)
        pull = self.pull(middle, rate, frames["force"])
        size = torch.ones(self.robot.nv, dtype=q.dtype)
        for _ in range(2):
            rows, given = y / size[:, None], pull / size
            parameters, _, null = solve_rank(rows.flatten(0, 1), given.flatten())
            size = (y @ parameters - pull).square().mean(0).sqrt()
            size = size.clamp(min=1e-6 * float(pull.abs().max()))
        return parameters, null

    def frame(self, parameters: Tensor, q: Tensor, qd: Tensor, force: Tensor) -> tuple[Tensor, Tensor]:
        """One frame through the substeps: next qd [B, nv], and how it changes with the parameters [B, nv, P].

        As in Identification.frame, the change counts what the parameters do along this motion.
        """
        dt = self.robot.frame_dt / self.robot.substeps
        slope = torch.zeros((), dtype=qd.dtype)
        for _ in range(self.robot.substeps):
            moving = self.regressor.moving(q, qd)
            factor = torch.linalg.cholesky_ex(self.regressor.mass(moving, parameters))[0]
            need = self.pull(q, qd, force) - self.regressor.forces(moving, qd) @ parameters
            qdd = torch.cholesky_solve(need[..., None], factor)[..., 0]
            slope = slope - dt * torch.cholesky_solve(self.regressor.forces(moving, qd, qdd), factor)
            qd = qd + dt * qdd
            q = self.regressor.engine.moved(q, dt * qd)
        return qd, slope

    def fit(self, frames: Transitions, iterations: int = 6) -> Inertias:
        """A first guess, then Gauss-Newton through the substeps until it stops gaining."""
        frames = self.calm(frames)
        q, qd, force, target = (frames[k] for k in ("q", "qd", "force", "next_qd"))
        size = (target - qd).square().mean(0).sqrt()
        best, parameters = (torch.inf, None, 0, None), self.possible(*self.guess(frames))
        for _ in range(iterations):
            reached, slope = self.frame(parameters, q, qd, force)
            off = (target - reached) / size
            residual = float(off.square().mean().sqrt())
            if not residual < best[0]:
                break
            step, rank, null = solve_rank((slope / size[:, None]).flatten(0, 1), off.flatten())
            gained, best = residual < 0.9 * best[0], (residual, parameters, rank, null)
            if residual < EXACT or not gained:
                break
            parameters = parameters + step
        residual, parameters, rank, null = best
        if parameters is None or null is None:
            raise ValueError(f"no inertias of {self.robot.name} explain the frames given; are they free of contact?")
        return Inertias(self.robot, self.possible(parameters, null), rank, residual, self.inertia_of)

    def unexplained(self, frames: Transitions) -> float:
        """Of the accelerations of some frames, by the first guess: rms over the rms."""
        some = {name: value[:: len(value) // FEW + 1] for name, value in self.calm(frames).items()}
        parameters, _ = self.guess(some)
        still = self.regressor(some["q"], some["qd"], torch.zeros_like(some["qd"])) @ parameters
        mass = self.regressor.mass(self.regressor.moving(some["q"], some["qd"]), parameters)
        rise, _ = torch.linalg.solve_ex(mass, self.pull(some["q"], some["qd"], some["force"]) - still)
        true = (some["next_qd"] - some["qd"]) / self.robot.frame_dt
        off = float(((rise - true).square().mean(0) / true.square().mean(0)).mean().sqrt())
        return off if off < torch.inf else torch.inf

    def calm(self, frames: Transitions) -> Transitions:
        """At most MOST_FRAMES from all over those in which nothing moves more than CALM, in float64."""
        fast = torch.maximum(frames["qd"].abs(), frames["next_qd"].abs())[:, 3:].amax(-1)
        calm = (self.robot.frame_dt * fast < CALM).nonzero()[:, 0]
        if len(calm) * self.robot.nv < 2 * self.regressor.size:
            raise ValueError(f"only {len(calm)} of {len(fast)} frames turn less than {CALM} rad; give more data")
        some = calm[torch.linspace(0, len(calm) - 1, min(len(calm), MOST_FRAMES)).long()]
        return {name: value[some].double() for name, value in frames.items()}

    def possible(self, parameters: Tensor, null: Tensor, rounds: int = 1000) -> Tensor:
        """The prior in the combinations `null` [P, K] that the data do not tell, changed until every body can exist.

        Projects in turn on bodies that can exist and on what the data tell. If that does not arrive the data come
        first, unless a mass or the mass matrix were not positive: then bodies that can exist, nearly as the data tell.
        """
        parameters = parameters + null @ (null.T @ (self.regressor.prior() - parameters))
        every = torch.stack([torch.cat([self.moments(x).flatten(), self.own(x)]) for x in torch.eye(len(null))], -1)
        back = null @ torch.linalg.pinv(every.double() @ null) @ every.double()  # nearest in second moments
        for _ in range(rounds):
            change = self.existing(parameters, 5 * LEAST) - parameters  # aims inside, to arrive
            if float(change.abs().max()) < 1e-7:
                break
            parameters = parameters + back @ change
        return parameters if self.positive(parameters) else self.existing(parameters)

    def positive(self, parameters: Tensor, n: int = 256) -> bool:
        """Whether masses and the mass matrix are, over random configurations."""
        generator = torch.Generator().manual_seed(0)
        q = torch.pi * (2 * torch.rand(n, self.robot.nq, generator=generator, dtype=torch.float64) - 1)
        q[:, 3:7] = quat_exp(q[:, 3:6])
        still = torch.zeros(n, self.robot.nv, dtype=q.dtype)
        H = self.regressor.mass(self.regressor.moving(q, still), parameters)
        bad = torch.linalg.cholesky_ex(H)[1].any()
        return not bool(bad) and bool((self.regressor.bodies(parameters)[0] > LEAST * PRIOR_MASS).all())

    def existing(self, parameters: Tensor, least: float = LEAST) -> Tensor:
        """The nearest bodies that can exist: the second moments of their mass are positive. No armature is below 0."""
        values, vectors = torch.linalg.eigh(self.moments(parameters))
        moments = vectors @ torch.diag_embed(values.clamp(min=least * PRIOR_INERTIA)) @ vectors.mT
        second = moments[:, :3, :3]
        trace = second.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
        inertia = trace * torch.eye(3, dtype=second.dtype) - second
        six = inertia[:, [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
        links = torch.cat([moments[:, 3, 3:], moments[:, :3, 3], six], -1).flatten()
        armature, damping = self.own(parameters).split(self.robot.nj)
        return torch.cat([links, armature.clamp(min=0.0), damping])

    def moments(self, parameters: Tensor) -> Tensor:
        """Second moments of every link's mass with (place, 1): [L, 4, 4]."""
        m, h, inertia = self.regressor.bodies(parameters)
        trace = inertia.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
        second = trace / 2 * torch.eye(3, dtype=m.dtype) - inertia
        return torch.cat([torch.cat([second, h[:, :, None]], -1), torch.cat([h, m[:, None]], -1)[:, None]], -2)

    def own(self, parameters: Tensor) -> Tensor:
        """Armature and damping [2 nj]."""
        return parameters[PER_LINK * self.regressor.count :]


def identify_free(robot: RobotModel, frames: Transitions) -> Inertias:
    """Inertial parameters from frames without contact, of which those inside the joint limits are the best."""
    with torch.no_grad():
        right = FreeIdentification(robot).fit(frames)
        if right.residual is None or right.residual < MISPAIRED:
            return right
        others = [FreeIdentification(robot, order) for order in swaps(robot)]
        best = min(others, key=lambda other: other.unexplained(frames), default=None)
        if best is None or best.unexplained(frames) == torch.inf:
            return right
        paired = best.fit(frames)
        return paired if paired.residual is not None and paired.residual < WORTH * right.residual else right
