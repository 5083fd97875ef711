"""The robot's own frame at every step: what a network sees and predicts does not change when the world is moved.

A free base is its own frame. A robot with a fixed base has the frame of its first moving link, in which contacts and
gravity are expressed; its joints are relative already. Velocities and changes "in the frame" are [N, nv] vectors in
the order of qd: linear and angular velocity of the base in the frame's axes (free base only), then the joints.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.features import HINGE
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.rotations import quat_conjugate, quat_exp, quat_log, quat_multiply, quat_to_matrix, wrap_angle
from nerd_gym.robots.state import Motion


class RobotPose(NamedTuple):
    """Where N robots stand: column k of the rotation is the frame's axis k in the world."""

    position: Tensor  # [N, 3]
    rotation: Tensor  # [N, 3, 3]

    def points(self, world: Tensor) -> Tensor:
        """[N, K, 3] points of the world in the frame."""
        return (world - self.position[:, None]) @ self.rotation

    def vectors(self, world: Tensor) -> Tensor:
        """[N, K, 3] directions of the world in the frame."""
        return world @ self.rotation

    def vector(self, world: Tensor) -> Tensor:
        """[N, 3] directions of the world in the frame."""
        return (world[:, None] @ self.rotation)[:, 0]


class RobotCentric:
    """Finds a robot's frame and expresses its motion in it."""

    def __init__(self, kinematics: Kinematics, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32):
        robot, m = kinematics.robot, kinematics.robot.mj_model
        self.free = robot.free_base
        self.link = kinematics.frame_of_body[int(m.jnt_bodyid[0])]
        gravity = m.opt.gravity / max(float(np.linalg.norm(m.opt.gravity)), 1e-9)
        self.gravity = torch.as_tensor(gravity, dtype=dtype, device=device)  # [3] unit vector, zero if there is none
        hinge = m.jnt_type[m.njnt - robot.nj :] == HINGE
        unlimited = hinge & ~np.isfinite(robot.joint_range).any(1)
        self.unlimited = torch.as_tensor(unlimited, device=device)  # [nj] hinges that turn all the way round

    def frame(self, poses: Tensor) -> RobotPose:
        """From poses [N, F, 4, 4] of the robot's frames."""
        pose = poses[:, self.link]
        return RobotPose(pose[:, :3, 3], pose[:, :3, :3])

    def gravity_in(self, frame: RobotPose) -> Tensor:
        """[N, 3] direction of gravity in the frame."""
        return torch.matmul(self.gravity, frame.rotation)

    def velocity(self, frame: RobotPose, qd: Tensor) -> Tensor:
        """[N, nv] in the frame."""
        if not self.free:
            return qd
        return torch.cat([frame.vector(qd[:, :3]), qd[:, 3:]], 1)

    def wrapped(self, joints: Tensor) -> Tensor:
        """[N, nj] joint positions with the angles of unlimited hinges in [-pi, pi)."""
        return torch.where(self.unlimited, wrap_angle(joints), joints)

    def relative_motion(self, now: Motion, after: Motion) -> tuple[Tensor, Tensor]:
        """How position and velocity change from one state to the next, [N, nv] each, in the frame of the first.

        A rotation is a rotation vector. The later velocities are expressed in the frame of the first state too.
        """
        if not self.free:
            return self.wrapped(after.q - now.q), after.qd - now.qd
        rotation = quat_to_matrix(now.q[:, 3:7])
        relative = quat_multiply(quat_conjugate(now.q[:, 3:7]), after.q[:, 3:7])
        moved = ((after.q[:, :3] - now.q[:, :3])[:, None] @ rotation)[:, 0]
        linear = ((after.qd[:, :3] - now.qd[:, :3])[:, None] @ rotation)[:, 0]
        angular = (quat_to_matrix(relative) @ after.qd[:, 3:6, None])[..., 0] - now.qd[:, 3:6]
        step = torch.cat([moved, quat_log(relative), self.wrapped(after.q[:, 7:] - now.q[:, 7:])], 1)
        return step, torch.cat([linear, angular, after.qd[:, 6:] - now.qd[:, 6:]], 1)

    def advance(self, now: Motion, step: Tensor, change: Tensor) -> Motion:
        """The inverse of :meth:`relative_motion`."""
        if not self.free:
            return Motion(now.q + step, now.qd + change)
        rotation = quat_to_matrix(now.q[:, 3:7])
        relative = quat_exp(step[:, 3:6])
        quat = torch.nn.functional.normalize(quat_multiply(now.q[:, 3:7], relative), dim=-1)
        world = rotation @ torch.stack([step[:, :3], change[:, :3]], 2)  # [N, 3, 2]
        angular = ((now.qd[:, 3:6] + change[:, 3:6])[:, None] @ quat_to_matrix(relative))[:, 0]
        q = torch.cat([now.q[:, :3] + world[..., 0], quat, now.q[:, 7:] + step[:, 6:]], 1)
        return Motion(q, torch.cat([now.qd[:, :3] + world[..., 1], angular, now.qd[:, 6:] + change[:, 6:]], 1))
