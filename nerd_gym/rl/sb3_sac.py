"""SAC of Stable-Baselines3."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from nerd_gym.policies.policy import Policy
from nerd_gym.utils.optional import require
from nerd_gym.wrappers import Sb3VecEnv
from nerd_gym.wrappers.base import torch_env

from .sb3 import Tell, VecNormalize, learning_rate, load_scaler, name_classes, scaler_state
from .trainer import Trainer

SAC = require("stable_baselines3", extra="sb3").SAC
LEAST_BATCH = 1000  # env-steps between two rows of the curve; SAC updates after every few
BUFFER = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class Sb3SacTrainer(Trainer):
    """Config: the arguments of SAC, and of VecNormalize under ``normalize``; without it nothing is normalised.

    The replay buffer holds the true last observation of an episode and, of an episode that was cut short, that it has
    not failed: Sb3VecEnv tells both.
    """

    def __init__(self, env: VectorEnv, config: dict[str, Any], folder: Path, seed: int, steps: int):
        config = deepcopy(config)
        name_classes(config)
        self._vec: Any = Sb3VecEnv(env)
        scaling = config.pop("normalize", None)
        if scaling is not None:
            self._vec = VecNormalize(self._vec, gamma=config.get("gamma", 0.99), **scaling)
        if "learning_rate" in config:
            config["learning_rate"] = learning_rate(config["learning_rate"])
        frequency = config.get("train_freq", 1)
        if type(frequency) is not int or frequency < 1:
            raise ValueError(f"train_freq is {frequency!r}; valid: a count of steps of the batch")
        device, policy = torch_env(env).device, config.pop("policy", "MlpPolicy")
        self._model = SAC(policy, self._vec, seed=seed, device=device, tensorboard_log=str(folder / "sb3"), **config)
        rollout = env.num_envs * frequency
        self._every = -(-LEAST_BATCH // rollout)
        self.batch = rollout * self._every

    def learn(self, iterations: int, after: Callable[[], None]) -> None:
        tell = Tell(after, self._every)
        self._model.learn(iterations * self.batch, tell, tb_log_name="run", reset_num_timesteps=False)

    def state(self) -> dict[str, Any]:
        model = self._model
        last = [model._last_obs, model._last_episode_starts, model._last_original_obs]
        return {
            "policy": model.policy.state_dict(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers().items()},
            "entropy": None if model.log_ent_coef is None else model.log_ent_coef.detach().clone(),
            "counts": [model.num_timesteps, model._n_updates, model._episode_num],
            "rollout": [None if x is None else torch.as_tensor(x.copy()) for x in last],
            "buffer": self._buffer(),
            # Of the random actions before it learns; its numbers are longer than torch keeps.
            "actions": json.dumps(model.action_space.np_random.bit_generator.state),
            **(scaler_state(self._vec) if isinstance(self._vec, VecNormalize) else {}),
        }

    def load(self, state: dict[str, Any]) -> None:
        model, buffer = self._model, self._model.replay_buffer
        self._vec.reset()  # the environment goes back to where it was; what is counted here is overwritten below
        model.policy.load_state_dict(state["policy"])
        for name, optimizer in self._optimizers().items():
            optimizer.load_state_dict(state["optimizers"][name])
        if model.log_ent_coef is not None:
            model.log_ent_coef.data.copy_(state["entropy"])
        model.num_timesteps, model._n_updates, model._episode_num = state["counts"]
        last = [None if x is None else x.numpy() for x in state["rollout"]]
        model._last_obs, model._last_episode_starts, model._last_original_obs = last
        filled = state["buffer"]
        for name, rows in filled["rows"].items():
            getattr(buffer, name)[: len(rows)] = rows.numpy()
        buffer.pos, buffer.full = filled["pos"], filled["full"]
        model.action_space.np_random.bit_generator.state = json.loads(state["actions"])
        if isinstance(self._vec, VecNormalize):
            load_scaler(self._vec, state)

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        model = self._model
        entropy = {} if model.ent_coef_optimizer is None else {"entropy": model.ent_coef_optimizer}
        return {"actor": model.actor.optimizer, "critic": model.critic.optimizer, **entropy}

    def _buffer(self) -> dict[str, Any]:
        """What the replay buffer holds so far, as tensors."""
        buffer = self._model.replay_buffer
        count = buffer.buffer_size if buffer.full else buffer.pos
        kept = {name: getattr(buffer, name, None) for name in BUFFER}
        rows = {name: torch.from_numpy(x[:count]) for name, x in kept.items() if isinstance(x, np.ndarray)}
        return {"rows": rows, "pos": buffer.pos, "full": buffer.full}

    def policy(self, facts: dict[str, Any]) -> Policy:
        return Policy.from_sb3(self._model, facts=facts)
