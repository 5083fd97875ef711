"""What `hybrid` adds to MuJoCo: the contract of its two ways, impacts of a block and contacts of articulated robots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from mujoco.batch import Batch
from torch import Tensor


class Collisions(ABC):
    """Of the rows of one batch; everything is on the CPU, where MuJoCo is."""

    facts: dict[str, Any]  # where the model comes from
    rows_exact = True  # whether a row's bits are the same in a batch of any size

    def prepare(self, model: Any) -> None:
        """Change the MjModel that the batch is made of."""

    @abstractmethod
    def bind(self, batch: Batch) -> None:
        """Use this batch from now on."""

    @abstractmethod
    def advance(self, rows: np.ndarray, frames: int) -> None:
        """Move these rows on, whose applied forces are in the batch."""

    @abstractmethod
    def forget(self, mask: Tensor) -> None:
        """Rows [N] bool that were put somewhere else."""

    @abstractmethod
    def info(self) -> dict[str, Tensor]:
        """What is to say of the last step, [N] each; ``out_of_range`` is among it."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """What decides what comes next, besides MuJoCo's own state."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`snapshot` gave."""

    def place_ground(self, point: Tensor, normal: Tensor) -> None:
        """The grounds' points and normals [N, 3] were set."""

    def close(self) -> None:
        """Give back threads."""
