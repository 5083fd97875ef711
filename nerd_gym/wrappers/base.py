"""What the adapters to RL libraries share."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from ..envs.vector import NerdVectorEnv


def torch_env(env: VectorEnv) -> NerdVectorEnv:
    """The native environment under `env`, which must return torch tensors and reset by itself."""
    native = env.unwrapped
    if not isinstance(native, NerdVectorEnv):
        raise TypeError(f"{type(native).__name__} is not a nerd_gym vector environment; gymnasium.make_vec makes one")
    if native.array != "torch":
        raise ValueError(f"this environment has array={native.array!r}; RL libraries need array='torch'")
    if native.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise ValueError("this environment has autoreset_mode DISABLED; RL libraries need SAME_STEP")
    return native


def time_outs(terminated: Tensor, truncated: Tensor) -> Tensor:
    """[N] bool: episodes that were cut short, whose value goes on. One that failed on its last step is none."""
    return truncated & ~terminated


def step_means(native: NerdVectorEnv, info: dict[str, Any]) -> dict[str, Tensor]:
    """Means over the batch, for a library's log: each reward term, and how many rows diverged."""
    means = {f"reward/{name}": mean for name, mean in zip(native.reward_terms, info["reward_terms"].mean(0))}
    return means | {"step/diverged": info["diverged"].float().mean()}
