"""Many action sequences from one start, carried out as one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nerd_gym.envs.task import State
from nerd_gym.envs.vector import NerdVectorEnv

Objective = Callable[[State], Tensor]  # of a candidate's last state, [C]; larger is better


class Outcome(NamedTuple):
    """What became of C candidates."""

    value: Tensor  # [C] return, or the objective of the last state
    steps: Tensor  # [C] actions until the episode ended, or all
    terminated: Tensor  # [C] bool
    diverged: Tensor  # [C] bool: the simulation came apart
    trust: Tensor | None  # [C] least trust in a learned model on the way, if the backend tells it

    @property
    def score(self) -> Tensor:
        """[C] the value, by which candidates are ranked; one that diverged, or has no finite value, is last."""
        return torch.where(self.diverged | ~self.value.isfinite(), -torch.inf, self.value)


class Rollouts:
    """Carries out batches of C action sequences, each from the same start.

    Args:
        env: a batch of C rows in torch without autoreset.
        start: a snapshot of it, whose rows are all alike.
        objective: None for the return.
    """

    def __init__(self, env: NerdVectorEnv, start: dict[str, Any], objective: Objective | None = None):
        self.env, self._start, self._objective = env, start, objective
        self.env_steps = 0  # of all rows together, so far

    @torch.no_grad()
    def __call__(self, actions: Tensor) -> Outcome:
        """[T, C, A] -> what became of each; an episode that ends ends its candidate there."""
        env = self.env
        env.restore(self._start)
        running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
        terminated, diverged = torch.zeros_like(running), torch.zeros_like(running)
        value, steps = torch.zeros(env.num_envs, device=env.device), torch.zeros_like(running, dtype=torch.int64)
        trust: Tensor | None = None
        for t, action in enumerate(actions.to(env.device).unbind(0)):
            _, reward, failed, cut, info = env.step(action)
            self.env_steps += env.num_envs
            steps += running
            terminated |= running & failed
            diverged |= running & info["diverged"]
            if "model_trust" in info:
                least = torch.ones_like(value) if trust is None else trust
                trust = torch.where(running, torch.minimum(least, info["model_trust"]), least)
            ends = running & (failed | cut)
            if self._objective is None:
                value = value + torch.where(running, reward, 0.0)
            elif env.backend.may_hold(last := running if t + 1 == len(actions) else ends):
                value = torch.where(last, self._of_state(self._objective), value)
            running = running & ~ends
            if not env.backend.may_hold(running):
                break
        return Outcome(value, steps, terminated, diverged, trust)

    def _of_state(self, objective: Objective) -> Tensor:
        value = objective(self.env.state)
        if not isinstance(value, Tensor) or value.shape != (self.env.num_envs,):
            given = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"the objective gives {given}; it must give a tensor of shape ({self.env.num_envs},)")
        return value.to(self.env.device, torch.float32)
