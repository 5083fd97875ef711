"""Adapt laws to a few measured samples.

`mix` is the default. Each law is identified with a prior; a Gaussian process corrects what remains; the laws are
averaged with weights from leave-one-out errors, for which every law is identified anew without the sample. Where there
is no gap the process has no amplitude, and nothing is lost.

`paper_identify` and `paper_finetune` are the published steps: the parameters by gradient through the frozen network,
then ten steps on the network's weights.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from .identify import Coordinates, Samples, best_of, identify, residuals
from .laws import ImpactLaw, StrikeLaw
from .residual import ResidualProcess
from .scratch import train_scratch

FEW = 20  # samples up to which a law is identified anew without each of them
FOLD_STARTS, FOLD_STEPS = 4, 80  # from where all samples lead
SCRATCH_FOLDS = 5
PAPER_STEPS, PAPER_TUNING, PAPER_RATE, PAPER_DECAY = 1000, 10, 1e-3, 0.01
IDENTIFY_RATE = 1e-2  # the published rate for weights is too small to move a parameter across its range


@dataclass
class Component:
    """A law with its parameters [K, P], whose predictions are averaged, and a correction."""

    law: ImpactLaw
    values: Tensor
    process: ResidualProcess | None = None
    weight: float = 1.0

    def relative(self, pre: Tensor) -> Tensor:
        """[N, O]: the outcome over the law's scale."""
        out = self.law.relative(pre, self.values).mean(0)
        if self.process is None:
            return out
        count = self.law.velocities
        velocity = out[:, :count]
        size = velocity.norm(dim=-1, keepdim=True)
        corrected = velocity + size * self.process(self.law.inputs(pre))
        return torch.cat([corrected, out[:, count:]], -1)


def corrected(law: ImpactLaw, samples: Samples, values: Tensor) -> tuple[Component, Tensor]:
    """The law at these parameters with a process on its residuals, and each sample's relative error [N, V] if it were
    left out of the process."""
    count = law.velocities
    with torch.no_grad():
        predicted = law.relative(samples.pre, values).mean(0)[:, :count]
        size = predicted.norm(dim=-1, keepdim=True)
        inputs, residual = law.inputs(samples.pre), (samples.relative - predicted) / size
        process, left_out = ResidualProcess.fit(inputs, residual, law.input_parity, law.parity[:count])
    return Component(law, values, process), left_out * size / samples.size


def adapted(law: ImpactLaw, pre: Tensor, post: Tensor, seed: int = 0) -> tuple[Component, float]:
    """A law identified and corrected, and its leave-one-out error (root mean square, relative).

    Up to `FEW` samples, the law is identified anew without each of them; of more, one hardly moves the parameters."""
    samples = Samples.of(law, pre, post)
    count = len(samples)
    # More unknowns than samples tell: an average over what fits is better than one of them.
    several = len(law.unknowns) > 4
    values, costs = identify(law, samples, randomised=several, seed=seed)
    values = values[0] if several else best_of(values, costs)[0]
    component, left_out = corrected(law, samples, values)
    if count > FEW:
        return component, _root_mean_square(left_out)
    near = values[:FOLD_STARTS]
    each = 1 - torch.eye(count).to(pre)
    without, _ = identify(law, samples, each, len(near), several, FOLD_STEPS, seed, near)
    for k in range(count):
        kept = torch.arange(count, device=pre.device) != k
        part, _ = corrected(law, Samples(pre[kept], samples.relative[kept]), without[k])
        with torch.no_grad():
            error = part.relative(pre[k : k + 1])[:, : law.velocities] - samples.relative[k : k + 1]
        left_out[k] = (error / samples.size[k : k + 1])[0]
    return component, _root_mean_square(left_out)


def _root_mean_square(error: Tensor) -> float:
    return float(error.square().sum(-1).mean().sqrt())


def scratch_component(frame: ImpactLaw, pre: Tensor, post: Tensor, seed: int = 0) -> tuple[Component, float]:
    """A network from scratch, and its error in cross-validation."""
    none, squares = pre.new_zeros(1, 0), []
    rows = torch.randperm(len(pre), generator=torch.Generator().manual_seed(seed)).to(pre.device)
    for held in rows.tensor_split(SCRATCH_FOLDS):
        kept = torch.ones(len(pre), dtype=torch.bool, device=pre.device)
        kept[held] = False
        law = train_scratch(frame, pre[kept], post[kept], seed)
        samples = Samples.of(law, pre[held], post[held])
        with torch.no_grad():
            squares.append(((law.relative(pre[held], none)[0] - samples.relative) / samples.size).square().sum(-1))
    error = float(torch.cat(squares).mean().sqrt())
    return Component(train_scratch(frame, pre, post, seed), none), error


def weigh(found: list[tuple[Component, float]]) -> list[Component]:
    """Weights that sum to one, as the mean squared error to the power of -2."""
    inverse = torch.tensor([error for _, error in found], dtype=torch.float64).clamp(min=1e-4) ** -4
    for (component, _), weight in zip(found, inverse / inverse.sum(), strict=True):
        component.weight = float(weight)
    return [component for component, _ in found]


def mix(laws: list[ImpactLaw], pre: Tensor, post: Tensor, seed: int = 0) -> tuple[list[Component], list[float]]:
    """Adapted laws with weights, and the leave-one-out error of each."""
    found = [adapted(law, pre, post, seed) for law in laws]
    return weigh(found), [error for _, error in found]


def identified(law: ImpactLaw, pre: Tensor, post: Tensor, seed: int = 0) -> Component:
    """The law at the most probable parameters, without a correction."""
    return Component(law, best_of(*identify(law, Samples.of(law, pre, post), seed=seed))[0])


def paper_identify(law: StrikeLaw, pre: Tensor, post: Tensor) -> Component:
    """Published: AdamW through the frozen network from the middle of the ranges, without a prior."""
    samples, frame = Samples.of(law, pre, post), Coordinates(law, pre)
    free = torch.zeros(1, len(law.unknowns), device=pre.device, requires_grad=True)
    optimiser = torch.optim.AdamW([free], lr=IDENTIFY_RATE, weight_decay=0.0)
    for _ in range(PAPER_STEPS):
        loss = residuals(law, samples, frame.values(free)).square().sum(-1).mean()
        (free.grad,) = torch.autograd.grad(loss, [free])
        optimiser.step()
    return Component(law, frame.values(free).detach())


def paper_finetune(component: Component, pre: Tensor, post: Tensor) -> Component:
    """Published: ten steps of AdamW on all weights, the parameters held."""
    law = copy.deepcopy(component.law)
    samples = Samples.of(law, pre, post)
    optimiser = torch.optim.AdamW(law.parameters(), lr=PAPER_RATE, weight_decay=PAPER_DECAY)
    for _ in range(PAPER_TUNING):
        optimiser.zero_grad()
        residuals(law, samples, component.values).square().sum(-1).mean().backward()
        optimiser.step()
    return Component(law, component.values)
