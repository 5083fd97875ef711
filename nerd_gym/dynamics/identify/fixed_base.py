"""A robot's inertial parameters from data: kinematics from its MJCF, nothing of its masses.

Joint forces are linear in the parameters, force = Y(q, qd, qdd) p, with ten per link (mass, mass times com, inertia
about the joint's origin) and the armature and damping of each joint. Least squares on the mean acceleration of a
frame gives a first guess; Gauss-Newton steps through the substeps of the teacher's own integrator make it exact. What
the data cannot tell (most robots show fewer than ten combinations per link) is left at a plain prior.

For robots with a fixed base, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..backends.warp import read_links
from ..robots.model import RobotModel
from .articulated import JointLaw, limit_force, skew

PER_LINK = 10
CALM = 0.2  # rad or m that a joint may move in a frame for Gauss-Newton to count it
PRIOR_MASS, PRIOR_INERTIA = 1.0, 0.1  # of every link, where the data do not tell
Frames = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # q, qd, force, next q, next qd, [B, nj] each
RANK_TOLERANCE = 1e-4  # of singular values to the largest; float32 data tell nothing below about 1e-6


def inertia_columns(v: Tensor) -> Tensor:
    """[..., 3] -> [..., 3, 6]: I v as a product with (xx, yy, zz, xy, xz, yz)."""
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([x, o, o, y, z, o, o, y, o, x, o, z, o, o, z, o, x, y], -1).unflatten(-1, (3, 6))


def wrench_columns(spin: Tensor, velocity: Tensor, alpha: Tensor, acceleration: Tensor) -> tuple[Tensor, Tensor]:
    """Moment and force about a link's origin, in its axes, per parameter: two [B, 3, 10].

    The motion is the link's spatial velocity and acceleration at its origin, in its axes, [B, 3] each.
    """
    W, V = skew(spin), skew(velocity)
    nothing = torch.zeros_like(spin)[..., None]
    moment_h = -skew(acceleration) - W @ V + V @ W
    moment_i = inertia_columns(alpha) + W @ inertia_columns(spin)
    force_m = (acceleration + torch.linalg.cross(spin, velocity))[..., None]
    force_h = skew(alpha) + W @ W
    return torch.cat([nothing, moment_h, moment_i], -1), torch.cat([force_m, force_h, torch.zeros_like(moment_i)], -1)


class Regressor:
    """force = (bias(q, qd) + sum_k qdd_k unit_k(q)) p for a fixed-base robot, from its kinematics alone."""

    def __init__(self, robot: RobotModel):
        if robot.free_base:
            raise ValueError(f"{robot.name} has a free base; identification is for robots with a fixed one")
        links = read_links(robot)
        self.robot, self.count = robot, len(links["parent"])
        self.size = (PER_LINK + 2) * self.count
        self._parent = links["parent"].tolist()
        self._slide = links["slide"].tolist()
        self._offset, self._turn, self._axis = (torch.as_tensor(links[k]) for k in ("offset", "turn", "axis"))
        self._zero = torch.as_tensor(robot.mj_model.qpos0)
        self._gravity = torch.as_tensor(robot.mj_model.opt.gravity.copy())

    def __call__(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        """bias [B, nj, P] and unit [B, nj (of the acceleration), nj, P]."""
        b, n = q.shape
        cross = torch.linalg.cross
        turns, places, axes, motions, lines = [], [], [], [], []
        bias = torch.zeros(b, n, self.size, dtype=q.dtype)
        unit = torch.zeros(b, n, n, self.size, dtype=q.dtype)
        for l in range(n):
            p = self._parent[l]
            if p < 0:
                up, place = torch.eye(3, dtype=q.dtype).expand(b, 3, 3), torch.zeros(b, 3, dtype=q.dtype)
                w, v, aw, av = (torch.zeros(b, 3, dtype=q.dtype) for _ in range(4))
                av = av - self._gravity
                line = []
            else:
                up, place, (w, v, aw, av), line = turns[p], places[p], motions[p], lines[p]
            axis = up @ (self._turn[l] @ self._axis[l])
            place = place + up @ self._offset[l]
            angle, rate = (q[:, l] - self._zero[l])[:, None], qd[:, l : l + 1]
            turn = up @ self._turn[l]
            if self._slide[l]:
                place = place + angle * axis
                axis = torch.zeros_like(axis), axis
            else:
                K = skew(self._axis[l])
                s, c = torch.sin(angle)[..., None], 1 - torch.cos(angle)[..., None]
                turn = turn @ (torch.eye(3, dtype=q.dtype) + s * K + c * (K @ K))
                axis = axis, cross(place, axis)
            sw, sv = axis
            aw, av = aw + rate * cross(w, sw), av + rate * (cross(w, sv) + cross(v, sw))
            w, v = w + rate * sw, v + rate * sv
            line = [*line, l]
            for store, value in (
                (turns, turn),
                (places, place),
                (axes, axis),
                (motions, (w, v, aw, av)),
                (lines, line),
            ):
                store.append(value)
            columns = slice(PER_LINK * l, PER_LINK * (l + 1))

            def local(spin, linear, turn=turn, place=place):
                """A spatial vector about the world's origin, at the link's origin in its axes."""
                at = linear + cross(spin, place)
                return (turn.mT @ spin[..., None])[..., 0], (turn.mT @ at[..., None])[..., 0]

            def put(out, wrench, turn=turn, place=place, line=line, columns=columns):
                moment, force = (turn @ part for part in wrench)
                moment = moment + skew(place) @ force
                for j in line:
                    jw, jv = axes[j]
                    out[:, j, columns] = (jw[:, None] @ moment + jv[:, None] @ force)[:, 0]

            put(bias, wrench_columns(*local(w, v), *local(aw, av)))
            still = torch.zeros_like(w)
            for k in line:
                put(unit[:, k], wrench_columns(still, still, *local(*axes[k])))
        joints = torch.arange(n)
        unit[:, joints, joints, PER_LINK * n + joints] = 1.0  # armature
        bias[:, joints, (PER_LINK + 1) * n + joints] = qd  # damping
        return bias, unit


@dataclass
class Inertias:
    """Identified parameters of a robot."""

    robot: RobotModel
    parameters: Tensor  # [P]
    rank: int | None = None  # how many combinations of them the data determined
    residual: float | None = None  # rms of the velocity error one frame ahead, over the rms of the velocity change

    def links(self) -> dict[str, np.ndarray]:
        """In the form of :func:`nerd_gym.backends.warp.read_links`, with nothing of the MJCF's own inertias."""
        links = read_links(self.robot)
        n = len(links["parent"])
        p = self.parameters.numpy()
        for l in range(n):
            mass, h, i = np.split(p[PER_LINK * l : PER_LINK * (l + 1)], (1, 4))
            mass = mass[0]
            com = h / mass
            about = np.array([[i[0], i[3], i[4]], [i[3], i[1], i[5]], [i[4], i[5], i[2]]])
            links["mass"][l], links["com"][l] = mass, com
            links["inertia"][l] = about - mass * (com @ com * np.eye(3) - np.outer(com, com))
        links["armature"], links["damping"] = np.split(p[PER_LINK * n :], 2)
        return links


