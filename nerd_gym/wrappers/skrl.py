"""NerdVectorEnv as skrl takes it: torch columns without a copy."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv
from torch import Tensor

from nerd_gym.utils.optional import require

from .base import StepMeans, mean_names, time_outs, torch_env

Wrapper = require("skrl.envs.wrappers.torch", extra="skrl").Wrapper


class SkrlEnv(Wrapper):
    """A batch for skrl's trainers; skrl's own wrapper would take actions and results through numpy.

    Agents need ``time_limit_bootstrap=True``; otherwise they run on from an episode that was cut short into the next.
    ``truncated`` leaves out rows that failed on their last step, which skrl would bootstrap. ``infos["log"]`` holds
    means that a trainer with ``environment_info="log"`` tracks.
    """

    def __init__(self, env: VectorEnv, seed: int | None = None):
        super().__init__(env)
        self._means = mean_names(torch_env(env))
        self._seed = seed

    @property
    def observation_space(self) -> gymnasium.Space:
        """Of one row."""
        return self._env.single_observation_space

    @property
    def action_space(self) -> gymnasium.Space:
        """Of one row."""
        return self._env.single_action_space

    def reset(self) -> tuple[Tensor, dict[str, Any]]:
        obs, info = self._env.reset(seed=self._seed)
        self._seed = None
        return obs, info

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self._env.step(actions)
        infos = info | {"log": StepMeans(self._means, info)}
        cut = time_outs(terminated, truncated)
        return obs, reward.unsqueeze(1), terminated.unsqueeze(1), cut.unsqueeze(1), infos

    def state(self) -> None:
        """There is no state beside the observation."""
        return None

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing without a render_mode: trainers ask for a frame of every step unless they are headless."""
        return None if self._env.render_mode is None else self._env.render()

    def close(self) -> None:
        self._env.close()


class FinalObservations:
    """Put before an agent's class, it lets the agent see where a step led, not where the next episode starts.

        class TruePPO(FinalObservations, PPO): ...

    skrl gives agents the observation after the reset as the next one, and takes its value for that of an episode
    that was cut short. For one agent that has all rows of a :class:`SkrlEnv`.
    """

    def record_transition(self, *, next_observations: Tensor, infos: dict[str, Any], **transition: Any) -> None:
        agent: Any = super()  # the class that this one is put before
        agent.record_transition(next_observations=infos["final_obs"], infos=infos, **transition)
