"""The equations of motion in torch: batched, differentiable, for a fixed or a free base, in float32 or float64.

Spatial vectors are in world axes about the base's origin (a fixed base: the world's). A free base is link 0 with six
degrees of freedom, whose motion axes are those of its qd: linear velocity in world axes, angular velocity in body axes.
All links at once: `above` [l, j] says which degree of freedom moves which link, so that sums over the tree are products
with it; only poses, and the articulated-body recursion, go link by link. Nothing is written in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.links import Links, read_links
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_exp, quat_multiply, quat_to_matrix

from .contact import ContactLaw, penalty
from .spatial import force_cross, motion_cross, skew, spatial_inertia

JointLaw = Callable[[Tensor, Tensor], Tensor]  # q, qd [B, nj] -> forces [B, nj]
Ground = tuple[Tensor, Tensor]  # point and normal [B, 3]
AT_REST = 1e-14  # (m/s)^2, so that the slip has a slope where there is none


class ContactPoints(NamedTuple):
    """C points of B robots over planes."""

    depth: Tensor  # [B, C], negative over the ground
    along: Tensor  # [B, C], velocity along the normal
    slide: Tensor  # [B, C, 3], velocity across it
    normal: Tensor  # [B, 1 or C, 3]
    jacobian: Tensor  # [B, C, nv, 3]

    def force(self, law: ContactLaw) -> Tensor:
        """[B, C, 3] under a law; none where the depth is not positive."""
        slip = torch.sqrt(self.slide.square().sum(-1) + AT_REST)
        push, drag = law(self.depth.clamp(min=0.0), self.along, slip)
        force = push[..., None] * self.normal - drag[..., None] * self.slide
        return torch.where((self.depth > 0)[..., None], force, 0.0)


@dataclass(frozen=True)
class Parameters:
    """Everything that decides how a robot of L links, nj joints moves. A gradient by any of it can be asked for."""

    mass: Tensor  # [L]
    com: Tensor  # [L, 3] in the link's frame
    inertia: Tensor  # [L, 3, 3] about the com
    offset: Tensor  # [L, 3] of the joint in the parent's frame
    rotation: Tensor  # [L, 3, 3] of the joint there
    axis: Tensor  # [L, 3]
    armature: Tensor  # [nj]
    damping: Tensor  # [nj]
    stiffness: Tensor  # [nj]
    rest: Tensor  # [nj], where the springs rest
    lower: Tensor  # [nj]
    upper: Tensor  # [nj]
    limit_gains: Tensor  # [2] ke, kd
    contact_gains: Tensor  # [4] ke, kd, kf, mu
    gravity: Tensor  # [3]

    def but(self, **values: Any) -> Parameters:
        """A copy with other values."""
        return replace(self, **values)


class Pose(NamedTuple):
    """Links of B robots; positions are from the base's origin."""

    rotation: Tensor  # [B, L, 3, 3]
    position: Tensor  # [B, L, 3]
    axes: Tensor  # [B, nv, 6] motion axes


class Motion(NamedTuple):
    """How the links move, [B, L, 6] each."""

    velocity: Tensor
    acceleration: Tensor  # at zero qdd, against free fall


def read_parameters(
    robot: RobotModel, links: Links | None = None, dtype: torch.dtype = torch.float64, device: Any = "cpu"
) -> Parameters:
    """Of the MJCF, or of links with other inertias, armature and damping."""
    links = read_links(robot) if links is None else links
    m, joints = robot.mj_model, robot.joint_qd

    def tensor(x: Any) -> Tensor:
        return torch.as_tensor(np.array(x), device=device).to(dtype)

    return Parameters(
        **{name: tensor(links[name]) for name in ("mass", "com", "inertia", "offset", "rotation", "axis")},
        armature=tensor(links.get("armature", m.dof_armature[joints])),
        damping=tensor(links.get("damping", m.dof_damping[joints])),
        stiffness=tensor(m.jnt_stiffness[int(robot.free_base) :]),
        rest=tensor(m.qpos_spring[robot.joint_q]),
        lower=tensor(robot.joint_range[:, 0]),
        upper=tensor(robot.joint_range[:, 1]),
        limit_gains=tensor(robot.limit_gains),
        contact_gains=tensor(robot.contact_gains),
        gravity=tensor(m.opt.gravity),
    )


