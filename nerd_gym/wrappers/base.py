"""What the adapters to RL libraries share."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from nerd_gym.envs.factory import native
from nerd_gym.envs.vector import NerdVectorEnv


def torch_env(env: VectorEnv) -> NerdVectorEnv:
    """The native environment under `env`, which must return torch tensors and reset by itself."""
    found = native(env)
    if found.array != "torch":
        raise ValueError(f"this environment has array={found.array!r}; RL libraries need array='torch'")
    if found.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise ValueError(f"this environment has autoreset_mode {found.autoreset_mode.name}; this needs SAME_STEP")
    return found


def time_outs(terminated: Tensor, truncated: Tensor) -> Tensor:
    """[N] bool: episodes that were cut short, whose value goes on. One that failed on its last step is none."""
    return truncated > terminated


def mean_names(native: NerdVectorEnv, prefix: str = "") -> tuple[str, ...]:
    """How a log calls the means of a step."""
    return (*(f"{prefix}reward/{name}" for name in native.reward_terms), f"{prefix}step/diverged")


class StepMeans(MutableMapping):
    """Means over the batch, for a library's log: each reward term, and how many rows diverged.

    They are worked out when somebody asks: most steps are never logged, and small tensors cost as much as large ones.
    """

    def __init__(self, names: tuple[str, ...], info: dict[str, Any]):
        self._names, self._terms, self._diverged = names, info["reward_terms"], info["diverged"]
        self._known: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._known:
            column = self._names.index(name)
            values = self._terms[:, column] if column < self._terms.shape[1] else self._diverged.float()
            self._known[name] = values.mean()
        return self._known[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._known[name] = value

    def __delitem__(self, name: str) -> None:
        raise TypeError("means of a step cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
