"""Which signals matter: a sparse-group lasso on the first layers, and a search over wirings.

The penalty is lasso * ((1 - share) sum of the norms of columns + share * sum of absolute weights), a column being what
a network reads of one signal. A step is 20 iterations of L-BFGS on what is not zero, with the penalty rounded at zero.
Then columns are set to zero, the smallest first, where that makes the sum of loss and unrounded penalty less; and a few
proximal steps on the first layers bring back those that were wrongly zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.augmented.models.blueprint import Blueprint
from nerd_gym.augmented.models.model import AugmentedModel
from nerd_gym.dynamics.training.loop import TrainingLoop
from nerd_gym.robots.model import RobotModel

from .train import Settings, Trainer, new_model
from .windows import Trajectories, cut

ROUNDED = 1e-4  # weights below this are in the rounded part of the penalty
PROXIMAL_STEPS = 3  # after every step of L-BFGS
LEAST_STEP, MOST_STEP = 1e-6, 1e6
TOLERANCE = 0.1  # how much worse on held-back runs than the best a smaller wiring may be


@dataclass(frozen=True)
class Lasso:
    """A penalty on the first layers."""

    size: float  # beside a loss that is 1 at the start
    share: float = 0.1  # on single weights, not columns

    def __call__(self, weight: Tensor, rounded: float = ROUNDED) -> Tensor:
        norms = torch.sqrt(weight.square().sum(0) + rounded**2).sum()
        return self.size * ((1 - self.share) * norms + self.share * torch.sqrt(weight.square() + rounded**2).sum())

    def proximal(self, weight: Tensor, step: float) -> Tensor:
        """The least of the penalty and half the squared distance over `step`: exact zeros."""
        single = step * self.size * self.share
        weight = weight.sign() * (weight.abs() - single).clamp(min=0.0)
        norm = weight.norm(dim=0)
        return weight * (1 - step * self.size * (1 - self.share) / norm.clamp(min=1e-300)).clamp(min=0.0)


class LassoTrainer(Trainer):
    """Trains under a lasso; in `free` steps at the end what is left is trained without."""

    def __init__(
        self,
        model: AugmentedModel,
        train: Trajectories,
        held: Trajectories,
        settings: Settings,
        lasso: Lasso,
        free: int = 0,
    ):
        super().__init__(model, train, held, settings)
        self.lasso, self.free = lasso, free
        self.firsts = [net.linears[0].weight for net in model.scalar_nets]
        with torch.no_grad():
            self._start = float(super().loss(self.windows).clamp(min=1e-30))
        self.penalised, self._masked = True, True
        for weight in self.firsts:
            weight.register_hook(lambda slope, weight=weight: self._of_survivors(slope, weight))

    def _of_survivors(self, slope: Tensor, weight: Tensor) -> Tensor:
        return slope * (weight.detach().norm(dim=0) > 0) if self._masked else slope

    def fit(self, windows: Trajectories) -> Tensor:
        """The loss without the lasso, in parts of the start's."""
        return super().loss(windows) / self._start

    def loss(self, windows: Trajectories) -> Tensor:
        penalty = sum((self.lasso(weight) for weight in self.firsts), windows["q"].new_zeros(()))
        return self.fit(windows) + (penalty if self.penalised else 0.0)

    def shrink(self) -> None:
        """Drop columns, then take proximal steps."""
        self._drop()
        self._proximal_steps()

    @torch.no_grad()
    def _drop(self) -> None:
        """Set columns to zero, the smallest first, where the unrounded objective gets less by it."""
        norms = [(float(n), w, k) for w in self.firsts for k, n in enumerate(w.norm(dim=0)) if n > 0]
        least = self._objective()
        for _, weight, column in sorted(norms, key=lambda row: row[0]):
            before = weight[:, column].clone()
            weight[:, column] = 0.0
            value = self._objective()
            if value <= least:
                least = value
            else:
                weight[:, column] = before

    def _objective(self) -> float:
        return float(self.fit(self.windows)) + sum(float(self.lasso(weight, 0.0)) for weight in self.firsts)

    def _proximal_steps(self) -> None:
        """On all first layers, each as long as the slopes allow."""
        step = 1.0
        for _ in range(PROXIMAL_STEPS):
            value, slopes = self._slopes()
            before = [weight.detach().clone() for weight in self.firsts]
            while step > LEAST_STEP:
                moved = [self.lasso.proximal(w - step * g, step) for w, g in zip(before, slopes, strict=True)]
                off = [new - old for new, old in zip(moved, before, strict=True)]
                bound = sum(
                    float((d * g).sum() + d.square().sum() / (2 * step)) for d, g in zip(off, slopes, strict=True)
                )
                with torch.no_grad():
                    for weight, new in zip(self.firsts, moved, strict=True):
                        weight.copy_(new)
                    if float(self.fit(self.windows)) <= value + bound + 1e-12:
                        break
                step /= 4
            step = min(2 * step, MOST_STEP)

    def _slopes(self) -> tuple[float, list[Tensor]]:
        """Of the fit by all first layers, those that are zero too."""
        self._masked = False
        value = self.fit(self.windows)
        slopes = torch.autograd.grad(value, self.firsts)
        self._masked = True
        return float(value.detach()), list(slopes)

    def surviving(self) -> list[dict[str, float]]:
        """Per wire, the norm of the column of every signal that survives, by name (of the first element)."""
        return [
            {n: round(norm, 6) for n, norm in zip(one.inputs[0], weight.detach().norm(dim=0).tolist(), strict=True) if norm}
            for one, weight in zip(self.model.wires, self.firsts, strict=True)
        ]


