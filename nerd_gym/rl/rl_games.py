"""PPO of rl-games."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from nerd_gym.policies.policy import Policy
from nerd_gym.utils.optional import require
from nerd_gym.wrappers import RlGamesVecEnv

from .trainer import Trainer

Runner = require("rl_games.torch_runner", extra="rl-games").Runner
IsaacAlgoObserver = require("rl_games.common.algo_observer", extra="rl-games").IsaacAlgoObserver


class Observer(IsaacAlgoObserver):
    """Calls `after` when an epoch has been written down."""

    after: Callable[[], None]

    def after_print_stats(self, frame: int, epoch_num: int, total_time: float) -> None:
        super().after_print_stats(frame, epoch_num, total_time)
        self.after()


class RlGamesTrainer(Trainer):
    """Config: what rl-games reads from a yaml, ``params`` with algo, model, network and config."""

    def __init__(self, env: VectorEnv, config: dict[str, Any], folder: Path, seed: int, steps: int):
        adapter = RlGamesVecEnv(env)
        adapter.seed(seed)
        params = deepcopy(config["params"])
        device = str(adapter.native.device)
        params["seed"] = seed
        self.batch = env.num_envs * params["config"]["horizon_length"]
        params["config"] |= {
            "max_epochs": self.iterations(steps, self.batch),
            "name": "policy",
            "env_name": "nerd",
            "train_dir": str(folder),
            "full_experiment_name": "rl_games",
            "device": device,
            "device_name": device,
            "num_actors": env.num_envs,
            "vec_env": adapter,
            "env_info": adapter.get_env_info(),
            "print_stats": False,
            "save_best_after": 2**31,
            "save_frequency": 0,
        }
        self._observer = Observer()
        runner = Runner(self._observer)
        runner.load_config(params)
        self._agent = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
        self._resumed: dict[str, Any] | None = None
        self._reset, self._agent.env_reset = self._agent.env_reset, self._env_reset

    def _env_reset(self) -> Any:
        """rl-games clears what it remembers of the rollout just before this."""
        obs = self._reset()
        if self._resumed is not None:
            self._agent.dones.copy_(self._resumed["dones"])
            self._agent.rnn_states = self._resumed["rnn_states"]
            self._resumed = None
        return obs

    def learn(self, iterations: int, after: Callable[[], None]) -> None:
        self._observer.after = after
        self._agent.max_epochs = self._agent.epoch_num + iterations
        self._agent.train()

    def state(self) -> dict[str, Any]:
        agent = self._agent
        state = agent.get_full_state_weights()
        state["last_mean_rewards"] = float(state["last_mean_rewards"])
        rollout = {"dones": agent.dones.clone(), "rnn_states": agent.rnn_states, "last_lr": agent.last_lr}
        return {"agent": state, **rollout}

    def load(self, state: dict[str, Any]) -> None:
        self._agent.set_full_state_weights(state["agent"])
        self._agent.last_lr = state["last_lr"]
        self._resumed = state

    def policy(self, facts: dict[str, Any]) -> Policy:
        return Policy.from_rl_games(self._agent, facts=facts)
