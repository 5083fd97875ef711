"""PPO of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from nerd_gym.policies.policy import ACTIVATIONS, Policy
from nerd_gym.utils.optional import require
from nerd_gym.wrappers import Sb3VecEnv
from nerd_gym.wrappers.base import torch_env

from .trainer import Trainer

PPO = require("stable_baselines3", extra="sb3").PPO
VecNormalize = require("stable_baselines3.common.vec_env", extra="sb3").VecNormalize
BaseCallback = require("stable_baselines3.common.callbacks", extra="sb3").BaseCallback
MOMENTS = ("mean", "var", "count")


class Tell(BaseCallback):
    """Calls `after` between the update of one iteration and the rollout of the next, and at the end.

    An iteration is `every` rollouts, each with its update.
    """

    def __init__(self, after: Callable[[], None], every: int = 1):
        super().__init__()
        self._after, self._every, self._rollouts = after, every, 0

    def _on_rollout_start(self) -> None:
        if self._rollouts and self._rollouts % self._every == 0:
            self._after()
        self._rollouts += 1

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._after()


class Sb3Trainer(Trainer):
    """Config: the arguments of PPO, and of VecNormalize under ``normalize``."""

    def __init__(self, env: VectorEnv, config: dict[str, Any], folder: Path, seed: int, steps: int):
        config = deepcopy(config)
        name_classes(config)
        gamma = config.get("gamma", 0.99)
        self._normaliser = VecNormalize(Sb3VecEnv(env), gamma=gamma, **config.pop("normalize", {}))
        config["learning_rate"] = learning_rate(config["learning_rate"])
        device = torch_env(env).device
        policy = config.pop("policy", "MlpPolicy")
        self._model = PPO(
            policy, self._normaliser, seed=seed, device=device, tensorboard_log=str(folder / "sb3"), **config
        )
        self.batch = env.num_envs * self._model.n_steps

    def learn(self, iterations: int, after: Callable[[], None]) -> None:
        self._model.learn(iterations * self.batch, Tell(after), tb_log_name="run", reset_num_timesteps=False)

    def state(self) -> dict[str, Any]:
        model, scaler = self._model, self._normaliser
        return {
            "policy": model.policy.state_dict(),
            "optimizer": model.policy.optimizer.state_dict(),
            "counts": [model.num_timesteps, model._n_updates],
            "rollout": [torch.as_tensor(x.copy()) for x in (model._last_obs, model._last_episode_starts)],
            **scaler_state(scaler),
        }

    def load(self, state: dict[str, Any]) -> None:
        model, scaler = self._model, self._normaliser
        scaler.reset()  # the environment goes back to where it was; what is counted here is overwritten below
        model.policy.load_state_dict(state["policy"])
        model.policy.optimizer.load_state_dict(state["optimizer"])
        model.num_timesteps, model._n_updates = state["counts"]
        model._last_obs, model._last_episode_starts = (x.numpy() for x in state["rollout"])
        load_scaler(scaler, state)

    def policy(self, facts: dict[str, Any]) -> Policy:
        return Policy.from_sb3(self._model, facts=facts)


def scaler_state(scaler: Any) -> dict[str, Any]:
    """What a VecNormalize has learned."""
    returns = torch.as_tensor(scaler.returns.copy())
    return {"obs_rms": _moments(scaler.obs_rms), "ret_rms": _moments(scaler.ret_rms), "returns": returns}


def load_scaler(scaler: Any, state: dict[str, Any]) -> None:
    """Put it back."""
    scaler.returns = state["returns"].numpy()
    for name in ("obs_rms", "ret_rms"):
        for moment, value in zip(MOMENTS, state[name]):
            setattr(getattr(scaler, name), moment, value.numpy())


def _moments(scaler: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(getattr(scaler, moment), dtype=torch.float64).clone() for moment in MOMENTS]


def learning_rate(rate: float | str) -> float | Callable[[float], float]:
    """A number, or `lin_0.001`: from there to nothing over the run."""
    if isinstance(rate, str):
        first = float(rate.removeprefix("lin_"))
        return lambda left: left * first
    return rate


def name_classes(config: dict[str, Any]) -> None:
    """Put the class of an activation in the place of its name."""
    network = config.get("policy_kwargs", {})
    if isinstance(network.get("activation_fn"), str):
        name = network["activation_fn"]
        if name not in ACTIVATIONS:
            raise ValueError(f"unknown activation_fn {name!r}; valid: {', '.join(ACTIVATIONS)}")
        network["activation_fn"] = ACTIVATIONS[name]
