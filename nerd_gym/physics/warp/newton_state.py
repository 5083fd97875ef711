"""Our state in Newton's conventions and back.

Newton: quaternion w last; a free joint's velocity is that of the body's centre of mass in world axes, its
angular velocity is in world axes. Ours: quaternion w first; the body's origin; angular velocity in body axes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_to_matrix


def to_newton(robot: RobotModel, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
    """q [N, nq], qd [N, nv] -> Newton's joint_q, joint_qd of the same shapes."""
    if not robot.free_base:
        return q, qd
    rotation = quat_to_matrix(q[:, 3:7])
    omega = (rotation @ qd[:, 3:6, None])[..., 0]
    velocity = qd[:, :3] + torch.linalg.cross(omega, _com_offset(robot, rotation))
    return torch.cat([q[:, :3], q[:, 4:7], q[:, 3:4], q[:, 7:]], -1), torch.cat([velocity, omega, qd[:, 6:]], -1)


def from_newton(robot: RobotModel, joint_q: Tensor, joint_qd: Tensor) -> tuple[Tensor, Tensor]:
    """The way back."""
    if not robot.free_base:
        return joint_q, joint_qd
    q = torch.cat([joint_q[:, :3], joint_q[:, 6:7], joint_q[:, 3:6], joint_q[:, 7:]], -1)
    rotation = quat_to_matrix(q[:, 3:7])
    omega = joint_qd[:, 3:6]
    velocity = joint_qd[:, :3] - torch.linalg.cross(omega, _com_offset(robot, rotation))
    body_omega = (rotation.mT @ omega[..., None])[..., 0]
    return q, torch.cat([velocity, body_omega, joint_qd[:, 6:]], -1)


def _com_offset(robot: RobotModel, rotation: Tensor) -> Tensor:
    """From the base's origin to its centre of mass, world axes."""
    m = robot.mj_model
    com = torch.as_tensor(m.body_ipos[m.jnt_bodyid[0]], dtype=rotation.dtype, device=rotation.device)
    return rotation @ com
