"""PPO of skrl."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from nerd_gym.policies.policy import Policy
from nerd_gym.utils.optional import require
from nerd_gym.wrappers import FinalObservations, SkrlEnv

from .trainer import Trainer

PPO = require("skrl.agents.torch.ppo", extra="skrl").PPO
Runner = require("skrl.utils.runner.torch", extra="skrl").Runner


class TellingPPO(FinalObservations, PPO):
    """Bootstraps from true final observations, and calls `after` when it has learned."""

    after: Callable[[], None]

    def post_interaction(self, *, timestep: int, timesteps: int) -> None:
        super().post_interaction(timestep=timestep, timesteps=timesteps)
        if self._rollout % self.cfg.rollouts == 0:
            self.after()


class TellingRunner(Runner):
    """skrl's runner with that PPO."""

    def _component(self, name: str) -> type:
        return TellingPPO if name.lower() == "ppo" else super()._component(name)


class SkrlTrainer(Trainer):
    """Config: what skrl's runner reads from a yaml, with models, memory, agent and trainer."""

    def __init__(self, env: VectorEnv, config: dict[str, Any], folder: Path, seed: int, steps: int):
        config = deepcopy(config)
        config["seed"] = seed
        config["agent"]["experiment"] = {
            "directory": str(folder),
            "experiment_name": "skrl",
            "checkpoint_interval": 0,
            "write_interval": config["agent"]["rollouts"],
        } | config["agent"].get("experiment", {})
        config["trainer"] |= {"timesteps": 0, "disable_progressbar": True, "close_environment_at_exit": False}
        runner = TellingRunner(SkrlEnv(env, seed=seed), config)
        self._agent, self._trainer = runner.agent, runner.trainer
        self.batch = env.num_envs * config["agent"]["rollouts"]

    def learn(self, iterations: int, after: Callable[[], None]) -> None:
        self._agent.after = after
        self._trainer.cfg.timesteps = iterations * self._agent.cfg.rollouts
        self._trainer.train()

    def state(self) -> dict[str, Any]:
        return {name: deepcopy(module.state_dict()) for name, module in self._modules().items()}

    def load(self, state: dict[str, Any]) -> None:
        for name, module in self._modules().items():
            module.load_state_dict(state[name])

    def _modules(self) -> dict[str, Any]:
        schedule = {"scheduler": self._agent.scheduler} if self._agent.scheduler else {}
        return {**self._agent.checkpoint_modules, **schedule}

    def policy(self, facts: dict[str, Any]) -> Policy:
        return Policy.from_skrl(self._agent, facts)
