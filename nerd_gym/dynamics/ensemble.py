"""Several models in one batch: the rows are divided among them.

A policy that learns in a single model finds where that model is too good to be true. The hope is that its refinements
err elsewhere, so that what a policy gains by the errors of one it does not gain on the rows of the others; how far that
goes is told in docs/learned-dynamics.md.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..robots.contacts import Contacts
from ..robots.model import RobotModel
from .mlp import MlpModel
from .model import History, Motion, open_model

SHARED = ("normaliser.input_mean", "normaliser.input_std")


class Ensemble:
    """A :class:`MlpModel` and its refinements, the last of which speaks for all of them where only one can."""

    substeps = 1

    def __init__(self, members: list[MlpModel]):
        self.members, self.facts = members, members[-1].facts
        self._asked: list[tuple[MlpModel, slice]] = []  # in the last prediction

    def new_history(self, num_envs: int) -> History | None:
        """None: its members need the current state alone."""
        return None

    def predict(self, state: Motion, joint_force: Tensor, contacts: Contacts, history: History | None) -> Motion:
        """The state a frame later, of each row by its own member."""
        after, distances = [], []
        self._asked = self._shares(len(state.q))
        for member, rows in self._asked:
            own = member.find_contacts(state.q[rows], contacts.ground_point[rows], contacts.ground_normal[rows])
            after.append(member.predict(Motion(state.q[rows], state.qd[rows]), joint_force[rows], own, None))
            distances.append(own.distance)
        contacts.distance = torch.cat(distances)
        return Motion(torch.cat([motion.q for motion in after]), torch.cat([motion.qd for motion in after]))

    def last_seen(self) -> Tensor:
        """[N, D] inputs of the last prediction; all members normalise alike."""
        return torch.cat([member.last_seen() for member, _ in self._asked])

    def seen(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Tensor:
        """[N, D] inputs of any states."""
        return self.members[-1].seen(state, joint_force, contacts)

    def distances(self, q: Tensor, ground_point: Tensor, ground_normal: Tensor) -> Tensor:
        """[N, C] of the contact candidates."""
        return self.members[-1].distances(q, ground_point, ground_normal)

    def close(self) -> None:
        """Give back threads."""
        for member in self.members:
            member.close()

    def _shares(self, count: int) -> list[tuple[MlpModel, slice]]:
        """The members and their rows; a small batch leaves the first ones out."""
        k = len(self.members)
        cuts = [part * count // k for part in range(k + 1)]
        return [(m, slice(a, b)) for m, a, b in zip(self.members, cuts, cuts[1:], strict=False) if b > a]


def open_ensemble(
    paths: list[Path], robot: RobotModel, device: torch.device | str = "cpu", threads: int | None = None
) -> tuple[Ensemble, dict[str, Tensor]]:
    """An ensemble from its members' files, and all tensors of the last."""
    opened = [open_model(path, robot, device, threads) for path in paths]
    for path, (member, tensors) in zip(paths, opened, strict=True):
        if member.kind != "mlp" or not all(torch.equal(tensors[name], opened[-1][1][name]) for name in SHARED):
            raise ValueError(f"{path.name} and {paths[-1].name} are not an mlp and its refinement")
    return Ensemble([member for member, _ in opened]), opened[-1][1]
