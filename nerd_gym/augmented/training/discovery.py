"""Which signals matter: a sparse-group lasso on the first layers, and a search over wirings.

The penalty is lasso * ((1 - share) sum of the norms of columns + share * sum of absolute weights), a column being what
a network reads of one signal. All columns start at zero. Before a step every network takes up the one signal whose
slope is most above what the penalty asks, by a proximal step; later, in every other step, one network does without its
smallest signal, which comes back if it was missed. A step is 20 iterations of L-BFGS on all that is not zero, with the
penalty rounded at zero. After it, columns without which the sum of loss and unrounded penalty is hardly more become
zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nerd_gym.augmented.models.blueprint import Blueprint
from nerd_gym.augmented.models.model import AugmentedModel
from nerd_gym.augmented.models.network import ScalarNet
from nerd_gym.dynamics.training.loop import TrainingLoop
from nerd_gym.robots.model import RobotModel

from .train import Settings, Trainer, new_model
from .windows import Trajectories, cut

ROUNDED = 1e-4  # weights below this are in the rounded part of the penalty
GROWN = 2  # steps before the first that does without a signal
WORTH = 0.02  # of the objective, what a signal must be worth to be kept
FIRST_STEP, LEAST_STEP = 1.0, 1e-6  # lengths of proximal steps
TOLERANCE = 0.1  # how much worse on held-back runs than the best a smaller wiring may be


@dataclass(frozen=True)
class Lasso:
    """A penalty on the first layers."""

    size: float  # beside a loss that is 1 at the start
    share: float = 0.1  # on single weights, not columns
    upper: float = 1e-4  # on squared weights of later layers, or these grow while the first ones shrink

    def __call__(self, weight: Tensor, rounded: float = ROUNDED) -> Tensor:
        norms = torch.sqrt(weight.square().sum(0) + rounded**2).sum()
        return self.size * ((1 - self.share) * norms + self.share * torch.sqrt(weight.square() + rounded**2).sum())

    def excess(self, slope: Tensor) -> Tensor:
        """By how much the slopes [h, n] of columns at zero are above what keeps them there, [n]."""
        beyond = (slope.abs() - self.size * self.share).clamp(min=0.0)
        return beyond.norm(dim=0) - self.size * (1 - self.share)

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
        if settings.optimiser != "lbfgs":
            raise ValueError(f"a lasso is trained with optimiser 'lbfgs', not {settings.optimiser!r}")
        super().__init__(model, train, held, settings)
        self.lasso, self.free = lasso, free
        self.firsts = [net.linears[0].weight for net in model.scalar_nets]
        self._reads: list[Tensor] = []  # per wire [N, n], what its network reads in the windows' first substeps
        hooks = [net.register_forward_pre_hook(self._note) for net in model.scalar_nets]
        with torch.no_grad():
            self._start = float(super().loss(self.windows).clamp(min=1e-30))
        for hook in hooks:
            hook.remove()
        self.penalised, self._masked = True, True
        for weight in self.firsts:
            weight.register_hook(lambda slope, weight=weight: self._of_survivors(slope, weight))
        self._read_nothing()

    @torch.no_grad()
    def _read_nothing(self) -> None:
        """First layers of zeros before others that are not: the model is still the plain engine, and can learn."""
        for net in self.model.scalar_nets:
            first, *later = net.linears
            first.weight.zero_()
            for layer in (first, *later):
                layer.bias.zero_()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.settings.seed)
                for layer in later:
                    nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def _of_survivors(self, slope: Tensor, weight: Tensor) -> Tensor:
        return slope * (weight.detach().norm(dim=0) > 0) if self._masked else slope

    def fit(self, windows: Trajectories) -> Tensor:
        """The loss without the lasso, in parts of the start's."""
        return super().loss(windows) / self._start

    def loss(self, windows: Trajectories) -> Tensor:
        if not self.penalised:
            return self.fit(windows)
        return self.fit(windows) + sum((self.lasso(weight) for weight in self.firsts), self._upper())

    def _upper(self) -> Tensor:
        later = [layer.weight.square().sum() for net in self.model.scalar_nets for layer in net.linears[1:]]
        return self.lasso.upper * torch.stack(later).sum()

    def _note(self, net: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(net, ScalarNet)
        if len(self._reads) < len(self.model.wires):
            self._reads.append(((inputs[0] - net.centre) / net.scale).flatten(0, -2))

    def change(self, step: int) -> Callable[[], None]:
        """Take up signals, or, later and in turn, do without one; the step made, what this gives judges it."""
        if step > GROWN and step % 2:
            return self._without_one()
        self._grow()
        return lambda: None

    def _grow(self) -> None:
        """Every network takes up the signal that it misses most, if the penalty is worth it."""
        for weight, slope in zip(self.firsts, self._slopes(), strict=True):
            zero = weight.detach().norm(dim=0) == 0
            excess = torch.where(zero, self.lasso.excess(slope), 0.0)
            if not float(excess.max()) > 0:
                continue
            column, step, least = int(excess.argmax()), FIRST_STEP, self._objective()
            while step > LEAST_STEP:
                with torch.no_grad():
                    weight[:, [column]] = self.lasso.proximal(-step * slope[:, [column]], step)
                if self._objective() < least:
                    break
                step /= 4
            else:
                with torch.no_grad():
                    weight[:, column] = 0.0

    @torch.no_grad()
    def drop(self) -> None:
        """Set columns to zero, the smallest first, that the unrounded objective can nearly do without."""
        most = (1 + WORTH) * self._objective()
        for wire, column in self._ranked():
            before = self.firsts[wire].clone()
            self._replace(wire, column)
            if self._objective() > most:
                self.firsts[wire].copy_(before)

    def _ranked(self) -> list[tuple[int, int]]:
        """Wire and column of all signals that survive, the smallest first."""
        norms = [
            (float(n), i, k) for i, w in enumerate(self.firsts) for k, n in enumerate(w.detach().norm(dim=0)) if n > 0
        ]
        return [(wire, column) for _, wire, column in sorted(norms)]

    @torch.no_grad()
    def _replace(self, wire: int, column: int) -> None:
        """Set a column to zero; what the other signals can say of this one in a linear way, they say in its place."""
        weight, reads = self.firsts[wire], self._reads[wire]
        own = weight[:, [column]].clone()
        weight[:, column] = 0.0
        others = (weight.norm(dim=0) > 0).nonzero()[:, 0]
        if len(others):
            told = torch.linalg.lstsq(reads[:, others], reads[:, [column]], driver="gelsd").solution
            weight[:, others] += own * told.T

    def _without_one(self) -> Callable[[], None]:
        """Drop the smallest signal of the fullest network; what this gives takes it back, if it was missed."""
        counts = [int((w.detach().norm(dim=0) > 0).sum()) for w in self.firsts]
        ranked = [place for place in self._ranked() if counts[place[0]] == max(counts)]
        if not ranked or max(counts) < 2:
            return lambda: None
        before = {key: value.clone() for key, value in self.model.state_dict().items()}
        most = self._objective()
        self._replace(*ranked[0])

        def judge() -> None:
            if self._objective() > most:
                self.model.load_state_dict(before)

        return judge

    @torch.no_grad()
    def _objective(self) -> float:
        lasso = sum(float(self.lasso(weight, 0.0)) for weight in self.firsts)
        return float(self.fit(self.windows)) + lasso + float(self._upper())

    def _slopes(self) -> list[Tensor]:
        """Of the fit by all first layers, by columns that are zero too."""
        self._masked = False
        slopes = torch.autograd.grad(self.fit(self.windows), self.firsts)
        self._masked = True
        return list(slopes)

    def surviving(self) -> list[dict[str, float]]:
        """Per wire, the norm of the column of every signal that survives, by name (of the first element)."""
        return [
            {
                n: round(norm, 6)
                for n, norm in zip(one.inputs[0], weight.detach().norm(dim=0).tolist(), strict=True)
                if norm
            }
            for one, weight in zip(self.model.wires, self.firsts, strict=True)
        ]


def lasso_loop(trainer: LassoTrainer) -> type[TrainingLoop]:
    """A loop that adds and drops signals in every step but the last, free ones."""

    class Loop(TrainingLoop):
        def _train_step(self, rank: int, world: int) -> float:
            trainer.penalised = self.step < self.recipe.steps - trainer.free
            if not trainer.penalised:
                return super()._train_step(rank, world)
            judge = trainer.change(self.step)
            value = super()._train_step(rank, world)
            judge()
            trainer.drop()
            self.optimiser.state.clear()  # its curvature would bring back what is zero
            self.take_weights()
            return value

        def _validate(self) -> dict[str, float]:
            if trainer.penalised:
                self.best = math.inf  # what was there before had more signals
            return super()._validate()

    return Loop


@dataclass(frozen=True)
class Candidate:
    """A trained model, and what is told of it."""

    model: AugmentedModel
    facts: dict[str, Any]


def train_sparse(
    model: AugmentedModel,
    train: Trajectories,
    held: Trajectories,
    settings: Settings,
    lasso: Lasso,
    checkpoint: Path,
    free: int | None = None,
) -> Candidate:
    """Train a model under a lasso, and in `free` steps (by default half of them) what survived without."""
    trainer = LassoTrainer(model, train, held, settings, lasso, settings.steps // 2 if free is None else free)
    told = trainer.run(checkpoint, {"lasso": asdict(lasso), "free": trainer.free}, lasso_loop(trainer))
    return Candidate(model, told | {"lasso": lasso.size, "surviving": trainer.surviving()})


def lasso_path(
    robot: RobotModel,
    blueprint: Blueprint,
    train: Trajectories,
    held: Trajectories,
    settings: Settings,
    sizes: Sequence[float],
    checkpoint: Path,
    contact: str = "penalty",
) -> list[Candidate]:
    """The same blueprint under several penalties, the largest first."""
    found = []
    for size in sorted(set(sizes), reverse=True):
        model = new_model(robot, blueprint, cut(train, 1), contact, settings.identify, settings.seed)
        path = checkpoint.with_suffix(f".{size:g}.checkpoint")
        found.append(train_sparse(model, train, held, settings, Lasso(size), path))
    return found


def sparsest(found: Sequence[Candidate], tolerance: float = TOLERANCE) -> Candidate:
    """The one with the fewest signals among those that are nearly as good as the best on held-back runs."""
    return min(_good(found, tolerance), key=lambda one: (sum(map(len, one.facts["surviving"])), _error(one)))


def search_wirings(
    robot: RobotModel,
    blueprints: Sequence[Blueprint],
    train: Trajectories,
    held: Trajectories,
    settings: Settings,
    checkpoint: Path,
    contact: str = "penalty",
    tolerance: float = TOLERANCE,
) -> tuple[Candidate, list[Candidate]]:
    """Train every wiring alike: the smallest that is nearly as good on held-back runs as the best, and all of them."""
    found = []
    for number, blueprint in enumerate(blueprints):
        model = new_model(robot, blueprint, cut(train, 1), contact, settings.identify, settings.seed)
        wires = [wire.text for wire in blueprint.wires]
        path = checkpoint.with_suffix(f".{number}.checkpoint")
        told = Trainer(model, train, held, settings).run(path, {"wires": wires})
        weights = sum(layer.weight.numel() for net in model.scalar_nets for layer in net.linears)
        found.append(Candidate(model, told | {"wires": wires, "weights": weights}))
    return min(_good(found, tolerance), key=lambda one: (one.facts["weights"], _error(one))), found


def _good(found: Sequence[Candidate], tolerance: float) -> list[Candidate]:
    best = min(map(_error, found))
    return [one for one in found if _error(one) <= (1 + tolerance) * best]


def _error(one: Candidate) -> float:
    return one.facts["held_error"]["end"]
