"""Generalised forces as linear functions of the inertial parameters, force = Y(q, qd, qdd) p, from kinematics alone.

Ten parameters per link (mass, mass times com, inertia about the link's origin), then the armature and the damping of
each joint. A fixed base has no columns for the base.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel

from .engine import Articulated, Motion, Pose
from .spatial import skew, spatial_inertia

PER_LINK = 10
PRIOR_MASS, PRIOR_INERTIA = 1.0, 0.1  # of every link, where the data do not tell


def inertia_columns(v: Tensor) -> Tensor:
    """[..., 3] -> [..., 3, 6]: I v as a product with (xx, yy, zz, xy, xz, yz)."""
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([x, o, o, y, z, o, o, y, o, x, o, z, o, o, z, o, x, y], -1).unflatten(-1, (3, 6))


def wrench_columns(velocity: Tensor, acceleration: Tensor) -> Tensor:
    """Moment and force about a link's origin, in its axes, per parameter: [..., 6, 10].

    The motion is the link's spatial velocity and acceleration [..., 6] at its origin, in its axes.
    """
    (omega, linear), (alpha, rise) = velocity.split(3, -1), acceleration.split(3, -1)
    W, V = skew(omega), skew(linear)
    nothing = torch.zeros_like(omega)[..., None]
    moment_h = -skew(rise) - W @ V + V @ W
    moment_i = inertia_columns(alpha) + W @ inertia_columns(omega)
    force_m = (rise + torch.linalg.cross(omega, linear))[..., None]
    force_h = skew(alpha) + W @ W
    moment = torch.cat([nothing, moment_h, moment_i], -1)
    return torch.cat([moment, torch.cat([force_m, force_h, torch.zeros_like(moment_i)], -1)], -2)


class Moving(NamedTuple):
    """Robots in motion."""

    pose: Pose
    motion: Motion


class Regressor:
    """Of a robot with a fixed or a free base; nothing of its MJCF's inertias is used. float64."""

    def __init__(self, robot: RobotModel):
        self.robot, self.engine = robot, Articulated(robot)
        self.count = self.engine.count
        self.size = PER_LINK * self.count + 2 * robot.nj

    def moving(self, q: Tensor, qd: Tensor) -> Moving:
        """What :meth:`forces` and :meth:`mass` need of q [B, nq] and qd [B, nv]."""
        pose = self.engine.pose(q)
        return Moving(pose, self.engine.motion(pose, qd))

    def __call__(self, q: Tensor, qd: Tensor, qdd: Tensor) -> Tensor:
        """Y [B, nv, P]."""
        return self.forces(self.moving(q, qd), qd, qdd)

    def forces(self, moving: Moving, qd: Tensor, qdd: Tensor | None = None) -> Tensor:
        """Y [B, nv, P] at a motion; at zero acceleration if none is given."""
        (rotation, position, axes), (velocity, acceleration) = moving
        if qdd is not None:
            acceleration = acceleration + self.engine.above @ (axes * qdd[..., None])

        def local(spatial: Tensor) -> Tensor:
            """A motion about the base's origin, at each link's origin in its axes."""
            omega, linear = spatial.split(3, -1)
            at = linear + torch.linalg.cross(omega, position)
            return torch.cat([(rotation.mT @ part[..., None])[..., 0] for part in (omega, at)], -1)

        moment, force = wrench_columns(local(velocity), local(acceleration)).split(3, -2)
        moment, force = rotation @ moment, rotation @ force
        wrench = torch.cat([moment + skew(position) @ force, force], -2)  # [B, L, 6, 10]
        y = torch.einsum("lj,bjx,blxp->bjlp", self.engine.above, axes, wrench).flatten(2)
        own = [torch.zeros_like(qd) if qdd is None else qdd, qd]  # armature, damping
        joints = torch.cat([torch.diag_embed(x[:, self.robot.joint_qd]) for x in own], -1)
        base = joints.new_zeros(len(qd), self.engine.base, joints.shape[-1])
        return torch.cat([y, torch.cat([base, joints], 1)], -1)

    def mass(self, moving: Moving, parameters: Tensor) -> Tensor:
        """Mass matrix [B, nv, nv]."""
        (rotation, position, _), _ = moving
        m, h, inertia = self.bodies(parameters)
        h = (rotation @ h[..., None])[..., 0]
        cross = skew(position) @ skew(h)
        about = rotation @ inertia @ rotation.mT - cross - cross.mT
        about = about - m[:, None, None] * skew(position) @ skew(position)
        spatial = spatial_inertia(m.expand(h.shape[:-1]), h + m[:, None] * position, about)
        armature = parameters[PER_LINK * self.count :][: self.robot.nj]
        armature = torch.cat([armature.new_zeros(self.engine.base), armature])
        return self.engine.mass_matrix(moving.pose, spatial) + torch.diag(armature)

    def bodies(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mass [L], mass times com [L, 3] and inertia about the origin [L, 3, 3]."""
        m, h, six = parameters[: PER_LINK * self.count].view(self.count, PER_LINK).split((1, 3, 6), -1)
        return m[:, 0], h, six[:, [0, 3, 4, 3, 1, 5, 4, 5, 2]].view(-1, 3, 3)

    def prior(self) -> Tensor:
        """Plain bodies [P]."""
        each = torch.zeros(self.count, PER_LINK, dtype=torch.float64)
        each[:, 0], each[:, 4:7] = PRIOR_MASS, PRIOR_INERTIA
        return torch.cat([each.flatten(), each.new_zeros(2 * self.robot.nj)])
