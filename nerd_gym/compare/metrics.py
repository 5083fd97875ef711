"""Intervals of means by resampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

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
