"""What a network is told of a robot's contact candidates and joint limits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.contacts import Contacts, distinct_candidates
from nerd_gym.robots.features import HINGE
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel

from .robot_centric import RobotCentric, RobotPose

# A candidate farther away than this is hidden: four radii of its sphere, but at least 0.12 m (the paper's choice).
SEEN_RADII = 4.0
SEEN_AT_LEAST = 0.12
# The two scales of distances, in m or rad; how many of the larger a point may lie deep, and of the finer a frame later.
FINE, COARSE, DEEPEST, DEEPEST_PREDICTED = 0.02, 0.2, 10.0, 2.0


def masked_features(contacts: Contacts, frame: RobotPose, radius: Tensor) -> Tensor:
    """The paper's features [N, 7 C]: normals, points on the plane and centre distances of the C candidates.

    Normals and points are in the robot's frame; a candidate that is far away has zeros. radius is [C].
    """
    depth = contacts.distance + radius
    seen = (depth < (SEEN_RADII * radius).clamp_min(SEEN_AT_LEAST))[..., None]
    on_plane = contacts.centre - depth[..., None] * contacts.ground_normal[:, None]
    parts = (frame.vectors(contacts.normal), frame.points(on_plane), depth[..., None])
    return torch.cat([torch.where(seen, part, 0.0).flatten(1) for part in parts], 1)


def near_features(distance: Tensor, speed: Tensor, dt: float, predicted_distance: bool) -> tuple[Tensor, Tensor]:
    """Features [N, 4 or 5, C] of distances [N, C] that change with `speed` [N, C], and how near each is, 0 to 1.

    They are the distance at two scales, the distance expected a frame later, and the speed as far as it matters; with
    `predicted_distance`, the distance expected a frame later at the finer scale too.
    """
    ahead = torch.add(distance, speed, alpha=dt)
    coarse = (torch.stack([distance, ahead], 1) / COARSE).clamp(-DEEPEST, 1.0)
    near = 1 - coarse.amin(1).clamp_min(0.0)
    fine = [(distance / FINE).clamp(-1.0, 1.0), near * speed]
    fine += [predicted_distance_features(distance, speed, dt)] if predicted_distance else []
    return torch.cat([coarse, torch.stack(fine, 1)], 1), near


def predicted_distance_features(distance: Tensor, speed: Tensor, dt: float) -> Tensor:
    """[N, C]: the distance expected a frame later, at the finer scale."""
    return (torch.add(distance, speed, alpha=dt) / FINE).clamp(-DEEPEST_PREDICTED, 1.0)


def invariant_features(points: PointMotion, dt: float, predicted_distance: bool) -> Tensor:
    """[N, 7 C or 8 C]: distances, normal speeds and sliding velocities of the C distinct candidates."""
    features, near = near_features(points.distance, points.normal_speed, dt, predicted_distance)
    return torch.cat([features.flatten(1), (near[:, None] * points.slip).flatten(1)], 1)


class PointMotion(NamedTuple):
    """How C points of the robot's surface stand and move over the ground; vectors are in the robot's frame."""

    distance: Tensor  # [N, C]
    normal_speed: Tensor  # [N, C] away from the ground
    slip: Tensor  # [N, 3, C] velocity along the ground


class ContactMotion:
    """Distances and exact velocities of a robot's distinct candidates, at the point that would touch."""

    def __init__(self, robot: RobotModel, kinematics: Kinematics, frames: RobotCentric, device: torch.device | str):
        m = robot.mj_model
        self.frames = frames
        self.distinct = distinct_candidates(robot)
        bodies, positions = robot.candidates.body[self.distinct], robot.candidates.position[self.distinct]
        joints = range(m.njnt - robot.nj, m.njnt)
        self._count, self._nj = len(bodies), robot.nj
        at = [kinematics.frame_of_body[int(b)] for b in bodies] + 2 * [_frame_of_joint(kinematics, j) for j in joints]
        # An axis is a direction: its fourth coordinate is zero.
        local = [np.append(x, 1.0) for x in positions] + [np.append(m.jnt_pos[j], 1.0) for j in joints]
        local = np.array(local + [np.append(m.jnt_axis[j], 0.0) for j in joints])
        # Points are linear in the poses, so that one product with a constant matrix gives them all.
        linear = np.zeros((max(kinematics.frame_of_body.values()) + 1, 4, 4, 3, len(at)))
        for k, frame in enumerate(at):
            for i in range(3):
                linear[frame, i, :, i, k] = local[k]

        def tensor(x) -> Tensor:
            return torch.as_tensor(np.asarray(x), device=device).to(torch.float32)

        self._linear = tensor(linear.reshape(-1, 3 * len(at)))
        self._is_point = tensor(local[:, 3])
        self._hinge = tensor(m.jnt_type[list(joints)] == HINGE)
        self._moves = tensor([[_carries(m, j, int(b)) for b in bodies] for j in joints])  # [nj, C]
        self._radius = tensor(robot.candidates.radius[self.distinct])

    def __call__(self, contacts: Contacts, frame: RobotPose, velocity: Tensor) -> PointMotion:
        """velocity [N, nv] is the robot's in its frame. Inside, coordinates come before points: [N, 3, C]."""
        c, nj = self._count, self._nj
        world = (contacts.poses.flatten(1) @ self._linear).view(len(velocity), 3, -1)
        seen = torch.bmm(frame.rotation.mT, world - frame.position[..., None] * self._is_point)
        centre, anchor, axis = seen.split([c, nj, nj], 2)
        turning = axis * self._hinge
        moving = _cross(anchor, turning) + (axis - turning)  # of the point at the frame's origin
        twist = (torch.cat([turning, moving], 1) * velocity[:, None, -nj:]) @ self._moves  # [N, 6, C]
        if self.frames.free:
            twist = twist + torch.cat([velocity[:, 3:6], velocity[:, :3]], 1)[..., None]
        normal = frame.vector(contacts.ground_normal)[..., None]  # [N, 3, 1]
        surface = centre - normal * self._radius
        speed = _cross(twist[:, :3], surface) + twist[:, 3:]
        along = torch.bmm(normal.mT, torch.cat([surface, speed], 2))  # [N, 1, 2 C]
        distance, normal_speed = along.split(c, 2)
        offset = ((contacts.ground_point - frame.position) * contacts.ground_normal).sum(1, keepdim=True)
        return PointMotion(distance[:, 0] - offset, normal_speed[:, 0], speed - normal_speed * normal)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """[N, 3, K] each; much faster than torch's along an inner axis."""
    (a0, a1, a2), (b0, b1, b2) = a.unbind(1), b.unbind(1)
    return torch.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], 1)


def _frame_of_joint(kinematics: Kinematics, joint: int) -> int:
    """A body with several joints has a frame for each; the last carries the body."""
    m = kinematics.robot.mj_model
    body = int(m.jnt_bodyid[joint])
    behind = m.body_jntadr[body] + m.body_jntnum[body] - 1 - joint
    return kinematics.frame_of_body[body] - int(behind)


def _carries(m, joint: int, body: int) -> bool:
    """Whether a joint moves a body."""
    while body > 0:
        if m.jnt_bodyid[joint] == body:
            return True
        body = int(m.body_parentid[body])
    return False
