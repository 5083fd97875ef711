"""A robot's inertial parameters from data: kinematics from its MJCF, nothing of its masses.

Joint forces are linear in the parameters, force = Y(q, qd, qdd) p, with ten per link (mass, mass times com, inertia
about the joint's origin) and the armature and damping of each joint. Least squares on the mean acceleration of a
frame gives a first guess; Gauss-Newton steps through the substeps of the teacher's own integrator make it exact. What
the data cannot tell (most robots show fewer than ten combinations per link) is left at a plain prior.

For robots with a fixed base, in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nerd_gym.dynamics.models.inertias import Inertias
from nerd_gym.physics.torch.engine import JointLaw, limit_force
from nerd_gym.physics.torch.regressor import Regressor
from nerd_gym.robots.model import RobotModel

CALM = 0.2  # rad or m that a joint may move in a frame for Gauss-Newton to count it
JointTransitions = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # q, qd, force, next q, next qd, [B, nj] each
RANK_TOLERANCE = 1e-4  # of singular values to the largest; float32 data tell nothing below about 1e-6


class Identification:
    """Fits parameters to transitions (q, qd, force) -> (next q, next qd), float64, [B, nj] each."""

    def __init__(self, robot: RobotModel, substeps: int | None = None, joint_force_net: JointLaw | None = None):
        if robot.free_base:
            raise ValueError(f"{robot.name} has a free base; identification is for robots with a fixed one")
        self.robot, self.joint_force_net = robot, joint_force_net
        self.substeps = substeps or robot.substeps
        self.dt = robot.frame_dt / self.substeps
        self.regressor = Regressor(robot)
        self._low, self._high = torch.as_tensor(robot.joint_range).unbind(-1)

    def known_force(self, q: Tensor, qd: Tensor) -> Tensor:
        """The springs at the joint limits, which the MJCF tells, and those of a learned law."""
        limit = limit_force(q, qd, self._low, self._high, self.robot.limit_gains)
        return limit if self.joint_force_net is None else limit + self.joint_force_net(q, qd)

    def frame(self, parameters: Tensor, q: Tensor, qd: Tensor, force: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One frame: next q, next qd, and how next qd changes with the parameters [B, nj, P].

        The change counts what the parameters do to the accelerations along this motion, not what the changed motion
        does to them in turn: that is a part dt smaller, and a few more iterations make up for it.
        """
        slope = torch.zeros(*q.shape, self.regressor.size, dtype=q.dtype)
        for _ in range(self.substeps):
            moving = self.regressor.moving(q, qd)
            mass = self.regressor.mass(moving, parameters)
            pull = force + self.known_force(q, qd)
            qdd = torch.linalg.solve(mass, pull - self.regressor.forces(moving, qd) @ parameters)
            slope = slope - self.dt * torch.linalg.solve(mass, self.regressor.forces(moving, qd, qdd))
            qd = qd + self.dt * qdd
            q = q + self.dt * qd
        return q, qd, slope

    def guess(self, frames: JointTransitions, unexplained: bool = False) -> Tensor:
        """Parameters [P] by least squares on mean accelerations, from frames that stay inside the joint limits.

        With `unexplained`, friction, springs and constant forces in the joints may explain a part: a teacher that
        has them would otherwise bend the inertias.
        """
        q, qd, force, next_q, next_qd = frames
        inside = ((q > self._low) & (q < self._high) & (next_q > self._low) & (next_q < self._high)).all(-1)
        middle, rate = ((q + next_q) / 2)[inside], ((qd + next_qd) / 2)[inside]
        y = self.regressor(middle, rate, (next_qd - qd)[inside] / self.robot.frame_dt)
        if unexplained:
            y = torch.cat([y, joint_effects(middle, rate)], -1)
        known = self.known_force(middle, rate)
        return solve_rank(y.flatten(0, 1), (force[inside] + known).flatten())[0][: self.regressor.size]

    def fit(
        self, q: Tensor, qd: Tensor, force: Tensor, next_q: Tensor, next_qd: Tensor, iterations: int = 12
    ) -> Inertias:
        """A first guess, then Gauss-Newton through the substeps until it stops gaining."""
        frames = self.calm(q, qd, force, next_q, next_qd)
        q, qd, force, next_q, next_qd = frames
        parameters = self.guess(frames)
        change = (next_qd - qd).square().mean().sqrt()
        residual = torch.tensor(torch.inf, dtype=q.dtype)
        for _ in range(iterations):
            _, reached, slope = self.frame(parameters, q, qd, force)
            last, residual = residual, (next_qd - reached).square().mean().sqrt() / change
            step, rank, null = solve_rank(slope.flatten(0, 1), (next_qd - reached).flatten())
            if residual > 0.9 * last:
                break
            parameters = parameters + step
        # What the data do not tell: the prior's part of the null space.
        parameters = parameters + null @ (null.T @ (self.regressor.prior() - parameters))
        return Inertias(self.robot, parameters, rank, float(residual))

    def calm(self, q: Tensor, qd: Tensor, force: Tensor, next_q: Tensor, next_qd: Tensor) -> JointTransitions:
        """In float64, without the frames in which a joint moves more than CALM: the change of motion matters there."""
        calm = (self.robot.frame_dt * torch.maximum(qd.abs(), next_qd.abs()) < CALM).all(-1)
        if int(calm.sum()) * self.robot.nj < self.regressor.size:
            raise ValueError(
                f"only {int(calm.sum())} of {len(calm)} frames move less than {CALM} rad or m; give more data"
            )
        q, qd, force, next_q, next_qd = (x[calm].double() for x in (q, qd, force, next_q, next_qd))
        return q, qd, force, next_q, next_qd


def joint_effects(q: Tensor, qd: Tensor) -> Tensor:
    """Friction at three scales of rate, a constant, springs: [B, nj, 7 nj], every joint by itself."""
    scale = qd.square().mean(0).sqrt() + 1e-9
    columns = [torch.tanh(qd / (k * scale)) for k in (0.03, 0.1, 0.5)]
    columns += [torch.ones_like(q), torch.sin(q), torch.cos(q), q.clamp(-torch.pi, torch.pi)]
    return torch.cat([torch.diag_embed(column) for column in columns], -1)


def solve_rank(a: Tensor, b: Tensor) -> tuple[Tensor, int, Tensor]:
    """Least squares over what `a` determines: the solution of least norm, the rank, and a basis of the null space."""
    scale = a.norm(dim=0).clamp(min=1e-12 * a.norm())
    gram = (a / scale).T @ (a / scale)
    values, vectors = torch.linalg.eigh(gram)
    seen = values > RANK_TOLERANCE**2 * values[-1]
    # The Gram matrix squares the condition, so take the solution itself from an orthogonal factorisation.
    basis = vectors[:, seen]
    solution = torch.linalg.lstsq((a / scale) @ basis, b[:, None], driver="gelsd").solution[:, 0]
    null, _ = torch.linalg.qr(vectors[:, ~seen] / scale[:, None]) if (~seen).any() else (vectors[:, :0], None)
    return (basis @ solution) / scale, int(seen.sum()), null
