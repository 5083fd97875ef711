"""NerdVectorEnv as Stable-Baselines3 takes it: numpy at the border, one dict of info per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from torch import Tensor

from nerd_gym.utils.optional import require

from .base import time_outs, torch_env

VecEnv = require("stable_baselines3.common.vec_env", extra="sb3").VecEnv


class Sb3VecEnv(VecEnv):
    """A whole batch as one VecEnv, without a process or a Python object per row.

    The info of a finished row holds ``terminal_observation``, the true last observation, ``TimeLimit.truncated``,
    true if the episode was cut short and has not failed, and ``diverged``. The info of other rows is empty. The rows
    share one environment: ``set_attr`` and ``env_method`` reach all of them at once, whatever the indices.
    """

    def __init__(self, env: VectorEnv):
        self.env = env  # before super, which asks for render_mode
        torch_env(env)
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> np.ndarray:
        """Start every row anew, from the seeds of :meth:`seed` if it was called since the last reset."""
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        obs, _ = self.env.reset(seed=seeds)
        self._reset_seeds()
        self._reset_options()
        return _numpy(obs)

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, reward, terminated, truncated, info = self.env.step(self._actions)
        done = _numpy(terminated | truncated)
        # New dicts on every step: wrappers write into them.
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if done.any():
            final, diverged = _numpy(info["final_obs"]), _numpy(info["diverged"])
            cut = _numpy(time_outs(terminated, truncated))
            for row in done.nonzero()[0]:
                infos[row] = {
                    "terminal_observation": final[row],
                    "TimeLimit.truncated": bool(cut[row]),
                    "diverged": bool(diverged[row]),
                }
        return _numpy(obs), _numpy(reward), done, infos

    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[Any] | None:
        return self.env.render()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return self._for_each(getattr(self._owner(attr_name), attr_name), indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self._owner(attr_name), attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return self._for_each(getattr(self._owner(method_name), method_name)(*args, **kwargs), indices)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return self._for_each(any(isinstance(layer, wrapper_class) for layer in self._layers()), indices)

    def _layers(self) -> Iterator[VectorEnv]:
        layer = self.env
        yield layer
        while isinstance(layer, VectorWrapper):
            layer = layer.env
            yield layer

    def _owner(self, name: str) -> VectorEnv:
        return next((layer for layer in self._layers() if hasattr(layer, name)), self.env.unwrapped)

    def _for_each(self, value: Any, indices: Any) -> list[Any]:
        return [value for _ in self._get_indices(indices)]


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy()