def lasso_loop(trainer: LassoTrainer) -> type[TrainingLoop]:
    """A loop that shrinks after every step but the last, free ones."""

    class Loop(TrainingLoop):
        def _train_step(self, rank: int, world: int) -> float:
            trainer.penalised = self.step < self.recipe.steps - trainer.free
            value = super()._train_step(rank, world)
            if trainer.penalised:
                trainer.shrink()
                self.optimiser.state.clear()  # its curvature would bring back what is zero
                self.average = {key: v.detach().clone() for key, v in self.module.state_dict().items()}
            return value

    return Loop


def train_sparse(
    model: AugmentedModel,
    train: Trajectories,
    held: Trajectories,
    settings: Settings,
    lasso: Lasso,
    checkpoint: Path,
    free: int = 0,
) -> dict[str, Any]:
    """Train a model under a lasso; gives what survived, and facts of the training."""
    trainer = LassoTrainer(model, train, held, settings, lasso, free)
    facts = {"lasso": [lasso.size, lasso.share, free]}
    told = trainer.run(checkpoint, facts, lasso_loop(trainer))
    checkpoint.unlink(missing_ok=True)
    return told | {"lasso": lasso.size, "surviving": trainer.surviving()}


def lasso_path(
    robot: RobotModel,
    blueprint: Blueprint,
    train: Trajectories,
    held: Trajectories,
    settings: Settings,
    sizes: Sequence[float],
    folder: Path,
    contact: str = "penalty",
) -> list[dict[str, Any]]:
    """The same blueprint under several penalties, largest first; a row each."""
    rows = []
    for size in sorted(sizes, reverse=True):
        model = new_model(robot, blueprint, cut(train, 1), contact, settings.identify, settings.seed)
        path = folder / f"lasso-{size:g}.checkpoint"
        rows.append(train_sparse(model, train, held, settings, Lasso(size), path, settings.steps // 3))
    return rows


def sparsest(rows: Sequence[dict[str, Any]], tolerance: float = TOLERANCE) -> dict[str, Any]:
    """The row with the fewest signals among those that are nearly as good as the best on held-back runs."""
    best = min(row["held_error"]["end"] for row in rows)
    good = [row for row in rows if row["held_error"]["end"] <= (1 + tolerance) * best]
    return min(good, key=lambda row: (sum(map(len, row["surviving"])), row["held_error"]["end"]))


def search_wirings(
    robot: RobotModel,
    candidates: Sequence[Blueprint],
    train: Trajectories,
    held: Trajectories,
    settings: Settings,
    folder: Path,
    contact: str = "penalty",
    tolerance: float = TOLERANCE,
) -> tuple[Blueprint, list[dict[str, Any]]]:
    """Train every wiring alike; the smallest that explains held-back runs nearly as well as the best, and all rows."""
    rows = []
    for number, blueprint in enumerate(candidates):
        model = new_model(robot, blueprint, cut(train, 1), contact, settings.identify, settings.seed)
        path = folder / f"wiring-{number}.checkpoint"
        wires = [wire.text for wire in blueprint.wires]
        told = Trainer(model, train, held, replace(settings)).run(path, {"wires": wires})
        path.unlink(missing_ok=True)
        weights = sum(layer.weight.numel() for net in model.scalar_nets for layer in net.linears)
        rows.append({"wires": wires, "weights": weights, "held_error": told["held_error"]})
    best = min(row["held_error"]["end"] for row in rows)
    good = [k for k, row in enumerate(rows) if row["held_error"]["end"] <= (1 + tolerance) * best]
    return candidates[min(good, key=lambda k: rows[k]["weights"])], rows
