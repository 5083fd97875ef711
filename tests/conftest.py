"""What tests share: the grid of environments, and recorded trajectories of the published simulator."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import nerd_gym
from nerd_gym.backends import BACKENDS, make_backend
from nerd_gym.registration import ENVS

ROOT = Path(__file__).parent.parent
# Recorded data of the published simulator is not part of the project; NERD_GYM_REFERENCE names its folder.
REFERENCE = Path(os.environ.get("NERD_GYM_REFERENCE", ROOT.parent / "shared" / "reference"))
ROBOTS = ("cartpole", "pendulum_contact", "ant", "anymal", "franka")
GRID = [(env_id, backend) for env_id in ENVS for backend in BACKENDS]
VARIANTS = {
    "NeRD/Cartpole-v0": [{}],
    "NeRD/PendulumContact-v0": [{"ground": 2}, {"ground": "random"}],
    "NeRD/Ant-v0": [{"task": "run"}, {"task": "spin"}, {"task": "spin_track"}],
    "NeRD/Anymal-v0": [{"task": t, "control": c} for t in ("forward", "side") for c in ("position", "torque")],
    "NeRD/Franka-v0": [{"control": c, "velocity": v} for c in ("position", "torque") for v in (True, False)],
}
ALL_VARIANTS = [(env_id, backend, options) for env_id, backend in GRID for options in VARIANTS[env_id]]


def robot(name: str) -> nerd_gym.RobotModel:
    return nerd_gym.RobotModel.named(name)


def make_vec(env_id: str, num_envs: int, **options):
    return gymnasium.make_vec(env_id, num_envs=num_envs, array="torch", **options).unwrapped


def everyone(n: int) -> torch.Tensor:
    return torch.ones(n, dtype=torch.bool)


def random_state(model: nerd_gym.RobotModel, n: int, seed: int = 0, speed: float = 1.0, height: float = 0.0):
    """Joints inside their limits, any base orientation, `height` over the MJCF's start."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return 2 * torch.rand(*shape, generator=generator) - 1

    q = torch.as_tensor(model.mj_model.qpos0, dtype=torch.float32).repeat(n, 1)
    low, high = np.clip(model.joint_range, -2.0, 2.0).T
    middle, half = (torch.as_tensor(x, dtype=torch.float32) for x in ((low + high) / 2, (high - low) / 2))
    q[:, model.joint_q] = middle + 0.2 * half * uniform(n, model.nj)
    qd = torch.zeros(n, model.nv)
    qd[:, model.joint_qd] = 0.15 * speed * uniform(n, model.nj)
    if model.free_base:
        q[:, 2] += height
        q[:, 3:7] = torch.nn.functional.normalize(torch.randn(n, 4, generator=generator), dim=-1)
        qd[:, :6] = 0.5 * speed * uniform(n, 6)
    return q, qd


def backend_at(name: str, model, q, qd, ground=None, **options):
    backend = make_backend(name, model, len(q), **options)
    backend.reset(everyone(len(q)), q, qd, ground)
    return backend


@pytest.fixture(scope="session")
def recorded():
    """A function that loads a recorded set by name in our conventions, joints in our order."""
    if not REFERENCE.is_dir():
        pytest.skip(f"no recorded trajectories in {REFERENCE}; set NERD_GYM_REFERENCE")
    sys.path.insert(0, str(REFERENCE))
    try:
        from convert import load
    finally:
        sys.path.pop(0)
    return lambda name, robot_name: Recorded(load(name), robot(robot_name))


class Recorded:
    """A recorded set: `q(kind)`, `qd(kind)` [T+1, N, ...], `force(kind)` [T, N, nj], raw arrays in `data`."""

    def __init__(self, data: dict, model: nerd_gym.RobotModel):
        self.data, self.robot = data, model
        legs = ("RH", "LH", "RF", "LF")
        theirs = list(model.joint_names)
        if model.name == "anymal":
            theirs = [name for leg in legs for name in theirs if name.startswith(leg)]
        self.order = [theirs.index(name) for name in model.joint_names]

    def _joints(self, values: np.ndarray, first: int) -> torch.Tensor:
        values = np.concatenate([values[..., :first], values[..., first:][..., self.order]], -1)
        return torch.as_tensor(values, dtype=torch.float32)

    def q(self, kind: str) -> torch.Tensor:
        return self._joints(self.data[f"{kind}_q"], self.robot.joint_q.start)

    def qd(self, kind: str) -> torch.Tensor:
        return self._joints(self.data[f"{kind}_qd"], self.robot.joint_qd.start)

    def force(self, kind: str) -> torch.Tensor:
        return self._joints(self.data[f"{kind}_joint_acts"], 0)

    def actions(self, kind: str) -> torch.Tensor:
        actions = torch.as_tensor(self.data[f"{kind}_actions"], dtype=torch.float32)
        return actions[..., self.order] if self.robot.name == "anymal" else actions

    def ground(self, n: int):
        if "ground_point" not in self.data:
            return None
        return tuple(
            torch.as_tensor(self.data[f"ground_{part}"], dtype=torch.float32).expand(n, 3)
            for part in ("point", "normal")
        )
