"""What a library must do for us."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from nerd_gym.policies.policy import Policy

# Name on the command line: module of this package, class, distribution.
LIBRARIES = {
    "rl-games": ("rl_games", "RlGamesTrainer", "rl-games"),
    "sb3": ("sb3", "Sb3Trainer", "stable-baselines3"),
    "rsl-rl": ("rsl_rl", "RslRlTrainer", "rsl-rl-lib"),
    "skrl": ("skrl", "SkrlTrainer", "skrl"),
}


class Trainer(ABC):
    """A library's PPO on one environment.

    Args:
        env: a batch that returns torch tensors.
        config: in the library's own format.
        folder: for the library's log.
        seed: of the environment and of everything random.
        steps: env-steps of the whole run, for schedules over it.
    """

    batch: int
    """Env-steps of one iteration."""

    @abstractmethod
    def __init__(self, env: VectorEnv, config: dict[str, Any], folder: Path, seed: int, steps: int): ...

    @staticmethod
    def iterations(steps: int, batch: int) -> int:
        """How many iterations come nearest to so many steps."""
        return max(round(steps / batch), 1)

    @abstractmethod
    def learn(self, iterations: int, after: Callable[[], None]) -> None:
        """So many iterations of rollout and update; `after` is called after each."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Tensors and numbers from which another trainer of the same config goes on, between two iterations."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Take over a state, before :meth:`learn`."""

    @abstractmethod
    def policy(self, facts: dict[str, Any]) -> Policy:
        """The actor as it is now."""


def trainer_class(library: str) -> type[Trainer]:
    """The trainer of a library, imported on first use."""
    check_library(library)
    module, name, _ = LIBRARIES[library]
    return getattr(import_module(f"{__package__}.{module}"), name)


def check_library(library: str) -> None:
    """An error that names the valid ones for an unknown library."""
    if library not in LIBRARIES:
        raise ValueError(f"unknown library {library!r}; valid: {', '.join(LIBRARIES)}")
