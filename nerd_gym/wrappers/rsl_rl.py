"""NerdVectorEnv as rsl_rl takes it: observations in a TensorDict."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from nerd_gym.utils.optional import require

from .base import StepMeans, mean_names, time_outs, torch_env

VecEnv = require("rsl_rl.env", extra="rsl-rl").VecEnv
if TYPE_CHECKING:
    from tensordict import TensorDict
else:
    TensorDict = require("tensordict", extra="rsl-rl").TensorDict

NO_HORIZON = 2**31 - 1


class RslRlVecEnv(VecEnv):
    """A batch for rsl_rl's runners, with one group of observations, ``policy``.

    ``extras`` holds ``time_outs`` [N], from which rsl_rl bootstraps (with the value of the state before the step: it
    never sees the final observation), ``diverged`` [N], and ``log``, means that its logger writes. rsl_rl never calls
    reset, so that the first one, with `seed`, is here.
    """

    def __init__(self, env: VectorEnv, seed: int | None = None):
        self.env = env
        self.native = native = torch_env(env)
        self.num_envs = env.num_envs
        self.num_actions = native.task.action_size
        self.max_episode_length = NO_HORIZON if native.horizon is None else native.horizon
        self.device = native.device
        self.cfg = {"robot": native.task.robot.name, "backend": native.backend.name, **asdict(native.task.config)}
        self._means = mean_names(native, "/")
        self._outside = torch.inference_mode(False)
        self._batch = torch.Size([self.num_envs])
        self._obs, _ = env.reset(seed=seed)

    @property
    def episode_length_buf(self) -> Tensor:
        """Steps [N] of the episodes under way; the runner sets it to start them at random ages."""
        return self.native.episode_steps

    @episode_length_buf.setter
    def episode_length_buf(self, steps: Tensor) -> None:
        self.native.episode_steps.copy_(steps)

    def get_observations(self) -> TensorDict:
        return TensorDict({"policy": self._obs}, batch_size=self._batch)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        # The runner calls this in inference mode, whose tensors nothing outside it may write to. The environment
        # outlives the runner, so that it must keep none.
        with self._outside:
            self._obs, reward, terminated, truncated, info = self.env.step(actions)
        extras = {
            "time_outs": time_outs(terminated, truncated),
            "diverged": info["diverged"],
            "log": StepMeans(self._means, info),
        }
        return self.get_observations(), reward, info["_final_obs"], extras

    def close(self) -> None:
        self.env.close()
