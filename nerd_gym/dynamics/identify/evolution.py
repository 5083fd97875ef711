"""CMA-ES: a minimum without slopes, for costs of frames in which contacts begin and end.

Hansen, "The CMA evolution strategy: a tutorial" (2016), with its default constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def minimise(cost: Callable[[Tensor], float], start: Tensor, sigma: float, evaluations: int, seed: int = 0) -> Tensor:
    """The best point [K] that was found, `start` among them; `sigma` is about how far away the minimum is."""
    n = len(start)
    generator = torch.Generator().manual_seed(seed)
    size = 4 + int(3 * math.log(n))
    parents = size // 2
    weight = math.log(size / 2 + 0.5) - torch.arange(1, parents + 1, dtype=start.dtype).log()
    weight = weight / weight.sum()
    effective = float(1 / weight.square().sum())
    c_path, c_sigma = (4 + effective / n) / (n + 4 + 2 * effective / n), (effective + 2) / (n + effective + 5)
    c_one = 2 / ((n + 1.3) ** 2 + effective)
    c_many = min(1 - c_one, 2 * (effective - 2 + 1 / effective) / ((n + 2) ** 2 + effective))
    damp = 1 + c_sigma + 2 * max(0.0, math.sqrt((effective - 1) / (n + 1)) - 1)
    usual = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))  # length of a normal vector
    mean, covariance = start.clone(), torch.eye(n, dtype=start.dtype)
    path, path_sigma = torch.zeros_like(start), torch.zeros_like(start)
    best, point = cost(start), start
    for generation in range(1, evaluations // size + 1):
        values, axes = torch.linalg.eigh(covariance)
        root = values.clamp(min=1e-20).sqrt()
        normal = torch.randn(size, n, generator=generator, dtype=start.dtype)
        steps = (normal * root) @ axes.T
        costs = torch.tensor([cost(mean + sigma * step) for step in steps], dtype=start.dtype)
        order = costs.argsort()
        if float(costs[order[0]]) < best:
            best, point = float(costs[order[0]]), mean + sigma * steps[order[0]]
        chosen = steps[order[:parents]]
        step = weight @ chosen
        mean = mean + sigma * step
        white = axes @ ((axes.T @ step) / root)
        path_sigma = (1 - c_sigma) * path_sigma + math.sqrt(c_sigma * (2 - c_sigma) * effective) * white
        length = float(path_sigma.norm()) / math.sqrt(1 - (1 - c_sigma) ** (2 * generation))
        held = float(length < (1.4 + 2 / (n + 1)) * usual)
        path = (1 - c_path) * path + held * math.sqrt(c_path * (2 - c_path) * effective) * step
        kept = 1 - c_one - c_many + (1 - held) * c_one * c_path * (2 - c_path)
        covariance = kept * covariance + c_one * torch.outer(path, path) + c_many * (chosen.T * weight) @ chosen
        sigma = sigma * math.exp(c_sigma / damp * (float(path_sigma.norm()) / usual - 1))
    return point
