"""What every learned model of a robot's dynamics offers, whatever is inside it.

A model is made from a file (tensors and facts), moves a batch on by a frame, and keeps no state of its own: what it
remembers of the past is a :class:`History` that its caller holds, one row per environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion

from .checkpoint import load_model

# kind -> (module, class), imported when a model of the kind is asked for.
KINDS = {
    "structured": ("structured", "StructuredModel"),
    "residual": ("residual", "ResidualModel"),
    "mlp": ("mlp", "MlpModel"),
    "transformer": ("transformer", "TransformerModel"),
}


class History(ABC):
    """What a model remembers of each of N rows."""

    @abstractmethod
    def forget(self, mask: Tensor) -> None:
        """Start the masked rows [N] anew; the others stay as they are to the bit."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """A copy for :meth:`restore`."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go back to a snapshot."""

    @abstractmethod
    def select_rows(self, snapshot: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        """A snapshot for len(rows) environments, whose row i is row rows[i] of this one."""


class DynamicsModel(ABC):
    """A learned model of one robot with a given teacher, substituted for the solver."""

    kind: ClassVar[str]
    substeps = 1  # evaluations in a frame
    frames = 1  # of a window that it learns from
    rows_exact = True  # whether a row's bits are the same in a batch of any size

    def __init__(
        self,
        robot: RobotModel,
        tensors: dict[str, Tensor],
        facts: dict[str, Any],
        device: torch.device | str = "cpu",
        threads: int | None = None,
    ):
        self.robot, self.facts, self.device, self.threads = robot, facts, torch.device(device), threads
        self._open(tensors)

    @abstractmethod
    def _open(self, tensors: dict[str, Tensor]) -> None:
        """Make from a file's tensors, and the facts, what :meth:`predict` needs."""

    def new_history(self, num_envs: int) -> History | None:
        """A memory for so many rows; None for a model that needs the current state alone."""
        return None

    @abstractmethod
    def predict(self, state: Motion, joint_force: Tensor, contacts: Contacts, history: History | None) -> Motion:
        """The state a frame later: joint_force [N, nj] is held, contacts are those of the state."""

    def network_inputs(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Tensor | None:
        """[N, D]: the inputs that its network would take, for trust to judge by; None if there are none."""
        return None

    def last_network_inputs(self) -> Tensor | None:
        """What :meth:`network_inputs` gives, of the last prediction."""
        return None

    def distances(self, q: Tensor, ground_point: Tensor, ground_normal: Tensor) -> Tensor | None:
        """[N, C] of the contact candidates, from a model that finds them faster than torch does; else None."""
        return None

    def close(self) -> None:
        """Give back threads."""


def kind_of(name: str) -> type[DynamicsModel]:
    """The class of a kind of model."""
    if name not in KINDS:
        raise ValueError(f"unknown kind of model {name!r}; valid: {', '.join(KINDS)}")
    module, cls = KINDS[name]
    return getattr(import_module(f"{__package__}.{module}"), cls)


def open_model(
    path: str | Path, robot: RobotModel, device: torch.device | str = "cpu", threads: int | None = None
) -> tuple[DynamicsModel, dict[str, Tensor]]:
    """A model from its file, ready to predict, and all tensors of the file."""
    tensors, facts = load_model(path, robot)
    try:
        return kind_of(facts["kind"])(robot, tensors, facts, device, threads), tensors
    except (KeyError, RuntimeError, IndexError, TypeError, ValueError) as error:  # tensors are missing or do not fit
        raise ValueError(f"{Path(path).name} is not a whole {facts['kind']} model of {robot.name}: {error}") from error
