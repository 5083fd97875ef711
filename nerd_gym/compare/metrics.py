"""Intervals of means by resampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import state_error

from .episodes import Episodes

AT_ONCE = 500  # resamples in memory


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


def estimate(values: dict[str, Tensor], resamples: int = 10_000, seed: int = 0) -> dict[str, Estimate]:
    """Of the mean of each [N]: percentiles of the means of N values drawn anew from the N, the same for all names."""
    columns = np.stack([value.double().cpu().numpy() for value in values.values()], 1)  # [N, K]
    count = len(columns)
    generator = np.random.default_rng(seed)
    means = []
    for first in range(0, resamples, AT_ONCE):
        size = min(AT_ONCE, resamples - first)
        drawn = generator.integers(count, size=(size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        means.append(times @ columns / count)
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975), axis=0)
    middle = columns.mean(0)
    return {name: Estimate(*map(float, (middle[k], low[k], high[k]))) for k, name in enumerate(values)}


def quantities(played: Episodes) -> dict[str, Tensor]:
    """[N] each: what is averaged over episodes."""
    out = {
        "return": played.returns,
        "length (steps)": played.lengths,
        "full length": played.full_length,
        "falls": played.terminated,
        "diverged": played.diverged,
    }
    for name, values in played.measures.items():
        out |= {f"{name}, mean": played.mean(values), f"{name}, at the end": played.last(values)}
    return {name: value.double() for name, value in out.items()}


def errors_between(robot: RobotModel, a: Episodes, b: Episodes) -> dict[str, Tensor]:
    """[T, N]: how far the states are apart, NaN unless the row is running in both."""
    steps = min(len(a.q), len(b.q))
    both = a.running[:steps] & b.running[:steps]
    errors = state_error(robot, a.q[:steps].flatten(0, 1), b.q[:steps].flatten(0, 1))
    return {name: torch.where(both, error.view(both.shape), torch.nan) for name, error in errors.items()}


def quartiles(values: Tensor, running: Tensor | None = None) -> Tensor:
    """[T, N] -> [T, 3] over the rows, those of a mask [T, N] if one is given; NaN is left out."""
    values = values if running is None else torch.where(running, values, torch.nan)
    return values.float().nanquantile(torch.tensor([0.25, 0.5, 0.75]), dim=1).T
