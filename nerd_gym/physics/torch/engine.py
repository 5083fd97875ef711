"""The equations of motion in torch: batched, differentiable, for a fixed or a free base, in float32 or float64.

Spatial vectors are in world axes about the base's origin (a fixed base: the world's). A free base is link 0 with six
degrees of freedom, whose motion axes are those of its qd: linear velocity in world axes, angular velocity in body axes.
All links at once: `above` [l, j] says which degree of freedom moves which link, so that sums over the tree are products
with it; only poses, and the articulated-body recursion, go link by link. Nothing is written in place.

Parameters are those of one robot, or of every robot of the batch: [B, ...] before the shapes that `Parameters` names.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.links import Links, read_links
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_exp, quat_multiply, quat_to_matrix

from .contact import ContactLaw, ContactPoints, penalty
from .impulse import Impulses
from .spatial import force_cross, motion_cross, skew, spatial_inertia

JointLaw = Callable[[Tensor, Tensor], Tensor]  # q, qd [B, nj] -> forces [B, nj]
Ground = tuple[Tensor, Tensor]  # point and normal [B, 3]
DRY_SPEED = 0.1  # rad/s or m/s


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
    dry_friction: Tensor  # [nj], Coulomb's; against a rate it is times tanh(rate / DRY_SPEED)
    stiffness: Tensor  # [nj]
    rest: Tensor  # [nj], where the springs rest
    lower: Tensor  # [nj]
    upper: Tensor  # [nj]
    limit_gains: Tensor  # [2] ke, kd
    contact_gains: Tensor  # [4] ke, kd, kf, mu
    gravity: Tensor  # [3]
    candidate: Tensor  # [C, 3], centres of the candidate points in the frames of their links
    radius: Tensor  # [C]

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

    carriers = [links["frames"][int(body)] for body in robot.candidates.body]
    local = [
        position + rotation @ at
        for (_, rotation, position), at in zip(carriers, robot.candidates.position, strict=True)
    ]
    return Parameters(
        **{name: tensor(links[name]) for name in ("mass", "com", "inertia", "offset", "rotation", "axis")},
        armature=tensor(links.get("armature", m.dof_armature[joints])),
        damping=tensor(links.get("damping", m.dof_damping[joints])),
        dry_friction=tensor(np.zeros(robot.nj)),
        stiffness=tensor(m.jnt_stiffness[int(robot.free_base) :]),
        rest=tensor(m.qpos_spring[robot.joint_q]),
        lower=tensor(robot.joint_range[:, 0]),
        upper=tensor(robot.joint_range[:, 1]),
        limit_gains=tensor(robot.limit_gains),
        contact_gains=tensor(robot.contact_gains),
        gravity=tensor(m.opt.gravity),
        candidate=tensor(np.reshape(local, (-1, 3))),
        radius=tensor(robot.candidates.radius),
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
        carriers = [links["frames"][int(body)][0] for body in robot.candidates.body]
        self._candidate_link = torch.as_tensor(carriers, dtype=torch.long, device=like.device)

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
            rotation = up @ p.rotation[..., l, :, :]
            axis = _times(rotation, p.axis[..., l, :])
            position = position + _times(up, p.offset[..., l, :])
            angle = angles[:, l - self.first, None]
            if self._slide[l]:
                position = position + angle * axis
                axes.append(torch.cat([torch.zeros_like(axis), axis], -1)[:, None])
            else:
                k = skew(p.axis[..., l, :])
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
        return Motion(velocity, self.above @ change + (falling if falling.ndim == 1 else falling[:, None]))

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
        return torch.diag_embed(torch.cat([own.new_zeros((*own.shape[:-1], self.base)), own], -1))

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
            scale = (axis * reaction).sum(-1) + armature[..., l - self.first]
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
        return self.on_joints(own - p.dry_friction * torch.tanh(rate / DRY_SPEED))

    def on_joints(self, force: Tensor) -> Tensor:
        """Forces [B, nj] as forces [B, nv] that do not push the base."""
        return torch.cat([force.new_zeros(len(force), self.base), force], -1) if self.base else force

    def contact_points(self, q: Tensor, pose: Pose, qd: Tensor, ground: Ground) -> ContactPoints:
        """How the candidates stand and move over planes."""
        point, normal = (x[:, None] for x in ground)
        if self.first:
            point = point - q[:, None, :3]
        link, radius = self._candidate_link, self.parameters.radius
        centre = pose.position[:, link] + (pose.rotation[:, link] @ self.parameters.candidate[..., None])[..., 0]
        depth = radius - ((centre - point) * normal).sum(-1)
        at = (centre - radius[..., None] * normal)[:, :, None].expand(-1, -1, self.robot.nv, -1)
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
        contact_law: ContactLaw | Impulses | None = None,
        joint_law: JointLaw | None = None,
        augment: Augment | None = None,
        time: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One step of semi-implicit Euler under joint forces [B, nj].

        Contacts are a law of forces, or impulses that are found all at once. `augment` may change what it sees.
        """
        if contact_law is not None and ground is None:
            raise ValueError("a contact law was given without a ground")
        pose = self.pose(q)
        points = None
        if contact_law is not None and ground is not None:
            points = self.contact_points(q, pose, qd, ground)
        now = Moment(self, q, qd, force, pose, points, contact_law, None, time)
        return (now if augment is None else augment(now)).advance(dt, joint_law)

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
        contact_law: ContactLaw | Impulses | None = None,
        joint_law: JointLaw | None = None,
        augment: Augment | None = None,
        substeps: int | None = None,
        time: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One frame in the robot's substeps, or in so many; `time` [B] at its start, for what asks for it."""
        substeps = self.robot.substeps if substeps is None else substeps
        dt = self.robot.frame_dt / substeps
        for k in range(substeps):
            now = None if time is None else time + k * dt
            q, qd = self.substep(q, qd, force, dt, ground, contact_law, joint_law, augment, now)
        return q, qd

    def but(self, **values: Any) -> Articulated:
        """The same robot with other values of its parameters."""
        other = copy(self)
        other.parameters = self.parameters.but(**values)
        return other


