"""A fixed-base robot's motion in torch, differentiable: what the fused kernel computes, for training what is in it.

Spatial vectors are (angular, linear) about the world's origin. All links at once: `above` [l, j] says which joints
move which link, so that sums over the tree are products with it; only the poses are computed link by link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.links import Links
from nerd_gym.robots.model import RobotModel

JointLaw = Callable[[Tensor, Tensor], Tensor]  # q, qd [B, nj] -> forces [B, nj]
ContactLaw = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # depth, approach, slip -> push, drag


class Pose(NamedTuple):
    """Links of B robots."""

    rotation: Tensor  # [B, n, 3, 3]
    position: Tensor  # [B, n, 3]
    axes: Tensor  # [B, n, 6] motion axes


class Articulated:
    """Links as :func:`nerd_gym.robots.links.read_links` gives them, with the inertias they carry."""

    def __init__(self, robot: RobotModel, links: Links, dtype: torch.dtype = torch.float64):
        def tensor(x) -> Tensor:
            return torch.as_tensor(np.asarray(x)).to(dtype)

        self.robot, self.count, self.dtype = robot, len(links["parent"]), dtype
        self._parent, self._slide = links["parent"].tolist(), links["slide"].tolist()
        self._offset, self._rotation, self._axis = (tensor(links[k]) for k in ("offset", "rotation", "axis"))
        self._skew = skew(self._axis)
        self._mass, self._com, self._inertia = (tensor(links[k]) for k in ("mass", "com", "inertia"))
        self._armature, self._damping = tensor(links["armature"]), tensor(links["damping"])
        m = robot.mj_model
        self._zero, self._stiffness = tensor(m.qpos0), tensor(m.jnt_stiffness)
        self._rest = tensor(m.qpos_spring)
        self._low, self._high = tensor(robot.joint_range).unbind(-1)
        self._gravity = tensor(np.concatenate([np.zeros(3), m.opt.gravity]))
        self.above = torch.zeros(self.count, self.count, dtype=dtype)
        for l, parent in enumerate(self._parent):
            self.above[l, l] = 1.0
            if parent >= 0:
                self.above[l] += self.above[parent]
        carriers = [links["frames"][int(body)] for body in robot.candidates.body]
        self._candidate_link = torch.as_tensor([link for link, _, _ in carriers], dtype=torch.long)
        local = [
            position + rotation @ at
            for (_, rotation, position), at in zip(carriers, robot.candidates.position, strict=True)
        ]
        self._candidate = tensor(np.reshape(local, (-1, 3)))
        self._radius = tensor(robot.candidates.radius)

    def pose(self, q: Tensor) -> Pose:
        """Link by link from the root."""
        turns, places, axes = [], [], []
        eye = torch.eye(3, dtype=q.dtype)
        for l in range(self.count):
            p = self._parent[l]
            up, position = (eye.expand(len(q), 3, 3), q.new_zeros(len(q), 3)) if p < 0 else (turns[p], places[p])
            rotation = up @ self._rotation[l]
            axis = rotation @ self._axis[l]
            position = position + up @ self._offset[l]
            angle = (q[:, l] - self._zero[l])[:, None]
            if self._slide[l]:
                position = position + angle * axis
                axes.append(torch.cat([torch.zeros_like(axis), axis], -1))
            else:
                K = self._skew[l]
                rotation = rotation @ (
                    eye + torch.sin(angle)[..., None] * K + (1 - torch.cos(angle))[..., None] * (K @ K)
                )
                axes.append(torch.cat([axis, torch.linalg.cross(position, axis)], -1))
            turns.append(rotation)
            places.append(position)
        return Pose(torch.stack(turns, 1), torch.stack(places, 1), torch.stack(axes, 1))

    def mass_and_bias(self, pose: Pose, qd: Tensor) -> tuple[Tensor, Tensor]:
        """H [B, n, n] and the force [B, n] that motion and gravity need at zero acceleration."""
        rotation, position, axes = pose
        com = position + (rotation @ self._com[..., None])[..., 0]
        com = skew(com)
        inertia_o = rotation @ self._inertia @ rotation.mT - self._mass[:, None, None] * (com @ com)
        moment = self._mass[:, None, None] * com
        mass = torch.diag_embed(self._mass[:, None].expand(-1, 3)).expand_as(moment)
        inertia = torch.cat([torch.cat([inertia_o, moment], -1), torch.cat([-moment, mass], -1)], -2)  # [B, n, 6, 6]
        reach = self.above[..., None] * axes[:, None]  # [B, l, j, 6]
        need = reach @ inertia
        H = torch.einsum("bljx,blkx->bjk", need, reach) + torch.diag(self._armature)
        step = axes * qd[..., None]
        velocity = self.above @ step
        acceleration = self.above @ motion_cross(velocity, step) - self._gravity
        momentum = (inertia @ velocity[..., None])[..., 0]
        force = (inertia @ acceleration[..., None])[..., 0] + force_cross(velocity, momentum)
        return H, torch.einsum("bljx,blx->bj", reach, force)

    def joint_force(self, q: Tensor, qd: Tensor) -> Tensor:
        """What the MJCF tells of the joints, springs and limits, and the damping that the links carry."""
        limit = limit_force(q, qd, self._low, self._high, self.robot.limit_gains)
        return limit - self._damping * qd - self._stiffness * (q - self._rest)

    def contact_force(self, pose: Pose, qd: Tensor, ground: tuple[Tensor, Tensor], law: ContactLaw) -> Tensor:
        """Joint forces [B, n] of the contacts with planes (point, normal [B, 3]) under a law.

        The law gives for depth, velocity along the normal and slip, [B, C] each, the push along the normal and the
        drag per slip. It counts where the depth is positive.
        """
        point, normal = (x[:, None] for x in ground)
        link = self._candidate_link
        centre = pose.position[:, link] + (pose.rotation[:, link] @ self._candidate[..., None])[..., 0]
        depth = self._radius - ((centre - point) * normal).sum(-1)
        at = (centre - self._radius[:, None] * normal)[:, :, None].expand(-1, -1, self.count, -1)
        w, v = (part[:, None].expand_as(at) for part in pose.axes.split(3, -1))
        jacobian = (v + torch.linalg.cross(w, at)) * self.above[link][..., None]  # [B, C, n, 3]
        velocity = (jacobian * qd[:, None, :, None]).sum(2)
        along = (velocity * normal).sum(-1)
        slide = velocity - along[..., None] * normal
        slip = torch.sqrt(slide.square().sum(-1) + 1e-14)
        push, drag = law(depth.clamp(min=0.0), along, slip)
        force = torch.where((depth > 0)[..., None], push[..., None] * normal - drag[..., None] * slide, 0.0)
        return torch.einsum("bcjx,bcx->bj", jacobian, force)

    def frame(
        self,
        q: Tensor,
        qd: Tensor,
        force: Tensor,
        ground: tuple[Tensor, Tensor] | None = None,
        contact_law: ContactLaw | None = None,
        joint_law: JointLaw | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One frame in the robot's substeps, semi-implicit Euler."""
        dt = self.robot.frame_dt / self.robot.substeps
        for _ in range(self.robot.substeps):
            pose = self.pose(q)
            H, bias = self.mass_and_bias(pose, qd)
            pull = force + self.joint_force(q, qd) - bias
            if contact_law is not None:
                if ground is None:
                    raise ValueError("a contact law was given without a ground")
                pull = pull + self.contact_force(pose, qd, ground, contact_law)
            if joint_law is not None:
                pull = pull + joint_law(q, qd)
            qd = qd + dt * torch.linalg.solve(H, pull)
            q = q + dt * qd
        return q, qd


def limit_force(q: Tensor, qd: Tensor, low: Tensor, high: Tensor, gains: tuple[float, float]) -> Tensor:
    """The springs at joint limits [nj] that states [B, nj] have passed."""
    ke, kd = gains
    past = torch.where(q < low, low - q, torch.where(q > high, high - q, 0.0))
    return torch.where(past != 0, ke * past - kd * qd, 0.0)


def skew(v: Tensor) -> Tensor:
    """[..., 3] -> [..., 3, 3], skew(v) u = v x u."""
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))


def motion_cross(a: Tensor, b: Tensor) -> Tensor:
    """Spatial cross product of motions [..., 6]."""
    (aw, av), (bw, bv) = a.split(3, -1), b.split(3, -1)
    cross = torch.linalg.cross
    return torch.cat([cross(aw, bw), cross(aw, bv) + cross(av, bw)], -1)


def force_cross(a: Tensor, f: Tensor) -> Tensor:
    """Spatial cross product of a motion with a force (moment, force) [..., 6]."""
    (aw, av), (moment, force) = a.split(3, -1), f.split(3, -1)
    cross = torch.linalg.cross
    return torch.cat([cross(aw, moment) + cross(av, force), cross(aw, force)], -1)
