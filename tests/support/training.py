"""A training that is over in a moment."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from nerd_gym.dynamics.training.loop import Recipe, TrainingLoop


def quadratic(checkpoint: Path, recipe: Recipe) -> TrainingLoop:
    """Linear regression with features of very different scales."""
    torch.manual_seed(0)
    module = nn.Linear(6, 3).double()
    scale = torch.logspace(0, -2, 6).double()
    truth = torch.arange(18.0).view(3, 6).double() / 10

    def sample(generator: torch.Generator, size: int):
        return torch.randn(size, 6, generator=generator).double() * scale

    def loss(x):
        return (module(x) - x @ truth.T).square().mean()

    fixed = sample(torch.Generator().manual_seed(9), 512)
    return TrainingLoop(module, sample, loss, lambda: {"error": loss(fixed).item()}, recipe, checkpoint, {})
