"""Play policies that were trained with the published NeRD code.

It is Y up with the quaternion's w last, and orders ANYmal's legs RH, LH, RF, LF. World vectors turn as
(x, y, z) -> (x, z, -y) from our frame to its. Its observations are a constant matrix times ours.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from nerd_gym.envs.factory import native
from nerd_gym.envs.single import NerdEnv
from nerd_gym.envs.vector import NerdVectorEnv

TURN = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])  # our world vectors -> theirs
# (w, x, y, z) -> (x, y, z, w) of the quaternion turned by -90 degrees about x.
QUAT = np.array([[-1.0, 1, 0, 0], [0, 0, 1, 1], [0, 0, -1, 1], [1, 1, 0, 0]]) * np.sqrt(0.5)
LAYOUTS = ("native", "reference")
LEGS = {"anymal": ("RH", "LH", "RF", "LF")}


class ReferenceLayout:
    """The published layout of one task's observations and actions."""

    def __init__(self, env: NerdVectorEnv):
        robot = env.task.robot
        joints = list(robot.joint_names)
        if robot.name == "cartpole":
            self.matrix = np.eye(4)
            self.action_order = np.array([0])
        elif robot.name in ("ant", "anymal"):
            legs = LEGS.get(robot.name)
            theirs = joints if legs is None else [n for leg in legs for n in joints if n.startswith(leg + "_")]
            order = np.eye(len(joints))[[joints.index(name) for name in theirs]]
            tail = env.task.obs_size - 11 - 2 * len(joints)
            self.matrix = _block_diagonal(np.eye(1), QUAT, TURN, TURN, order, order, np.eye(tail))
            # Their action k drives joint theirs[k]; ours are in joint order.
            self.action_order = np.array([theirs.index(name) for name in joints])
        else:
            raise ValueError(f"no published layout for robot {robot.name!r}; valid: cartpole, ant, anymal")

    def observation(self, obs: Any) -> Any:
        """[..., obs_size] ours -> theirs, numpy or torch."""
        if isinstance(obs, torch.Tensor):
            return obs @ torch.as_tensor(self.matrix.T, dtype=obs.dtype, device=obs.device)
        return (obs @ self.matrix.T).astype(obs.dtype)

    def action(self, action: Any) -> Any:
        """[..., action_size] theirs -> ours, numpy or torch."""
        return action[..., self.action_order]


class ReferenceObservation(VectorWrapper):
    """A vector environment in the published layout; final observations too."""

    def __init__(self, env: VectorEnv):
        super().__init__(env)
        self.layout = ReferenceLayout(native(env))
        size = len(self.layout.matrix)
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self.layout.observation(obs), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(self.layout.action(actions))
        if "final_obs" in info:
            info["final_obs"] = self.layout.observation(info["final_obs"])
        return self.layout.observation(obs), reward, terminated, truncated, info


def in_layout(env: VectorEnv, layout: str) -> VectorEnv:
    """The environment as it is (native), or in the published layout (reference)."""
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; valid: {', '.join(LAYOUTS)}")
    return ReferenceObservation(env) if layout == "reference" else env


class SingleReferenceObservation(gymnasium.Wrapper):
    """The same for a single environment."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        found = env.unwrapped
        if not isinstance(found, NerdEnv):
            raise TypeError(f"{type(found).__name__} is not a nerd_gym environment")
        self.layout = ReferenceLayout(found.batch)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (len(self.layout.matrix),), np.float32)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return self.layout.observation(obs), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(self.layout.action(np.asarray(action)))
        return self.layout.observation(obs), reward, terminated, truncated, info


def _block_diagonal(*blocks: np.ndarray) -> np.ndarray:
    out = np.zeros(np.sum([b.shape for b in blocks], 0))
    row = column = 0
    for block in blocks:
        out[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return out
