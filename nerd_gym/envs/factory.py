"""Environments as measurements need them: in torch, and reset by nobody on the way."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from .vector import NerdVectorEnv


def endless_env(env_id: str, num_envs: int, backend: str, **options: Any) -> NerdVectorEnv:
    """A batch in torch that knows no horizon."""
    return manual_reset_env(env_id, num_envs, backend, max_episode_steps=None, **options)


def manual_reset_env(env_id: str, num_envs: int, backend: str, **options: Any) -> NerdVectorEnv:
    """A batch in torch that nobody resets on the way."""
    return native(
        gymnasium.make_vec(
            env_id, num_envs=num_envs, backend=backend, array="torch", autoreset_mode="Disabled", **options
        )
    )


def native(env: VectorEnv) -> NerdVectorEnv:
    """The environment of this suite under `env`, whatever is wrapped around it."""
    found = env.unwrapped
    if not isinstance(found, NerdVectorEnv):
        raise TypeError(f"{type(found).__name__} is not a nerd_gym vector environment; gymnasium.make_vec makes one")
    return found
