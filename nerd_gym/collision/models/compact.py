"""One network in place of an average of many: an adapted model that is as fast as the one before."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from nerd_gym.collision.scenes.columns import STRIKE, ranges

from .finetune import Component
from .laws import StrikeLaw
from .surrogate import mirrored, relative_error

STRIKES, STEPS, BATCH, RATE = 8192, 800, 512, 2e-3
PROBES = 2048


def strikes_in_range(law: StrikeLaw, count: int, seed: int, like: Tensor) -> Tensor:
    """[count, 3], uniform in the ranges."""
    bounds = ranges(law.net.shape)
    low, high = like.new_tensor([bounds[name] for name in STRIKE]).T
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(count, len(STRIKE), generator=generator).to(like)


def compacted(
    law: StrikeLaw, values: Tensor, predict: Callable[[Tensor], Tensor], seed: int = 0
) -> tuple[Component, dict[str, float]]:
    """The base law at `values` [1, P] with weights that give the predictions, and how far it differs from them on
    other strikes (relative, median and 99th percentile)."""
    own = copy.deepcopy(law)
    strikes = strikes_in_range(law, STRIKES, seed, values)
    with torch.no_grad():
        target = predict(strikes) / law.scale(strikes)
    count = law.velocities
    size = target[:, :count].norm(dim=-1, keepdim=True)
    optimiser = torch.optim.Adam(own.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        rows = torch.randint(len(strikes), (BATCH,), generator=generator).to(values.device)
        error = own.relative(strikes[rows], values)[0] - target[rows]
        loss = (error[:, :count] / size[rows]).square().sum(-1).mean() + 0.1 * error[:, count:].square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    probes = mirrored(strikes_in_range(law, PROBES, seed + 1, values))
    component = Component(own, values)
    with torch.no_grad():
        found = component.relative(probes) * own.scale(probes)
        difference = relative_error(found, predict(probes))
    return component, {"median": float(difference.median()), "p99": float(difference.quantile(0.99))}
