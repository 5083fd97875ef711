"""Global search for what a local one misses: many starts as one batch, which hop from minimum to minimum.

A loss takes points [S, P] and gives [S] values, all at once: of parameters that the engine takes per robot of a batch,
or, by `batched_loss`, of everything that a model trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from nerd_gym.utils.optional import require
from nerd_gym.utils.progress import progress

Loss = Callable[[Tensor], Tensor]
HISTORY, HALVINGS = 10, 12  # of L-BFGS: steps that it remembers, and times that it shortens one
DECREASE = 1e-4  # of what the slope promises, which a step must bring


@dataclass(frozen=True)
class Bounds:
    """Where to search, [P] each."""

    lower: Tensor
    upper: Tensor

    def __post_init__(self):
        if self.lower.shape != self.upper.shape or self.lower.ndim != 1:
            shapes = f"{tuple(self.lower.shape)} and {tuple(self.upper.shape)}"
            raise ValueError(f"bounds have shapes {shapes}; they must be [P] both")
        if not bool((self.lower < self.upper).all()):
            raise ValueError("every lower bound must be below the upper one")

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """[count, P], even."""
        part = torch.rand(count, len(self.lower), generator=generator, dtype=torch.float64)
        return self.lower + part.to(self.lower) * (self.upper - self.lower)

    def keep(self, x: Tensor) -> Tensor:
        """The nearest points within."""
        return torch.minimum(torch.maximum(x, self.lower), self.upper)


@dataclass
class Found:
    """What a search ended with."""

    x: Tensor  # [P], the best
    value: float
    ends: Tensor  # [S, P], where every chain or the last population is
    values: Tensor  # [S]
    evaluations: int  # of the loss, points not batches
    history: list[float] = field(default_factory=list)  # the best value after every hop or generation


def minimise(loss: Loss, x: Tensor, iterations: int, bounds: Bounds | None = None) -> tuple[Tensor, Tensor, int]:
    """L-BFGS from every row of x [S, P] on its own, all as one batch; gives rows, values and evaluations.

    A row whose loss or slope is no number stays where it is.
    """
    value, slope = _slopes(loss, x)
    past: list[tuple[Tensor, Tensor, Tensor]] = []  # steps, changes of slope, and one over their products
    evaluations = len(x)
    for _ in range(iterations):
        held = _at_bounds(x, slope, bounds)
        free = torch.where(held, 0.0, slope)
        direction = torch.where(held, 0.0, -_curved(free, past))
        descent = (direction * free).sum(-1)
        # Where curvature misleads, and on the first step, straight down and no farther than 1.
        steep = (descent >= 0) | (len(past) == 0)
        plain = -free / free.norm(dim=-1, keepdim=True).clamp(min=1.0)
        direction = torch.where(steep[:, None], plain, direction)
        descent = torch.where(steep, (plain * free).sum(-1), descent)
        new, tried = _along(loss, x, value, direction, descent, bounds)
        evaluations += tried
        moved = (new - x).abs().amax(-1) > 0
        if not bool(moved.any()):
            break
        new_value, new_slope = _slopes(loss, new)
        evaluations += len(x)
        good = moved & new_value.isfinite() & new_slope.isfinite().all(-1)
        step = torch.where(good[:, None], new - x, 0.0)
        change = torch.where(good[:, None], new_slope - slope, 0.0)
        product = (step * change).sum(-1)
        curved = product > 1e-12 * step.norm(dim=-1) * change.norm(dim=-1)
        past.append((step, change, torch.where(curved, 1 / torch.where(curved, product, 1.0), 0.0)))
        past = past[-HISTORY:]
        x = x + step
        value = torch.where(good, new_value, value)
        slope = torch.where(good[:, None], new_slope, slope)
    return x, value, evaluations


def _slopes(loss: Loss, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        value = loss(x)
        (slope,) = torch.autograd.grad(value.sum(), x)
    value = torch.where(value.isfinite(), value, torch.inf).detach()
    return value, torch.where(value.isfinite()[:, None], slope, 0.0)


def _at_bounds(x: Tensor, slope: Tensor, bounds: Bounds | None) -> Tensor:
    if bounds is None:
        return torch.zeros_like(x, dtype=torch.bool)
    return ((x <= bounds.lower) & (slope > 0)) | ((x >= bounds.upper) & (slope < 0))


def _curved(slope: Tensor, past: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """The slope times the inverse curvature that the past tells."""
    shares, out = [], slope
    for step, change, one_over in reversed(past):
        share = one_over * (step * out).sum(-1)
        out = out - share[:, None] * change
        shares.append(share)
    if past:
        step, change, one_over = past[-1]
        size = change.square().sum(-1)
        known = (one_over > 0) & (size > 0)
        out = out * torch.where(known, (step * change).sum(-1) / torch.where(known, size, 1.0), 1.0)[:, None]
    for (step, change, one_over), share in zip(past, reversed(shares), strict=True):
        out = out + step * (share - one_over * (change * out).sum(-1))[:, None]
    return out


@torch.no_grad()
def _along(
    loss: Loss, x: Tensor, value: Tensor, direction: Tensor, descent: Tensor, bounds: Bounds | None
) -> tuple[Tensor, int]:
    """The first point of every line, shortened by halves, that brings enough; the start where none does."""
    found, open_rows = x.clone(), torch.ones(len(x), dtype=torch.bool, device=x.device)
    length, evaluations = 1.0, 0
    for _ in range(HALVINGS):
        there = x + length * direction
        there = there if bounds is None else bounds.keep(there)
        now = loss(there)
        evaluations += len(x)
        enough = open_rows & (now <= value + DECREASE * length * descent)
        found = torch.where(enough[:, None], there, found)
        open_rows = open_rows & ~enough
        if not bool(open_rows.any()):
            break
        length /= 2
    return found, evaluations


def basin_hopping(
    loss: Loss,
    bounds: Bounds,
    starts: int = 16,
    hops: int = 10,
    iterations: int = 30,
    reach: float = 0.2,
    target: float = 0.0,
    seed: int = 0,
    first: Tensor | None = None,
) -> Found:
    """Chains from random starts (or `first` [starts, P]): each hops somewhere near, descends, and stays if it is lower.

    Every other hop of a chain is from the best place of all. A hop is `reach` of the bounds in every direction, more or
    less. It ends after so many hops, or as soon as a value is at most `target`.
    """
    if starts < 1 or hops < 0:
        raise ValueError(f"{starts} starts and {hops} hops; at least 1 start and 0 hops are needed")
    generator = torch.Generator().manual_seed(seed)
    x, value, evaluations = minimise(
        loss, bounds.draw(starts, generator) if first is None else bounds.keep(first), iterations, bounds
    )
    history = [float(value.min())]
    width = reach * (bounds.upper - bounds.lower)
    with progress(range(hops), desc="basin hopping", unit="hop") as bar:
        for hop in bar:
            if history[-1] <= target:
                break
            best = x[value.argmin()]
            turn = (torch.arange(starts, device=x.device) + hop) % 2 == 0
            origin = torch.where(turn[:, None], best, x)
            shift = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
            new, new_value, count = minimise(loss, bounds.keep(origin + width * shift), iterations, bounds)
            evaluations += count
            lower = new_value < value
            x, value = torch.where(lower[:, None], new, x), torch.where(lower, new_value, value)
            history.append(float(value.min()))
            bar.set_postfix(best=f"{history[-1]:.3g}", refresh=False)
    k = int(value.argmin())
    return Found(x[k], float(value[k]), x, value, evaluations, history)


def population_search(
    loss: Loss, bounds: Bounds, population: int = 16, generations: int = 50, target: float = 0.0, seed: int = 0
) -> Found:
    """CMA-ES within bounds, a generation as one batch."""
    cma = require("cmaes", extra="plan")
    numpy = require("numpy", extra="plan")
    middle, width = (0.5 * (bounds.lower + bounds.upper), bounds.upper - bounds.lower)
    limits = numpy.stack([numpy.zeros(len(width)), numpy.ones(len(width))], 1)
    search = cma.CMA(mean=numpy.full(len(width), 0.5), sigma=0.3, bounds=limits, population_size=population, seed=seed)
    best, best_value, evaluations, history = middle, math.inf, 0, []
    x, value = middle[None], torch.full((1,), torch.inf)
    with progress(range(generations), desc="CMA-ES", unit="generation") as bar:
        for _ in bar:
            asked = [search.ask() for _ in range(population)]
            x = bounds.lower + torch.as_tensor(numpy.stack(asked)).to(width) * width
            with torch.no_grad():
                value = loss(x)
            value = torch.where(value.isfinite(), value, torch.inf)
            evaluations += population
            search.tell([(point, min(float(v), 1e300)) for point, v in zip(asked, value, strict=True)])
            if float(value.min()) < best_value:
                best, best_value = x[value.argmin()], float(value.min())
            history.append(best_value)
            bar.set_postfix(best=f"{best_value:.3g}", refresh=False)
            if best_value <= target:
                break
    return Found(best, best_value, x, value, evaluations, history)


@torch.no_grad()
def landscape(loss: Loss, x: Tensor, y: Tensor) -> Tensor:
    """A loss of two parameters on a grid, [len(y), len(x)]."""
    points = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).flatten(0, 1)
    return loss(points).unflatten(0, (len(y), len(x)))


def function_of_point(
    module: nn.Module, function: Callable[[Any], Tensor], batch: Any, names: Sequence[str] | None = None
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """What `function` says of a batch, as a function of a point [P], and the point where the module is.

    A point is all that `names` (by default every trainable tensor of the module) hold, in that order; `function` must
    call the module's own forward functions alone.
    """
    own = {name: p for name, p in module.named_parameters() if p.requires_grad}
    odd = [name for name in names or () if name not in own]
    if odd:
        raise ValueError(f"unknown parameter {odd[0]!r}; valid: {', '.join(own)}")
    chosen = {name: p for name, p in own.items() if names is None or name in names}
    sizes = [p.numel() for p in chosen.values()]
    judge = _Judge(module, function)

    def of_point(point: Tensor) -> Tensor:
        parts = point.split(sizes)
        values = {f"module.{n}": part.view(p.shape) for (n, p), part in zip(chosen.items(), parts, strict=True)}
        return functional_call(judge, values, (batch,))

    return of_point, torch.cat([p.detach().flatten() for p in chosen.values()])


def put(module: nn.Module, point: Tensor) -> None:
    """Put a module at a point of all that it trains."""
    nn.utils.vector_to_parameters(point, [p for p in module.parameters() if p.requires_grad])


def batched_loss(
    module: nn.Module, loss: Callable[[Any], Tensor], batch: Any, names: Sequence[str] | None = None
) -> tuple[Loss, Tensor]:
    """A training loss as one of many points [S, P], and the point [P] where the module is."""
    of_point, here = function_of_point(module, loss, batch, names)
    return vmap(of_point), here


class _Judge(nn.Module):
    """A function as a module's forward, for `functional_call`."""

    def __init__(self, module: nn.Module, function: Callable[[Any], Tensor]):
        super().__init__()
        self.module = module
        self._function = function

    def forward(self, batch: Any) -> Tensor:
        return self._function(batch)
