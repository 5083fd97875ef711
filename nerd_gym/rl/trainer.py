"""What a library must do for us."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from nerd_gym.policies.policy import Policy

# Name on the command line: distribution, and for each of its algorithms module of this package and class.
LIBRARIES = {
    "rl-games": ("rl-games", {"ppo": ("rl_games", "RlGamesTrainer")}),
    "sb3": ("stable-baselines3", {"ppo": ("sb3", "Sb3Trainer"), "sac": ("sb3_sac", "Sb3SacTrainer")}),
    "rsl-rl": ("rsl-rl-lib", {"ppo": ("rsl_rl", "RslRlTrainer")}),
    "skrl": ("skrl", {"ppo": ("skrl", "SkrlTrainer")}),
}
DEFAULT_ALGO = "ppo"


class Trainer(ABC):
    """An algorithm of a library on one environment.

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


def trainer_class(library: str, algo: str = DEFAULT_ALGO) -> type[Trainer]:
    """The trainer of a library's algorithm, imported on first use."""
    check_library(library, algo)
    module, name = LIBRARIES[library][1][algo]
    return getattr(import_module(f"{__package__}.{module}"), name)


def check_library(library: str, algo: str = DEFAULT_ALGO) -> None:
    """An error that names the valid ones for an unknown library, or for an algorithm that it is not run with."""
    if library not in LIBRARIES:
        raise ValueError(f"unknown library {library!r}; valid: {', '.join(LIBRARIES)}")
    if algo not in LIBRARIES[library][1]:
        others = "; ".join(f"{name}: {', '.join(algos)}" for name, (_, algos) in LIBRARIES.items())
        raise ValueError(f"unknown algorithm {algo!r} of {library}; valid: {others}")
