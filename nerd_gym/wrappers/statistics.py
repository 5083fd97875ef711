"""Return and length of every finished episode, in the array type of the environment."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from nerd_gym.envs.factory import native


class RecordEpisodeStatistics(VectorWrapper):
    """Adds ``info["episode"]`` = {"r": return [N], "l": length [N]} with the mask ``info["_episode"]``.

    Gymnasium's wrapper of this name takes numpy alone; this one keeps torch on its device.
    """

    def __init__(self, env: VectorEnv):
        super().__init__(env)
        self._native = found = native(env)
        self._out = found._out
        self._mode = found.autoreset_mode
        self._ended = torch.zeros(found.num_envs, dtype=torch.bool, device=found.device)
        self._return = torch.zeros(found.num_envs, device=found.device)
        self._length = torch.zeros(found.num_envs, dtype=torch.int64, device=found.device)

    @property
    def running(self) -> dict[str, torch.Tensor]:
        """Return and length [N] of the episodes under way."""
        return {"r": self._return, "l": self._length}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        mask = self._native._reset_mask(options)
        self._return.masked_fill_(mask, 0)
        self._length.masked_fill_(mask, 0)
        self._ended = self._ended & ~mask
        return obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self._return += torch.as_tensor(reward, device=self._return.device)
        self._length += 1
        if self._mode is AutoresetMode.NEXT_STEP:  # the step that resets a row is of no episode
            self._return.masked_fill_(self._ended, 0)
            self._length.masked_fill_(self._ended, 0)
        done = torch.as_tensor(terminated | truncated, device=self._return.device)
        info["episode"] = self._out({"r": self._return.clone(), "l": self._length.clone()})
        info["_episode"] = self._out(done)
        if self._mode is AutoresetMode.SAME_STEP:
            self._return.masked_fill_(done, 0)
            self._length.masked_fill_(done, 0)
        elif self._mode is AutoresetMode.NEXT_STEP:
            self._ended = done
        return obs, reward, terminated, truncated, info
