"""Under an adapter: counts episodes, and lets a run go on where it was stopped."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from gymnasium.vector import VectorEnv, VectorWrapper
from torch import Tensor

from nerd_gym.envs.factory import native

WINDOW = 200  # finished episodes that the mean return is taken over, at least


class Monitor(VectorWrapper):
    """Sums up returns on the environment's device; :meth:`read` is the only copy to the host.

    Args:
        env: the environment, returning torch tensors.
        random_ages: let the first episodes start at a random age, so that they do not all end together. They are cut
            short and do not count.
        state: of :meth:`state`; the first reset then goes back to it.
    """

    def __init__(self, env: VectorEnv, random_ages: bool, state: dict[str, Any] | None = None):
        super().__init__(env)
        self._native = native(env)
        n, device = env.num_envs, self._native.device
        self._random_ages, self._resumed = random_ages, state
        self._return = torch.zeros(n, device=device)
        self._length = torch.zeros(n, device=device)
        self._whole = torch.zeros(n, dtype=torch.bool, device=device)
        self._sums = torch.zeros(3, device=device)  # return, length and number of finished episodes
        self._recent: deque[tuple[float, float, float]] = deque()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Tensor, dict[str, Any]]:
        if self._resumed is not None:
            state, self._resumed = self._resumed, None
            for name in ("return", "length", "whole", "sums"):
                getattr(self, f"_{name}").copy_(state[name])
            self._recent = deque(map(tuple, state["recent"]))
            return self._native.restore(state["env"]), {}
        obs, info = self.env.reset(seed=seed, options=options)
        self._return.zero_()
        self._length.zero_()
        self._whole.fill_(True)
        horizon = self._native.horizon
        if self._random_ages and horizon is not None:
            ages = torch.randint(horizon, (self.num_envs,)).to(self._native.device)
            self._native.episode_steps.copy_(ages)
            self._whole.copy_(ages == 0)
        return obs, info

    def step(self, actions: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        done = terminated | truncated
        self._return += reward
        self._length += 1
        counts = (done & self._whole).float()
        self._sums += torch.stack([self._return @ counts, self._length @ counts, counts.sum()])
        self._return.masked_fill_(done, 0)
        self._length.masked_fill_(done, 0)
        self._whole |= done
        return obs, reward, terminated, truncated, info

    def read(self) -> tuple[float, float, int]:
        """Mean return and length of the last finished episodes, NaN if there are none, and how many they are."""
        sums = tuple(self._sums.tolist())
        self._sums.zero_()
        if sums[2]:
            self._recent.append(sums)
        while len(self._recent) > 1 and sum(s[2] for s in self._recent) - self._recent[0][2] >= WINDOW:
            self._recent.popleft()
        returns, lengths, count = (sum(column) for column in zip(*self._recent)) if self._recent else (0.0, 0.0, 0)
        return (returns / count, lengths / count, int(count)) if count else (float("nan"), float("nan"), 0)

    def state(self) -> dict[str, Any]:
        """Everything that the run needs to go on from here."""
        tensors = {name: getattr(self, f"_{name}").clone() for name in ("return", "length", "whole", "sums")}
        return {**tensors, "recent": list(self._recent), "env": self._native.snapshot()}
