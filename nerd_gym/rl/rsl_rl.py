"""PPO of rsl_rl."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from nerd_gym.policies.policy import Policy
from nerd_gym.utils.optional import require
from nerd_gym.wrappers import RslRlVecEnv

from .trainer import Trainer

OnPolicyRunner = require("rsl_rl.runners", extra="rsl-rl").OnPolicyRunner


class RslRlTrainer(Trainer):
    """Config: the dict that rsl_rl's runner takes."""

    def __init__(self, env: VectorEnv, config: dict[str, Any], folder: Path, seed: int, steps: int):
        adapter = RslRlVecEnv(env, seed=seed)
        self._runner = OnPolicyRunner(adapter, deepcopy(config), str(folder / "rsl_rl"), str(adapter.device))
        self.batch = env.num_envs * config["num_steps_per_env"]

    def learn(self, iterations: int, after: Callable[[], None]) -> None:
        log = self._runner.logger.log

        def log_and_tell(**figures: Any) -> None:
            log(**figures)
            after()

        self._runner.logger.log = log_and_tell
        self._runner.learn(iterations)

    def state(self) -> dict[str, Any]:
        runner = self._runner
        rate = float(runner.alg.learning_rate)
        return {"alg": runner.alg.save(), "rate": rate, "iteration": runner.current_learning_iteration}

    def load(self, state: dict[str, Any]) -> None:
        runner = self._runner
        runner.alg.load(state["alg"], None, True)
        runner.alg.learning_rate = state["rate"]
        runner.current_learning_iteration = state["iteration"] + 1

    def policy(self, facts: dict[str, Any]) -> Policy:
        return Policy.from_rsl_rl(self._runner, facts)