class Moment(NamedTuple):
    """What a substep starts from, and everything that it computes with."""

    engine: Articulated
    q: Tensor  # [B, nq]
    qd: Tensor  # [B, nv]
    force: Tensor  # [B, nj] on the joints
    pose: Pose
    points: ContactPoints | None  # None: without contacts
    contact_law: ContactLaw | Impulses | None
    wrench: Tensor | None = None  # [B, L, 6] on the links besides, moment and force about the base's origin
    time: Tensor | None = None  # [B], if anything asks for it

    def advance(self, dt: float, joint_law: JointLaw | None = None) -> tuple[Tensor, Tensor]:
        """q and qd after `dt`."""
        engine, q, qd, force, pose, points, law, wrench, _ = self
        robot = engine.robot
        pull = engine.on_joints(force) + engine.joint_force(q, qd)
        if points is not None and law is not None and not isinstance(law, Impulses):
            pull = pull + torch.einsum("bcjx,bcx->bj", points.jacobian, points.force(law))
        if joint_law is not None:
            pull = pull + engine.on_joints(joint_law(q[:, robot.joint_q], qd[:, robot.joint_qd]))
        if wrench is not None:
            pull = pull + (pose.axes * (engine.above.mT @ wrench)).sum(-1)
        H, bias = engine.mass_and_bias(pose, qd)
        after = qd + dt * torch.linalg.solve(H, pull - bias)
        if points is not None and isinstance(law, Impulses):
            after = after + law(points, H, qd, after, dt)
        return engine.moved(q, dt * after), after


Augment = Callable[[Moment], Moment]  # what changes the quantities of a substep


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """[B, 3, 3] times [3] or [B, 3]."""
    return matrix @ vector if vector.ndim == 1 else (matrix @ vector[..., None])[..., 0]


def limit_force(q: Tensor, qd: Tensor, low: Tensor, high: Tensor, gains: Tensor | tuple[float, float]) -> Tensor:
    """The springs at joint limits [nj] that states [B, nj] have passed."""
    ke, kd = gains
    past = torch.where(q < low, low - q, torch.where(q > high, high - q, 0.0))
    return torch.where(past != 0, ke * past - kd * qd, 0.0)