class Identification:
    """Fits parameters to transitions (q, qd, force) -> (next q, next qd), float64, [B, nj] each."""

    def __init__(self, robot: RobotModel, substeps: int | None = None, torque_law: JointLaw | None = None):
        self.robot, self.torque_law = robot, torque_law
        self.substeps = substeps or robot.substeps
        self.dt = robot.frame_dt / self.substeps
        self.regressor = Regressor(robot)
        self._low, self._high = torch.as_tensor(robot.joint_range).unbind(-1)

    def known_force(self, q: Tensor, qd: Tensor) -> Tensor:
        """The springs at the joint limits, which the MJCF tells, and those of a learned law."""
        limit = limit_force(q, qd, self._low, self._high, self.robot.limit_gains)
        return limit if self.torque_law is None else limit + self.torque_law(q, qd)

    def frame(self, parameters: Tensor, q: Tensor, qd: Tensor, force: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One frame: next q, next qd, and how next qd changes with the parameters [B, nj, P].

        The change counts what the parameters do to the accelerations along this motion, not what the changed motion
        does to them in turn: that is a part dt smaller, and a few more iterations make up for it.
        """
        slope = torch.zeros(*q.shape, self.regressor.size, dtype=q.dtype)
        for _ in range(self.substeps):
            bias, unit = self.regressor(q, qd)
            mass = torch.einsum("bkjp,p->bjk", unit, parameters)
            pull = force + self.known_force(q, qd)
            qdd = torch.linalg.solve(mass, pull - bias @ parameters)
            y = bias + torch.einsum("bk,bkjp->bjp", qdd, unit)
            slope = slope - self.dt * torch.linalg.solve(mass, y)
            qd = qd + self.dt * qdd
            q = q + self.dt * qd
        return q, qd, slope

    def guess(self, frames: Frames, unexplained: bool = False) -> Tensor:
        """Parameters [P] by least squares on mean accelerations, from frames that stay inside the joint limits.

        With `unexplained`, friction, springs and constant forces in the joints may explain a part: a teacher that
        has them would otherwise bend the inertias.
        """
        q, qd, force, next_q, next_qd = frames
        inside = ((q > self._low) & (q < self._high) & (next_q > self._low) & (next_q < self._high)).all(-1)
        middle, rate = ((q + next_q) / 2)[inside], ((qd + next_qd) / 2)[inside]
        bias, unit = self.regressor(middle, rate)
        y = bias + torch.einsum("bk,bkjp->bjp", (next_qd - qd)[inside] / self.robot.frame_dt, unit)
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
        prior = torch.zeros_like(parameters)
        for l in range(self.regressor.count):
            prior[PER_LINK * l] = PRIOR_MASS
            prior[PER_LINK * l + 4 : PER_LINK * l + 7] = PRIOR_INERTIA
        parameters = parameters + null @ (null.T @ (prior - parameters))
        return Inertias(self.robot, parameters, rank, float(residual))

    def calm(self, q: Tensor, qd: Tensor, force: Tensor, next_q: Tensor, next_qd: Tensor) -> Frames:
        """In float64, without the frames in which a joint moves more than CALM: the change of motion matters there."""
        calm = (self.robot.frame_dt * torch.maximum(qd.abs(), next_qd.abs()) < CALM).all(-1)
        if int(calm.sum()) * self.robot.nj < self.regressor.size:
            raise ValueError(
                f"only {int(calm.sum())} of {len(calm)} frames move less than {CALM} rad or m; give more data"
            )
        return tuple(x[calm].double() for x in (q, qd, force, next_q, next_qd))


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
