"""What the legged tasks share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..robots.kinematics import quat_rotate
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
    quat = state.q[:, 3:7]
    _, x, y, z = quat.unbind(-1)
    up = 1 - 2 * (x * x + y * y)
    heading = 1 - 2 * (y * y + z * z)
    return BaseMotion(state.qd[:, :3], quat_rotate(quat, state.qd[:, 3:6]), up[:, None], heading[:, None])


def random_turn(rng: EnvRandom, angle: float) -> Tensor:
    """Quaternions [N, 4] of turns up to `angle` either way about a random axis."""
    axis = torch.nn.functional.normalize(rng.centred(1.0, 3), dim=-1)
    half = rng.centred(angle, 1) / 2
    return torch.cat([torch.cos(half), torch.sin(half) * axis], -1)
