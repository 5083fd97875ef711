"""Joint forces as linear functions of the inertial parameters, force = Y(q, qd, qdd) p, from kinematics alone.

Ten parameters per link (mass, mass times com, inertia about the joint's origin), then the armature and the damping of
each joint. One regressor for robots with a fixed base and one for those with a free base, in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_to_matrix

from .engine import skew

PER_LINK = 10
PRIOR_MASS, PRIOR_INERTIA = 1.0, 0.1  # of every link, where the data do not tell


def inertia_columns(v: Tensor) -> Tensor:
    """[..., 3] -> [..., 3, 6]: I v as a product with (xx, yy, zz, xy, xz, yz)."""
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([x, o, o, y, z, o, o, y, o, x, o, z, o, o, z, o, x, y], -1).unflatten(-1, (3, 6))


def wrench_columns(omega: Tensor, velocity: Tensor, alpha: Tensor, acceleration: Tensor) -> tuple[Tensor, Tensor]:
    """Moment and force about a link's origin, in its axes, per parameter: two [B, 3, 10].

    The motion is the link's spatial velocity and acceleration at its origin, in its axes, [B, 3] each.
    """
    W, V = skew(omega), skew(velocity)
    nothing = torch.zeros_like(omega)[..., None]
    moment_h = -skew(acceleration) - W @ V + V @ W
    moment_i = inertia_columns(alpha) + W @ inertia_columns(omega)
    force_m = (acceleration + torch.linalg.cross(omega, velocity))[..., None]
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
        self._offset, self._rotation, self._axis = (torch.as_tensor(links[k]) for k in ("offset", "rotation", "axis"))
        self._zero = torch.as_tensor(robot.mj_model.qpos0)
        self._gravity = torch.as_tensor(robot.mj_model.opt.gravity.copy())

    def __call__(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        """bias [B, nj, P] and unit [B, nj (of the acceleration), nj, P]."""
        b, n = q.shape
        cross = torch.linalg.cross
        rotations, positions, axes, motions, lines = [], [], [], [], []
        bias = torch.zeros(b, n, self.size, dtype=q.dtype)
        unit = torch.zeros(b, n, n, self.size, dtype=q.dtype)
        for l in range(n):
            p = self._parent[l]
            if p < 0:
                up, position = torch.eye(3, dtype=q.dtype).expand(b, 3, 3), torch.zeros(b, 3, dtype=q.dtype)
                w, v, aw, av = (torch.zeros(b, 3, dtype=q.dtype) for _ in range(4))
                av = av - self._gravity
                line = []
            else:
                up, position, (w, v, aw, av), line = rotations[p], positions[p], motions[p], lines[p]
            axis = up @ (self._rotation[l] @ self._axis[l])
            position = position + up @ self._offset[l]
            angle, rate = (q[:, l] - self._zero[l])[:, None], qd[:, l : l + 1]
            rotation = up @ self._rotation[l]
            if self._slide[l]:
                position = position + angle * axis
                axis = torch.zeros_like(axis), axis
            else:
                K = skew(self._axis[l])
                s, c = torch.sin(angle)[..., None], 1 - torch.cos(angle)[..., None]
                rotation = rotation @ (torch.eye(3, dtype=q.dtype) + s * K + c * (K @ K))
                axis = axis, cross(position, axis)
            sw, sv = axis
            aw, av = aw + rate * cross(w, sw), av + rate * (cross(w, sv) + cross(v, sw))
            w, v = w + rate * sw, v + rate * sv
            line = [*line, l]
            for store, value in (
                (rotations, rotation),
                (positions, position),
                (axes, axis),
                (motions, (w, v, aw, av)),
                (lines, line),
            ):
                store.append(value)
            columns = slice(PER_LINK * l, PER_LINK * (l + 1))

            def local(omega, linear, rotation=rotation, position=position):
                """A spatial vector about the world's origin, at the link's origin in its axes."""
                at = linear + cross(omega, position)
                return (rotation.mT @ omega[..., None])[..., 0], (rotation.mT @ at[..., None])[..., 0]

            def put(out, wrench, rotation=rotation, position=position, line=line, columns=columns):
                moment, force = (rotation @ part for part in wrench)
                moment = moment + skew(position) @ force
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


class LinkMotion(NamedTuple):
    """Links of B robots, each in its own axes at its own origin."""

    omega: Tensor  # [B, L, 3]
    alpha: Tensor  # [B, L, 3] angular acceleration
    acceleration: Tensor  # [B, L, 3] of the origin, against free fall
    turning: Tensor  # [B, L, 3, nv]: omega = turning qd
    moving: Tensor  # [B, L, 3, nv]: velocity = moving qd


class FreeRegressor:
    """force = Y(q, qd, qdd) p for a free base, from kinematics alone; float64."""

    def __init__(self, robot: RobotModel):
        if not robot.free_base:
            raise ValueError(f"{robot.name} has a fixed base; see Regressor for it")
        links = read_links(robot)
        self.robot, self.count = robot, len(links["parent"])
        self.size = PER_LINK * self.count + 2 * robot.nj
        self._parent, self._slide = links["parent"].tolist(), links["slide"].tolist()
        self._offset, self._rotation, self._axis = (torch.as_tensor(links[k]) for k in ("offset", "rotation", "axis"))
        self._zero = torch.as_tensor(robot.mj_model.qpos0[robot.joint_q])
        self._gravity = torch.as_tensor(robot.mj_model.opt.gravity.copy())

    def motion(self, q: Tensor, qd: Tensor, qdd: Tensor) -> LinkMotion:
        """Root to leaves, in world axes about the base's origin; then into each link's own."""
        b, cross, eye = len(q), torch.linalg.cross, torch.eye(3, dtype=q.dtype)
        root = quat_to_matrix(q[:, 3:7])
        turning, moving = (q.new_zeros(b, self.count, 3, self.robot.nv) for _ in range(2))
        turning[:, :, :, 3:6], moving[:, :, :, :3] = root[:, None], eye
        rotations = [root]
        omegas, alphas = ([(root @ x[:, 3:6, None])[..., 0]] for x in (qd, qdd))
        falls = [qdd[:, :3] - self._gravity]
        for l in range(1, self.count):
            p, dof = self._parent[l], l + 5
            up, w = rotations[p], omegas[p]
            rotation = up @ self._rotation[l]
            axis = rotation @ self._axis[l]
            offset = up @ self._offset[l]
            angle, rate, push = (q[:, l + 6] - self._zero[l - 1])[:, None], qd[:, dof, None], qdd[:, dof, None]
            turning[:, l, :, 6:], moving[:, l, :, 6:] = turning[:, p, :, 6:], moving[:, p, :, 6:]
            if self._slide[l]:
                offset = offset + angle * axis
                extra, omega, alpha = push * axis + 2 * rate * cross(w, axis), w, alphas[p]
                moving[:, l, :, dof] = axis
            else:
                K = skew(self._axis[l])
                rotation = rotation @ (
                    eye + torch.sin(angle)[..., None] * K + (1 - torch.cos(angle))[..., None] * (K @ K)
                )
                extra, omega, alpha = 0.0, w + rate * axis, alphas[p] + push * axis + rate * cross(w, axis)
                turning[:, l, :, dof] = axis
            moving[:, l, :, 6:] += skew(-offset) @ turning[:, p, :, 6:]
            moving[:, l, :, 3:6] = moving[:, p, :, 3:6] + skew(-offset) @ root
            falls.append(falls[p] + cross(alphas[p], offset) + cross(w, cross(w, offset)) + extra)
            for store, value in ((rotations, rotation), (omegas, omega), (alphas, alpha)):
                store.append(value)
        back = torch.stack(rotations, 1).mT
        omega, alpha, fall = ((back @ torch.stack(x, 1)[..., None])[..., 0] for x in (omegas, alphas, falls))
        return LinkMotion(omega, alpha, fall, back @ turning, back @ moving)

    def forces(self, motion: LinkMotion, qd: Tensor, qdd: Tensor) -> Tensor:
        """Y [B, nv, P] at a motion."""
        still = torch.zeros_like(motion.omega)  # the acceleration is that of a point, not a spatial one
        moment, force = wrench_columns(motion.omega, still, motion.alpha, motion.acceleration)
        y = motion.turning.mT @ moment + motion.moving.mT @ force  # [B, L, nv, 10]
        joint = slice(6, self.robot.nv)
        own = qdd.new_zeros(*qdd.shape, 2 * self.robot.nj)
        own[:, joint] = torch.cat([torch.diag_embed(x[:, joint]) for x in (qdd, qd)], -1)
        return torch.cat([y.transpose(1, 2).flatten(2), own], -1)

    def __call__(self, q: Tensor, qd: Tensor, qdd: Tensor) -> Tensor:
        """Y [B, nv, P]."""
        return self.forces(self.motion(q, qd, qdd), qd, qdd)

    def mass(self, motion: LinkMotion, parameters: Tensor) -> Tensor:
        """Mass matrix [B, nv, nv]."""
        m, h, inertia = self.bodies(parameters)
        turning, moving = motion.turning, motion.moving
        cross = turning.mT @ (skew(h) @ moving)
        H = (turning.mT @ (inertia @ turning) + cross + cross.mT + m[:, None, None] * (moving.mT @ moving)).sum(1)
        joint = torch.arange(6, self.robot.nv)
        H[:, joint, joint] += parameters[PER_LINK * self.count :][: self.robot.nj]
        return H

    def bodies(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mass [L], mass times com [L, 3] and inertia about the origin [L, 3, 3]."""
        m, h, six = parameters[: PER_LINK * self.count].view(self.count, PER_LINK).split((1, 3, 6), -1)
        return m[:, 0], h, six[:, [0, 3, 4, 3, 1, 5, 4, 5, 2]].view(-1, 3, 3)

    def prior(self) -> Tensor:
        """Plain bodies [P]."""
        each = torch.zeros(self.count, PER_LINK, dtype=torch.float64)
        each[:, 0], each[:, 4:7] = PRIOR_MASS, PRIOR_INERTIA
        return torch.cat([each.flatten(), each.new_zeros(2 * self.robot.nj)])
