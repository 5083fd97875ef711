"""Environments as measurements need them: in torch, and reset by nobody on the way."""

from __future__ import annotations

from typing import Any

import gymnasium

from .vector import NerdVectorEnv


def endless_env(env_id: str, num_envs: int, backend: str, **options: Any) -> NerdVectorEnv:
    """A batch in torch that knows no horizon."""
    return manual_reset_env(env_id, num_envs, backend, max_episode_steps=None, **options)


def manual_reset_env(env_id: str, num_envs: int, backend: str, **options: Any) -> NerdVectorEnv:
    """A batch in torch that nobody resets on the way."""
    return gymnasium.make_vec(
        env_id, num_envs=num_envs, backend=backend, array="torch", autoreset_mode="Disabled", **options
    ).unwrapped
