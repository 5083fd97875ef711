"""Whose inertia a teacher's mass matrix holds for each link, from data.

A simulator that numbers bodies and joints in different orders forms the mass matrix H with other links' inertias, at
these links' places, and the forces of motion with the right ones. Spatial accelerations meet H, so that for a free base
of velocity v and angular velocity w

    H (alpha, a - w x v, qdd) + bias = force

depends on how fast the world moves by: w x v cancels only if H is right.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nerd_gym.physics.torch.engine import Motion
from nerd_gym.physics.torch.regressor import Moving, Regressor
from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel


class PairedRegressor(Regressor):
    """Of a free base whose mass matrix holds for link l the inertia of link `inertia_of[l]`; pairs are swapped."""

    def __init__(self, robot: RobotModel, inertia_of: Tensor):
        super().__init__(robot)
        self._paired = Regressor(robot)  # every inertia is moved by the joints of the link that it stands for
        self._paired.engine.above = self.engine.above[inertia_of]

    def forces(self, moving: Moving, qd: Tensor, qdd: Tensor | None = None) -> Tensor:
        pose, (velocity, acceleration) = moving
        w, v = velocity[:, 0].split(3, -1)
        turning = torch.cat([torch.zeros_like(w), -torch.linalg.cross(w, v)], -1)[:, None].expand_as(velocity)
        bias = super().forces(Moving(pose, Motion(velocity, acceleration - turning)), qd)
        accelerated = Moving(pose, Motion(torch.zeros_like(velocity), turning))
        return bias + self._paired.forces(accelerated, torch.zeros_like(qd), qdd)

    def mass(self, moving: Moving, parameters: Tensor) -> Tensor:
        return self._paired.mass(moving, parameters)


def swaps(robot: RobotModel) -> Iterator[Tensor]:
    """Every way [L] to swap branches of a free base that are built alike, in pairs; not the one that swaps none."""
    links = read_links(robot)
    parent, slide = links["parent"].tolist(), links["slide"].tolist()
    branches = [[l for l in range(len(parent)) if root in _ancestry(parent, l)] for root in _children(parent, 0)]
    # Alike: as many links, each with the same kind of joint on the same one before it.
    shapes = [[(slide[l], parent[l] - branch[0] if parent[l] else -1) for l in branch] for branch in branches]
    for pairs in _pairings(list(range(len(branches)))):
        if pairs and all(shapes[a] == shapes[b] for a, b in pairs):
            order = torch.arange(len(parent))
            for a, b in pairs:
                order[branches[a]], order[branches[b]] = torch.tensor(branches[b]), torch.tensor(branches[a])
            yield order


def _children(parent: list[int], link: int) -> list[int]:
    return [l for l, p in enumerate(parent) if p == link]


def _ancestry(parent: list[int], link: int) -> set[int]:
    """The link itself and all before it."""
    found = set()
    while link >= 0:
        found.add(link)
        link = parent[link]
    return found


def _pairings(members: list[int]) -> Iterator[list[tuple[int, int]]]:
    """All sets of disjoint pairs."""
    if len(members) < 2:
        yield []
        return
    first, *rest = members
    yield from _pairings(rest)
    for other in rest:
        for more in _pairings([m for m in rest if m != other]):
            yield [(first, other), *more]
