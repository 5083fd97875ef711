"""Action sequences of few numbers: knots in time, and straight lines between them."""

from __future__ import annotations

import torch
from torch import Tensor


def interpolation(horizon: int, knots: int) -> Tensor:
    """[T, K]: how much of each knot is in the action of each step; the first and the last knot are at the ends."""
    places = torch.linspace(0, knots - 1, horizon) if knots > 1 else torch.zeros(horizon)
    return (1 - (places[:, None] - torch.arange(knots)).abs()).clamp(min=0)


def default_knots(horizon: int) -> int:
    """Five, and one for every six steps of a long plan: docs/results/planning.md has what other numbers do."""
    return min(horizon, max(5, -(-horizon // 6)))


def sequences(points: Tensor, horizon: int, action_size: int) -> Tensor:
    """Points [C, K * A] -> actions [T, C, A]."""
    knots = points.float().view(len(points), -1, action_size)
    return torch.einsum("tk,cka->tca", interpolation(horizon, knots.shape[1]), knots).clamp(-1, 1)
