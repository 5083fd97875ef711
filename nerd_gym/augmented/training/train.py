"""Training of an augmented engine end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.augmented.models.blueprint import Blueprint
from nerd_gym.augmented.models.model import PARAMETERS, AugmentedModel
from nerd_gym.dynamics.training.loop import OPTIMISERS, Recipe, TrainingLoop
from nerd_gym.physics.torch.engine import read_parameters
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.arguments import check_real, check_seed, whole

from .gauss_newton import gauss_newton_loop
from .parametrise import FIXED, fixed_parameters, free_parameters
from .search import Bounds, basin_hopping, batched_loss, put
from .windows import Scales, Trajectories, WindowLoss, cut, errors_of, normalise, rolled, rows_of

GAUSS_NEWTON = "gauss_newton"
IDENTIFIABLE = tuple(name for name in PARAMETERS if name not in FIXED)
SEARCH_WINDOWS = 64
SPREAD, WIDEST = 0.3, 3.0  # of starts, and bounds of a global search, about where the training begins
HELD_ROWS = 256  # rollouts of held-back runs in a validation


@dataclass(frozen=True)
class Settings:
    """How to train."""

    horizon: int = 1  # frames of a window, rolled out from its measured start; 0: whole trajectories
    stride: int = 1  # frames between the starts of windows
    windows: int = 20_000  # at most; more are drawn from
    truncate: int = 0  # frames after which gradients are cut; 0: never
    substeps: int | None = None  # None: the robot's
    optimiser: str = "lbfgs"  # a step is 20 iterations on all windows; adamw: one batch; gauss_newton: all windows
    steps: int = 30
    batch: int = 0  # windows in a step; 0: all
    lr: float = 3e-3  # of adamw
    ridge: float = 1e-6  # on weights and free numbers of parameters, beside a loss that is about 1 at the start
    position: float = 1.0  # weight of errors of q
    velocity: float = 1.0  # weight of errors of qd
    held_frames: int = 50  # of rollouts of held-back runs, which decide what is kept
    seed: int = 0
    identify: tuple[str, ...] = field(default=())  # parameters of the engine that are trained too
    starts: int = 1  # of a global search before the training
    hops: int = 0  # of that search

    def __post_init__(self):
        for name in ("stride", "windows", "steps", "held_frames", "starts"):
            whole(name, getattr(self, name))
        for name in ("horizon", "truncate", "batch", "hops"):
            whole(name, getattr(self, name), least=0)
        check_real("lr", self.lr, 0, 1e3)
        check_seed(self.seed)
        if self.optimiser not in (*OPTIMISERS, GAUSS_NEWTON):
            valid = ", ".join((*OPTIMISERS, GAUSS_NEWTON))
            raise ValueError(f"unknown optimiser {self.optimiser!r}; valid: {valid}")
        for name in self.identify:
            if name not in IDENTIFIABLE:
                raise ValueError(f"unknown parameter {name!r}; valid: {', '.join(IDENTIFIABLE)}")


def new_model(
    robot: RobotModel,
    blueprint: Blueprint | None,
    windows: Trajectories,
    contact: str = "penalty",
    identify: Sequence[str] = (),
    seed: int = 0,
) -> AugmentedModel:
    """With fresh networks, sized by data, and the MJCF's values of the parameters to identify."""
    own = read_parameters(robot)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AugmentedModel(robot, blueprint, {name: getattr(own, name) for name in identify}, contact)
    normalise(model, windows)
    return model


