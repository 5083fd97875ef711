"""Levenberg's and Marquardt's least squares: a few steps where a gradient alone takes hundreds.

A step solves for the change of all free numbers at once from the slopes of every residual, which forward mode gives,
some numbers at a time. Its cost grows with their count: it is for up to a few hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vmap

from nerd_gym.dynamics.training.loop import TrainingLoop

from .search import function_of_point, put
from .windows import Trajectories

AT_ONCE = 8  # free numbers whose slopes are computed together
FIRST_DAMPING, LEAST_DAMPING = 1e-3, 1e-9
TRIALS = 8  # dampings in a step


def slopes(residuals: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """[R, P] of residuals [R] by x [P]."""

    def along(direction: Tensor) -> Tensor:
        return jvp(residuals, (x,), (direction,))[1]

    eye = torch.eye(len(x), dtype=x.dtype, device=x.device)
    return torch.cat([vmap(along)(some) for some in eye.split(AT_ONCE)]).T


def step(residuals: Callable[[Tensor], Tensor], x: Tensor, damping: float) -> tuple[Tensor, float, float]:
    """x moved on, the sum of squares there, and the damping to go on with; x itself if nothing is less."""
    with torch.no_grad():
        now = residuals(x)
        value = float(now.square().sum())
        slope = slopes(residuals, x)
        H, g = slope.T @ slope, slope.T @ now
        own = H.diagonal()
        flat = own <= 1e-14 * own.max()  # numbers that nothing depends on stay
        for _ in range(TRIALS):
            matrix = H + torch.diag(damping * own + flat.to(x))
            there = x - torch.linalg.solve(matrix, torch.where(flat, 0.0, g))
            found = float(residuals(there).square().sum())
            if found < value:
                return there, found, max(damping / 5, LEAST_DAMPING)
            damping *= 8
    return x, value, damping


def gauss_newton_loop(residuals: Callable[[Trajectories], Tensor]) -> type[TrainingLoop]:
    """A training loop whose step is one of these, on all windows."""

    class Loop(TrainingLoop):
        def _train_step(self, rank: int, world: int) -> float:
            batch = self.sample(self.generator(rank), self.recipe.batch)
            function, x = function_of_point(self.module, residuals, batch)
            group: dict[str, Any] = self.optimiser.param_groups[0]  # its state is in checkpoints
            x, value, group["damping"] = step(function, x, group.get("damping", FIRST_DAMPING))
            put(self.module, x)
            self.take_weights()
            return value

    return Loop
