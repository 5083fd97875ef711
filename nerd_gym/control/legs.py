"""Feet, Jacobians and weights of a legged robot, in its base's axes."""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel


class LegState(NamedTuple):
    """L legs of J joints each, seen from the base's origin."""

    foot: Tensor  # [N, L, 3]
    jacobian: Tensor  # [N, L, 3, J] of the foot
    moment: Tensor  # [N, L, J, 3]: its product with an acceleration upwards is the torque that carries the leg
    com: Tensor  # [N, 3] of the whole robot


class Legs:
    """The legs of a robot with a free base whose other joints are hinges, leg by leg, with a site at each foot."""

    def __init__(self, robot: RobotModel, feet: tuple[str, ...], device: torch.device | str = "cpu"):
        m = robot.mj_model
        self.robot, self.count = robot, len(feet)
        self.mass = float(m.body_mass.sum())
        self._kinematics = kinematics = Kinematics(robot, device)
        sites = [kinematics.site(name) for name in feet]
        self._feet = torch.cat([frame for frame, _ in sites]), torch.cat([local for _, local in sites])
        self._coms = kinematics.fixed_points(np.arange(1, m.nbody), m.body_ipos[1:])
        joints = np.arange(1, m.njnt)
        frames = [kinematics.frame_of_body[int(body)] for body in m.jnt_bodyid[joints]]
        self._frames = torch.tensor(frames, device=device)
        self._axes = torch.as_tensor(m.jnt_axis[joints], dtype=torch.float32, device=device)[..., None]
        self._masses = torch.as_tensor(m.body_mass[1:], dtype=torch.float32, device=device)[:, None]

    def __call__(self, joints: Tensor) -> LegState:
        """[N, nj] -> the legs at these joint angles."""
        n, shape = len(joints), (len(joints), self.count, -1, 3)
        base = joints.new_tensor([0.0, 0, 0, 1, 0, 0, 0]).expand(n, 7)
        poses = self._kinematics.poses(torch.cat([base, joints], 1))
        foot = self._kinematics.points(poses, self._feet)
        first_moment = self._masses * self._kinematics.points(poses, self._coms)
        frames = poses[:, self._frames]
        axis = (frames[..., :3, :3] @ self._axes).view(shape)
        origin = frames[..., :3, 3].view(shape)
        jacobian = torch.linalg.cross(axis, foot[:, :, None] - origin).mT
        # Of everything that hangs on a joint: its own link and those beyond.
        beyond = _sum_outwards(first_moment[:, 1:].view(shape))
        mass = _sum_outwards(self._masses[1:].view(1, self.count, -1, 1))
        moment = torch.linalg.cross(axis, beyond - mass * origin)
        return LegState(foot, jacobian, moment, first_moment.sum(1) / self.mass)

    def inertia(self, joints: np.ndarray) -> np.ndarray:
        """[3, 3]: of the robot as one rigid body at these joint angles, about its centre of mass."""
        import mujoco

        m = self.robot.mj_model
        data = mujoco.MjData(m)
        data.qpos[:7], data.qpos[7:] = (0, 0, 0, 1, 0, 0, 0), joints
        mujoco.mj_kinematics(m, data)
        mass, at = m.body_mass, data.xipos
        arm = at - mass @ at / mass.sum()
        rotation = data.ximat.reshape(-1, 3, 3)
        own = np.einsum("bij,bj,bkj->ik", rotation, m.body_inertia, rotation)
        return own + (mass * (arm**2).sum(-1)).sum() * np.eye(3) - (mass[:, None] * arm).T @ arm


def _sum_outwards(x: Tensor) -> Tensor:
    """[..., J, K]: of each joint and those beyond it."""
    return x.flip(-2).cumsum(-2).flip(-2)
