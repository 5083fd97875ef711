"""Environments as measurements need them: in torch, and reset by nobody on the way."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from .single import NerdEnv
from .vector import NerdVectorEnv

# Arguments of a batch that are neither the task's nor the backend's.
OF_THE_BATCH = ("backend", "physics", "device", "array", "autoreset_mode", "max_episode_steps", "render_mode")


def endless_env(env_id: str, num_envs: int, backend: str, **options: Any) -> NerdVectorEnv:
    """A batch in torch that knows no horizon."""
    return manual_reset_env(env_id, num_envs, backend, max_episode_steps=None, **options)


def manual_reset_env(env_id: str, num_envs: int, backend: str | None, **options: Any) -> NerdVectorEnv:
    """A batch in torch that nobody resets on the way; None for the default backend."""
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


def native_of(env: gymnasium.Env | VectorEnv) -> tuple[NerdVectorEnv, int | None]:
    """The batch under a single environment or a vector environment, and after how many steps an episode is cut."""
    found = env.unwrapped
    if isinstance(found, NerdEnv):  # its horizon is gymnasium's TimeLimit
        return found.batch, env.spec.max_episode_steps if env.spec else None
    if not isinstance(env, VectorEnv):
        raise TypeError(f"{type(found).__name__} is not an environment of nerd_gym; gymnasium.make makes one")
    return native(env), native(env).horizon


def made_with(env: NerdVectorEnv) -> tuple[str, dict[str, Any]]:
    """The id that a batch was made of, and its options of task and backend."""
    env_id, _, given = _arguments(env)
    return env_id, {name: value for name, value in given.items() if name not in OF_THE_BATCH}


def resized(env: NerdVectorEnv, num_envs: int, horizon: int | None) -> NerdVectorEnv:
    """A batch of another size that was made with the same options, in torch, and that nobody resets on the way."""
    env_id, _, given = _arguments(env)
    own = {
        "array": "torch",
        "autoreset_mode": AutoresetMode.DISABLED,
        "render_mode": None,
        "max_episode_steps": horizon,
    }
    return NerdVectorEnv(env_id, num_envs, **given | own)


def _arguments(env: NerdVectorEnv) -> tuple[str, int, dict[str, Any]]:
    made = env.__getstate__()  # gymnasium's EzPickle
    return *made["_ezpickle_args"], made["_ezpickle_kwargs"]


def select_rows(env: NerdVectorEnv, snapshot: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """A snapshot of `env` as one for a batch of len(rows): its row i is row rows[i] of this one."""
    own = {name: value if value is None else value[rows] for name, value in snapshot.items() if name != "backend"}
    return own | {"backend": env.backend.select_rows(snapshot["backend"], rows)}
