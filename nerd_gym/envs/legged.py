"""What the legged tasks share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nerd_gym.robots.rotations import quat_to_matrix

from .random import EnvRandom
from .task import State


class BaseMotion(NamedTuple):
    """A floating base in world axes."""

    velocity: Tensor  # [N, 3] of the base's origin
    spin: Tensor  # [N, 3] angular velocity
    up: Tensor  # [N, 1] z of the base's z axis
    heading: Tensor  # [N, 1] x of the base's x axis


def base_motion(state: State) -> BaseMotion:
    """The base's motion at the current state."""
    return state.cached("base_motion", lambda: _base_motion(state.q, state.qd))


def _base_motion(q: Tensor, qd: Tensor) -> BaseMotion:
    rotation = quat_to_matrix(q.narrow(1, 3, 4))
    velocity, spin = qd.narrow(1, 0, 6).split(3, 1)
    entries = rotation.view(-1, 9)
    spin = torch.bmm(rotation, spin.unsqueeze(2)).squeeze(2)
    return BaseMotion(velocity, spin, entries.narrow(1, 8, 1), entries.narrow(1, 0, 1))


def random_turn(rng: EnvRandom, angle: float) -> Tensor:
    """Quaternions [N, 4] of turns up to `angle` either way about a random axis."""
    axis = torch.nn.functional.normalize(rng.centred(1.0, 3), dim=-1)
    half = rng.centred(angle, 1) / 2
    return torch.cat([torch.cos(half), torch.sin(half) * axis], -1)
