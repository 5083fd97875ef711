"""A backend in one file and one row of the table, to show that the contract suite runs over every row.

Every joint is a damped unit inertia under its joint force, and a free base falls and keeps its angular velocity. It is
also a pytest plugin, which adds the row before tests are collected::

    python -m pytest -p tests.support.toy_backend -k toy tests/backends/test_contract.py tests/contract
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from nerd_gym.backends import BACKENDS, Entry
from nerd_gym.backends.base import Backend
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_exp, quat_multiply

NAME = "toy"
ENTRY = Entry(__name__, "ToyBackend", (), "damped unit inertias, for tests")


class ToyBackend(Backend):
    """Semi-implicit Euler, without contacts and joint limits."""

    name = NAME
    options = {"damping": "of every joint, N s / m or N m s / rad (default: 5)"}

    def __init__(self, robot: RobotModel, num_envs: int, device: torch.device | str = "cpu", *, damping: float = 5.0):
        super().__init__(robot, num_envs, device)
        self.damping = damping
        self.gravity = torch.as_tensor(robot.mj_model.opt.gravity, dtype=torch.float32, device=self.device)

    def _advance(self, joint_force: Tensor) -> None:
        dt = self.frame_dt / self.substeps
        position, rate = self.q[:, self.robot.joint_q], self.qd[:, self.robot.joint_qd]
        for _ in range(self.substeps):
            rate += dt * (joint_force - self.damping * rate)
            position += dt * rate
            if self.robot.free_base:
                self.qd[:, :3] += dt * self.gravity
                self.q[:, :3] += dt * self.qd[:, :3]
                turned = quat_multiply(self.q[:, 3:7], quat_exp(dt * self.qd[:, 3:6]))
                self.q[:, 3:7] = normalize(turned, dim=-1)


def pytest_configure() -> None:
    """As a plugin: one more row in the table."""
    BACKENDS[NAME] = ENTRY