class Articulated:
    """A robot's motion; the type and place of its parameters are those of every tensor."""

    def __init__(self, robot: RobotModel, parameters: Parameters | None = None):
        self.robot = robot
        self.parameters = read_parameters(robot) if parameters is None else parameters
        links = read_links(robot)
        like = self.parameters.mass

        def tensor(x: Any) -> Tensor:
            return torch.as_tensor(np.array(x), device=like.device).to(like.dtype)

        self.count, self.base = len(links["parent"]), 6 * robot.free_base
        self.parent, self._slide = links["parent"].tolist(), links["slide"].tolist()
        self.first = int(robot.free_base)  # link of the first joint
        self._zero = tensor(robot.mj_model.qpos0[robot.joint_q])
        above = np.zeros((self.count, robot.nv))
        for l, parent in enumerate(self.parent):
            above[l] = above[parent] if parent >= 0 else 0.0
            above[l, slice(0, 6) if l < self.first else self.dof(l)] = 1.0
        self.above = tensor(above)  # [L, nv]
        carriers = [links["frames"][int(body)] for body in robot.candidates.body]
        self._candidate_link = torch.as_tensor([link for link, _, _ in carriers], dtype=torch.long, device=like.device)
        local = [
            position + rotation @ at
            for (_, rotation, position), at in zip(carriers, robot.candidates.position, strict=True)
        ]
        self._candidate, self._radius = tensor(np.reshape(local, (-1, 3))), tensor(robot.candidates.radius)

    def dof(self, link: int) -> int:
        """Where a link's joint stands in qd."""
        return link - self.first + self.base

    def pose(self, q: Tensor) -> Pose:
        """[B, nq]; link by link from the root."""
        p, eye = self.parameters, torch.eye(3, dtype=q.dtype, device=q.device)
        world = eye.expand(len(q), 3, 3), q.new_zeros(len(q), 3)
        rotations, positions, axes = [], [], []
        if self.first:
            rotations.append(quat_to_matrix(q[:, 3:7]))
            positions.append(world[1])
            still = torch.zeros_like(world[0])
            axes.append(torch.cat([torch.cat([still, world[0]], -1), torch.cat([rotations[0].mT, still], -1)], 1))
        angles = q[:, self.robot.joint_q] - self._zero
        for l in range(self.first, self.count):
            at = self.parent[l]
            up, position = (rotations[at], positions[at]) if at >= 0 else world
            rotation = up @ p.rotation[l]
            axis = rotation @ p.axis[l]
            position = position + up @ p.offset[l]
            angle = angles[:, l - self.first, None]
            if self._slide[l]:
                position = position + angle * axis
                axes.append(torch.cat([torch.zeros_like(axis), axis], -1)[:, None])
            else:
                k = skew(p.axis[l])
                rotation = rotation @ (
                    eye + torch.sin(angle)[..., None] * k + (1 - torch.cos(angle))[..., None] * k @ k
                )
                axes.append(torch.cat([axis, torch.linalg.cross(position, axis)], -1)[:, None])
            rotations.append(rotation)
            positions.append(position)
        return Pose(torch.stack(rotations, 1), torch.stack(positions, 1), torch.cat(axes, 1))

    def motion(self, pose: Pose, qd: Tensor) -> Motion:
        """Velocities, and the accelerations that velocities and gravity give."""
        step = pose.axes * qd[..., None]
        velocity = self.above @ step
        change = motion_cross(velocity[:, self.first :], step[:, self.base :])  # of the joints' axes, times their rates
        if self.first:
            # The base's qd is of its origin, which moves: about the point where that is now, - w x v is left.
            w, v = velocity[:, 0].split(3, -1)
            turning = torch.cat([torch.zeros_like(w), -torch.linalg.cross(w, v)], -1)
            change = torch.cat([turning[:, None], torch.zeros_like(step[:, 1:6]), change], 1)
        falling = torch.cat([torch.zeros_like(self.parameters.gravity), -self.parameters.gravity], -1)
        return Motion(velocity, self.above @ change + falling)

    def inertias(self, pose: Pose) -> Tensor:
        """Spatial inertias [B, L, 6, 6] of the links about the base's origin."""
        p = self.parameters
        com = pose.position + (pose.rotation @ p.com[..., None])[..., 0]
        mass, offset = p.mass, skew(com)
        about = pose.rotation @ p.inertia @ pose.rotation.mT - mass[..., None, None] * (offset @ offset)
        return spatial_inertia(mass.expand(com.shape[:-1]), mass[..., None] * com, about)

    def mass_matrix(self, pose: Pose, inertia: Tensor) -> Tensor:
        """[B, nv, nv] of links with spatial inertias [B, L, 6, 6], without armature."""
        reach = self.above[..., None] * pose.axes[:, None]  # [B, L, nv, 6]
        return torch.einsum("bljx,blkx->bjk", reach @ inertia, reach)

    def armature(self) -> Tensor:
        """[nv, nv]."""
        own = self.parameters.armature
        return torch.diag(torch.cat([own.new_zeros(self.base), own]))

    def mass_and_bias(self, pose: Pose, qd: Tensor) -> tuple[Tensor, Tensor]:
        """H [B, nv, nv] and the force [B, nv] that motion and gravity need at zero acceleration."""
        inertia = self.inertias(pose)
        need = self._need(inertia, self.motion(pose, qd))
        bias = (pose.axes * (self.above.mT @ need)).sum(-1)
        return self.mass_matrix(pose, inertia) + self.armature(), bias

    @staticmethod
    def _need(inertia: Tensor, motion: Motion) -> Tensor:
        """Forces [B, L, 6] on the links that their motion needs."""
        momentum = (inertia @ motion.velocity[..., None])[..., 0]
        return (inertia @ motion.acceleration[..., None])[..., 0] + force_cross(motion.velocity, momentum)

    def acceleration(self, pose: Pose, qd: Tensor, force: Tensor) -> Tensor:
        """qdd [B, nv] under forces [B, nv], by the articulated-body recursion: no matrix larger than 6 x 6."""
        inertia, motion = self.inertias(pose), self.motion(pose, qd)
        inertias, needs = list(inertia.unbind(1)), list(self._need(inertia, motion).unbind(1))
        axes, armature = pose.axes, self.parameters.armature
        pushes: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        for l in range(self.count - 1, self.first - 1, -1):  # leaves to root
            j = self.dof(l)
            axis, at = axes[:, j], self.parent[l]
            reaction = (inertias[l] @ axis[..., None])[..., 0]
            scale = (axis * reaction).sum(-1) + armature[l - self.first]
            rest = force[:, j] - (axis * needs[l]).sum(-1)
            pushes[l] = reaction, scale, rest
            if at >= 0:
                share = reaction / scale[:, None]
                inertias[at] = inertias[at] + inertias[l] - reaction[..., None] * share[:, None]
                needs[at] = needs[at] + needs[l] + share * rest[:, None]
        accelerations: dict[int, Tensor] = {-1: torch.zeros_like(needs[0])}
        out = []
        if self.first:
            frame = axes[:, :6]
            left = force[:, :6] - (frame @ needs[0][..., None])[..., 0]
            base = torch.linalg.solve(frame @ inertias[0] @ frame.mT, left)
            accelerations[0] = (frame.mT @ base[..., None])[..., 0]
            out.append(base)
        for l in range(self.first, self.count):  # root to leaves
            reaction, scale, rest = pushes[l]
            up = accelerations[self.parent[l]]
            rate = (rest - (reaction * up).sum(-1)) / scale
            accelerations[l] = up + axes[:, self.dof(l)] * rate[:, None]
            out.append(rate[:, None])
        return torch.cat(out, -1)

    def joint_force(self, q: Tensor, qd: Tensor) -> Tensor:
        """Springs, dampers and limits of the joints [B, nv]; q [B, nq], qd [B, nv]."""
        p = self.parameters
        at, rate = q[:, self.robot.joint_q], qd[:, self.robot.joint_qd]
        own = limit_force(at, rate, p.lower, p.upper, p.limit_gains) - p.damping * rate - p.stiffness * (at - p.rest)
        return self.on_joints(own)

    def on_joints(self, force: Tensor) -> Tensor:
        """Forces [B, nj] as forces [B, nv] that do not push the base."""
        return torch.cat([force.new_zeros(len(force), self.base), force], -1) if self.base else force

    def contact_points(self, q: Tensor, pose: Pose, qd: Tensor, ground: Ground) -> ContactPoints:
        """How the candidates stand and move over planes."""
        point, normal = (x[:, None] for x in ground)
        if self.first:
            point = point - q[:, None, :3]
        link = self._candidate_link
        centre = pose.position[:, link] + (pose.rotation[:, link] @ self._candidate[..., None])[..., 0]
        depth = self._radius - ((centre - point) * normal).sum(-1)
        at = (centre - self._radius[:, None] * normal)[:, :, None].expand(-1, -1, self.robot.nv, -1)
        w, v = (part[:, None].expand_as(at) for part in pose.axes.split(3, -1))
        jacobian = (v + torch.linalg.cross(w, at)) * self.above[link][..., None]
        velocity = (jacobian * qd[:, None, :, None]).sum(2)
        along = (velocity * normal).sum(-1)
        return ContactPoints(depth, along, velocity - along[..., None] * normal, normal, jacobian)

    def contact_force(self, q: Tensor, pose: Pose, qd: Tensor, ground: Ground, law: ContactLaw) -> Tensor:
        """Forces [B, nv] of the contacts with planes under a law, which counts where the depth is positive."""
        points = self.contact_points(q, pose, qd, ground)
        return torch.einsum("bcjx,bcx->bj", points.jacobian, points.force(law))

    def penalty(self) -> ContactLaw:
        """The analytical law with this robot's gains."""
        return penalty(self.parameters.contact_gains, self.robot.friction_law == "huber")

    def substep(
        self,
        q: Tensor,
        qd: Tensor,
        force: Tensor,
        dt: float,
        ground: Ground | None = None,
        contact_law: ContactLaw | None = None,
        joint_law: JointLaw | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One step of semi-implicit Euler under joint forces [B, nj]."""
        pose = self.pose(q)
        pull = self.on_joints(force) + self.joint_force(q, qd)
        if contact_law is not None:
            if ground is None:
                raise ValueError("a contact law was given without a ground")
            pull = pull + self.contact_force(q, pose, qd, ground, contact_law)
        if joint_law is not None:
            pull = pull + self.on_joints(joint_law(q[:, self.robot.joint_q], qd[:, self.robot.joint_qd]))
        H, bias = self.mass_and_bias(pose, qd)
        qd = qd + dt * torch.linalg.solve(H, pull - bias)
        return self.moved(q, dt * qd), qd

    def moved(self, q: Tensor, step: Tensor) -> Tensor:
        """q [B, nq] moved on by a step [B, nv]."""
        if not self.first:
            return q + step
        quat = quat_multiply(q[:, 3:7], quat_exp(step[:, 3:6]))
        return torch.cat([q[:, :3] + step[:, :3], quat, q[:, 7:] + step[:, 6:]], -1)

    def frame(
        self,
        q: Tensor,
        qd: Tensor,
        force: Tensor,
        ground: Ground | None = None,
        contact_law: ContactLaw | None = None,
        joint_law: JointLaw | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One frame in the robot's substeps."""
        dt = self.robot.frame_dt / self.robot.substeps
        for _ in range(self.robot.substeps):
            q, qd = self.substep(q, qd, force, dt, ground, contact_law, joint_law)
        return q, qd


def limit_force(q: Tensor, qd: Tensor, low: Tensor, high: Tensor, gains: Tensor | tuple[float, float]) -> Tensor:
    """The springs at joint limits [nj] that states [B, nj] have passed."""
    ke, kd = gains
    past = torch.where(q < low, low - q, torch.where(q > high, high - q, 0.0))
    return torch.where(past != 0, ke * past - kd * qd, 0.0)
