"""Rollouts under random actions, and their digest, which two processes can compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

from nerd_gym.envs.vector import NerdVectorEnv

from .states import make_vec


def rollout(
    env: NerdVectorEnv,
    steps: int,
    seed: int = 0,
    action_seed: int = 0,
    change: Callable[[int, Tensor], Tensor] | None = None,
) -> list[Tensor]:
    """All that came out of `steps` steps; `change` may change the actions of a step."""
    generator = torch.Generator().manual_seed(action_seed)
    obs, _ = env.reset(seed=seed)
    out = [obs.clone()]
    for k in range(steps):
        action = 2 * torch.rand(env.action_space.shape, generator=generator) - 1
        if change is not None:
            action = change(k, action)
        obs, reward, terminated, truncated, info = env.step(action)
        out += [obs.clone(), reward.clone(), terminated.clone(), truncated.clone(), info["final_obs"].clone()]
    return out


def digest(env_id: str, backend: str) -> str:
    """Of 200 steps of 64 environments, over autoresets; of 6 where a step takes half a second of motion."""
    env = make_vec(env_id, 64, backend=backend, max_episode_steps=90)
    out = rollout(env, 6 if env.task.waits else 200)
    return hashlib.sha256(b"".join(x.numpy().tobytes() for x in out)).hexdigest()
