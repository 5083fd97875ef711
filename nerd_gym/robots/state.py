"""States of robots: what a step starts from, the range in which a state is healthy, how far two states are apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .features import HINGE
from .model import RobotModel
from .rotations import quat_conjugate, quat_log, quat_multiply, wrap_angle

# The stated range of a healthy state: beyond it every simulation here has come apart.
Q_LIMIT = 1e4
QD_LIMIT = 1e3


class FrameInput(NamedTuple):
    """What a frame starts from."""

    q: Tensor  # [N, nq]
    qd: Tensor  # [N, nv]
    joint_force: Tensor  # [N, nj]


def rows_within(q: Tensor, qd: Tensor, q_limit: Tensor | float, qd_limit: Tensor | float) -> Tensor:
    """[N]: whether |q| [N, nq] and |qd| [N, nv] of a row stay within their limits; not if there is a NaN."""
    return (q.abs() <= q_limit).all(-1) & (qd.abs() <= qd_limit).all(-1)


class Motion(NamedTuple):
    """A batch of states."""

    q: Tensor  # [N, nq]
    qd: Tensor  # [N, nv]


MEASURES = {"position": "m", "orientation": "rad", "joints": "rad or m"}


def state_error(robot: RobotModel, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Errors [N] between states q [N, nq]: base position, base orientation (angle), mean over the joints."""
    errors = {}
    if robot.free_base:
        errors["position"] = (a[:, :3] - b[:, :3]).norm(dim=-1)
        # The vector part of the rotation between them: exact for small ones, where the scalar part is not.
        vector = a[:, 3:4] * b[:, 4:7] - b[:, 3:4] * a[:, 4:7] - torch.linalg.cross(a[:, 4:7], b[:, 4:7])
        errors["orientation"] = 2 * torch.asin(vector.norm(dim=-1).clamp(max=1))
    errors["joints"] = joint_difference(robot, a, b).mean(-1)
    return errors


def displacement(robot: RobotModel, start: Tensor, end: Tensor) -> Tensor:
    """[N, nv]: the step in qd's axes that leads from states q [N, nq] to others, hinges the shorter way round."""
    joints = _joint_steps(robot, start, end)
    if not robot.free_base:
        return joints
    turned = quat_log(quat_multiply(quat_conjugate(start[:, 3:7]), end[:, 3:7]))
    return torch.cat([end[:, :3] - start[:, :3], turned, joints], 1)


def joint_difference(robot: RobotModel, a: Tensor, b: Tensor) -> Tensor:
    """[N, nj]: how far the joints of states q [N, nq] are apart, hinges the shorter way round."""
    return _joint_steps(robot, b, a).abs()


def _joint_steps(robot: RobotModel, start: Tensor, end: Tensor) -> Tensor:
    step = end[:, robot.joint_q] - start[:, robot.joint_q]
    hinge = torch.as_tensor(robot.mj_model.jnt_type[robot.mj_model.njnt - robot.nj :] == HINGE, device=step.device)
    return torch.where(hinge, wrap_angle(step), step)
