"""Parameters of a law from measured samples: gradient through the frozen law, with a prior, from many starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .laws import ImpactLaw

STARTS, STEPS, RATE = 16, 250, 0.1  # the rate is of coordinates without bounds, and falls along a cosine
TELLING = 0.5  # a parameter counts as identified if samples shrink its spread below this part of the prior's


@dataclass
class Samples:
    """Measured collisions in a law's frame."""

    pre: Tensor  # [N, C]
    relative: Tensor  # [N, V], velocities after the collision over the law's scale

    @classmethod
    def of(cls, law: ImpactLaw, pre: Tensor, post: Tensor) -> Samples:
        return cls(pre, law.to_frame(pre, post) / law.scale(pre)[:, : law.velocities])

    def __len__(self) -> int:
        return len(self.pre)

    @property
    def size(self) -> Tensor:
        """[N, 1]: length of the relative outcome."""
        return self.relative.norm(dim=-1, keepdim=True)


class Coordinates:
    """Parameters as numbers without bounds, in which a step of one is about a prior's spread."""

    def __init__(self, law: ImpactLaw, like: Tensor):
        self.unknowns = law.unknowns
        columns = [(p.coordinate(p.mean), p.sd, *self._limits(p)) for p in law.unknowns]
        self.mean, self.sd, self.low, self.high = like.new_tensor(columns).T
        self.log = torch.tensor([p.log for p in law.unknowns], device=like.device)

    @staticmethod
    def _limits(parameter) -> tuple[float, float]:
        return parameter.coordinate(parameter.low), parameter.coordinate(parameter.high)

    def inner(self, free: Tensor) -> Tensor:
        """[..., P]: coordinates within their limits."""
        return self.low + (self.high - self.low) * free.sigmoid()

    def free(self, inner: Tensor) -> Tensor:
        return ((inner - self.low) / (self.high - self.low)).clamp(0.01, 0.99).logit()

    def values(self, free: Tensor) -> Tensor:
        inner = self.inner(free)
        return torch.where(self.log, inner.exp(), inner)


def residuals(law: ImpactLaw, samples: Samples, values: Tensor) -> Tensor:
    """[K, N, V]: error of the law over the length of the measured outcome."""
    predicted = law.relative(samples.pre, values)[..., : law.velocities]
    return (predicted - samples.relative) / samples.size


def identify(
    law: ImpactLaw,
    samples: Samples,
    weight: Tensor | None = None,
    starts: int = STARTS,
    randomised: bool = False,
    steps: int = STEPS,
    seed: int = 0,
    near: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Parameters [F, starts, P] and their costs [F, starts], by fold of `weight` [F, N] (default: one, all samples).

    `randomised` perturbs prior and samples of each start, so that the spread of the results is about that of the
    posterior (randomised maximum a posteriori). The search begins at draws from the prior, or at `near` [starts, P]."""
    weight = samples.pre.new_ones(1, len(samples)) if weight is None else weight
    folds = len(weight)
    frame = Coordinates(law, samples.pre)
    generator = torch.Generator().manual_seed(seed)
    shape = (starts, len(law.unknowns))
    spread = torch.randn(shape, generator=generator).to(samples.pre)
    spread[0] = 0
    begin = frame.mean + frame.sd * spread
    centre = begin if randomised else frame.mean.expand(shape)
    noise = torch.randn(starts, *samples.relative.shape, generator=generator).to(samples.pre) * law.sigma / math.sqrt(2)
    noise = noise if randomised else torch.zeros_like(noise)
    first = begin if near is None else torch.where(frame.log, near.log(), near)
    free = frame.free(first).repeat(folds, 1, 1).detach().requires_grad_()
    optimiser = torch.optim.Adam([free], lr=RATE)

    def costs() -> Tensor:
        values = frame.values(free).flatten(0, 1)
        error = residuals(law, samples, values).unflatten(0, (folds, starts)) - noise
        misfit = 0.5 * (error.square().sum(-1) * weight[:, None]).sum(-1) / law.sigma**2
        belief = 0.5 * ((frame.inner(free) - centre) / frame.sd).square().sum(-1)
        return misfit + belief

    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * (1 + math.cos(math.pi * step / steps))
        (free.grad,) = torch.autograd.grad(costs().sum(), [free])  # the law's own weights are left alone
        optimiser.step()
    with torch.no_grad():
        return frame.values(free), costs()


def best_of(values: Tensor, costs: Tensor) -> Tensor:
    """[F, 1, P]: the start of least cost in each fold."""
    best = costs.argmin(1)
    return values[torch.arange(len(values), device=values.device), best][:, None]


def report(law: ImpactLaw, samples: Samples, values: Tensor) -> list[dict[str, Any]]:
    """Per parameter: its value [1, P], its spread after the samples, and whether the samples tell it.

    The spread is Laplace's: from the law's slopes at the value and the prior."""
    frame = Coordinates(law, samples.pre)
    inner = torch.where(frame.log, values[0].clamp(min=1e-12).log(), values[0])

    def error(point: Tensor) -> Tensor:
        own = torch.where(frame.log, point.exp(), point)
        return residuals(law, samples, own[None]).flatten()

    slopes = torch.autograd.functional.jacobian(error, inner)
    assert isinstance(slopes, Tensor)
    information = slopes.T @ slopes / law.sigma**2 + torch.diag(frame.sd**-2)
    after = torch.linalg.inv(information.double()).diagonal().sqrt().to(inner)
    found = []
    for k, parameter in enumerate(law.unknowns):
        ratio = float(after[k] / frame.sd[k])
        at_limit = bool((inner - frame.low)[k] < 0.02 * (frame.high - frame.low)[k]) or bool(
            (frame.high - inner)[k] < 0.02 * (frame.high - frame.low)[k]
        )
        found.append(
            {
                "parameter": parameter.name,
                "value": float(values[0, k]),
                "spread": float(after[k]) * (float(values[0, k]) if parameter.log else 1.0),
                "prior_spread": parameter.sd * (parameter.mean if parameter.log else 1.0),
                "spread_over_prior": ratio,
                "identified": ratio < TELLING,
                "at_limit": at_limit,
            }
        )
    return found