class Trainer:
    """A model, its data as windows, and the loop that fits the one to the other.

    `masks` say which numbers of a parameter are free, those that are 1.
    """

    def __init__(
        self,
        model: AugmentedModel,
        train: Trajectories,
        held: Trajectories,
        settings: Settings,
        masks: dict[str, Tensor] | None = None,
    ):
        self.model, self.settings, self.masks = model, settings, masks
        length = train["force"].shape[1]
        self.windows = cut(train, settings.horizon or length, settings.stride if settings.horizon else length)
        if len(self.windows["q"]) > settings.windows:
            order = torch.randperm(len(self.windows["q"]), generator=torch.Generator().manual_seed(settings.seed))
            self.windows = rows_of(self.windows, order[: settings.windows].sort().values)
        frames = min(settings.held_frames, held["force"].shape[1])
        self.held = cut(held, frames, frames)
        count = len(self.held["q"])
        self.held = rows_of(self.held, torch.linspace(0, count - 1, min(HELD_ROWS, count)).long())
        self._held_size = Scales.of(model.robot, self.held).step
        s = settings
        self._loss = WindowLoss(
            model, Scales.of(model.robot, self.windows), s.substeps, s.truncate, s.position, s.velocity
        )

    def sample(self, generator: torch.Generator, size: int) -> Trajectories:
        """Windows; all of them if as many are asked for."""
        count = len(self.windows["q"])
        if size >= count:
            return self.windows
        return rows_of(self.windows, torch.randperm(count, generator=generator)[:size])

    def loss(self, windows: Trajectories) -> Tensor:
        """Of the rollouts, of the networks' weights and of how far parameters are from their start."""
        return self._loss(windows) + self._pull().square().sum()

    def residuals(self, windows: Trajectories) -> Tensor:
        """[R], whose squares sum to that."""
        return torch.cat([self._loss.residuals(windows), self._pull()])

    def _pull(self) -> Tensor:
        weights = [layer.weight for net in self.model.scalar_nets for layer in net.linears]
        free = [value for name, value in self.model.named_parameters() if name.endswith(".original")]
        return self.settings.ridge**0.5 * torch.cat([x.flatten() for x in (*weights, *free)])

    def _search(self) -> None:
        """Put the model where basin hopping from several starts ends, on some of the windows."""
        s, count = self.settings, len(self.windows["q"])
        some = rows_of(self.windows, torch.linspace(0, count - 1, min(SEARCH_WINDOWS, count)).long())
        loss, here = batched_loss(self.model, self.loss, some)
        first = here + SPREAD * torch.randn(
            s.starts, len(here), generator=torch.Generator().manual_seed(s.seed), dtype=here.dtype
        )
        first[0] = here
        bounds = Bounds(here - WIDEST, here + WIDEST)
        found = basin_hopping(loss, bounds, s.starts, s.hops, seed=s.seed, first=first)
        put(self.model, found.x)

    def held_error(self) -> float:
        """Root mean square of displacements over rollouts of held-back runs, in parts of how far these move."""
        q, _ = rolled(self.model, self.held, self.settings.substeps)
        off = errors_of(self.model.robot, self.held, q)[:, 1:] / self._held_size
        return float(off.square().mean().sqrt())

    def run(self, checkpoint: Path, facts: dict[str, Any], loop: type[TrainingLoop] = TrainingLoop) -> dict[str, Any]:
        """Train; the model keeps the weights that roll out best. Gives facts."""
        s = self.settings
        batch = s.batch or len(self.windows["q"])
        recipe = Recipe(
            steps=s.steps,
            batch=batch,
            optimiser="lbfgs" if s.optimiser == GAUSS_NEWTON else s.optimiser,
            lr=s.lr,
            ema=0.0 if s.optimiser in ("lbfgs", GAUSS_NEWTON) else 0.99,
            validate=min(s.steps, 30),
            seed=s.seed,
        )
        before = self.held_error()
        free_parameters(self.model, self.masks)
        weights = {key: value.clone() for key, value in self.model.state_dict().items()}
        if (s.starts > 1 or s.hops) and not checkpoint.exists():
            self._search()
        if s.optimiser == GAUSS_NEWTON:
            loop = gauss_newton_loop(self.residuals)
        trained = loop(
            self.model,
            self.sample,
            self.loss,
            lambda: {"held": self.held_error()},
            recipe,
            checkpoint,
            facts | {"settings": plain(asdict(s))},
            "augment",
        )
        curve = trained.run()
        if not trained.best < before:  # never worse on held-back runs than the start
            self.model.load_state_dict(weights)
        fixed_parameters(self.model)
        return {
            "held_error": {"frames": self.held["force"].shape[1], "start": before, "end": min(before, trained.best)},
            "kept": "trained" if trained.best < before else "the start, which no step rolled out better than",
            "curve": curve,
        }


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """As json takes it."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
