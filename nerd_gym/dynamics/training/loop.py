"""One training loop for every network here: SOAP or AdamW, warm-up and cosine, EMA, an L-BFGS polish.

It validates by rollouts and keeps the best weights, writes TensorBoard curves and checkpoints, and goes on from a
checkpoint as if it had never stopped: one seed, one result. Under ``torchrun`` every process draws its own batches
and gradients are averaged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from nerd_gym.utils.files import atomic_write
from nerd_gym.utils.optional import require
from nerd_gym.utils.progress import progress

OPTIMISERS = ("soap", "adamw", "lbfgs")
ITERATIONS = 20  # of L-BFGS in a step
TrainingBatch = Any


@dataclass(frozen=True)
class Recipe:
    """How to train."""

    steps: int = 2000
    batch: int = 1024
    optimiser: str = "soap"
    lr: float = 3e-3
    weight_decay: float = 0.0
    warmup: int = 200  # steps of a rising rate, a tenth of them all at most
    clip: float = 1.0
    ema: float = 0.998  # of the weights that are validated and kept
    precondition: int = 10  # steps between updates of SOAP's preconditioner, each as dear as several steps
    polish: int = 0  # iterations of L-BFGS on one large batch at the end
    polish_batch: int = 8192
    validate: int = 10  # how often on the way
    seed: int = 0

    def __post_init__(self):
        if self.optimiser not in OPTIMISERS:
            raise ValueError(f"unknown optimiser {self.optimiser!r}; valid: {', '.join(OPTIMISERS)}")
        for name in ("steps", "batch", "validate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def rate(self, step: int) -> float:
        """The learning rate at a step: a linear rise, then a cosine to zero. L-BFGS finds its own on a line."""
        if self.optimiser == "lbfgs":
            return 1.0
        rise = min(self.warmup, max(1, self.steps // 10))
        return self.lr * min(1.0, (step + 1) / rise) * 0.5 * (1 + math.cos(math.pi * step / self.steps))


def make_optimiser(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser of a recipe; SOAP comes from the package pytorch_optimizer."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if recipe.optimiser == "lbfgs":
        return lbfgs(parameters, ITERATIONS)
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)
    soap = require("pytorch_optimizer", extra="train").SOAP
    betas = (0.95, 0.95)
    return soap(
        parameters, recipe.lr, betas, weight_decay=recipe.weight_decay, precondition_frequency=recipe.precondition
    )


def lbfgs(parameters: Iterable[Tensor], iterations: int, evaluations: int | None = None) -> torch.optim.LBFGS:
    """One step of it makes so many iterations, each with a search along its line."""
    return torch.optim.LBFGS(
        parameters,
        max_iter=iterations,
        max_eval=evaluations,
        history_size=50,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )


@contextmanager
def processes() -> Iterator[int]:
    """Join the processes that torchrun started, if it did; gives this one's rank, 0 without others."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield 0
        return
    distributed.init_process_group("gloo")  # gradients live on the CPU or are small: no need for NCCL
    try:
        yield distributed.get_rank()
    finally:
        distributed.destroy_process_group()


def rank_and_world() -> tuple[int, int]:
    """Which process this is, and of how many."""
    return (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)


class TrainingLoop:
    """Trains a module on what `sample(generator, size)` gives and `loss(batch)` judges.

    `validate()` is called with the averaged weights in place and gives an error by name, of which the first decides
    which weights are kept.
    """

    def __init__(
        self,
        module: nn.Module,
        sample: Callable[[torch.Generator, int], TrainingBatch],
        loss: Callable[[TrainingBatch], Tensor],
        validate: Callable[[], dict[str, float]],
        recipe: Recipe,
        checkpoint: Path,
        facts: dict[str, Any],
        name: str = "train",
    ):
        self.module, self.sample, self.loss, self.validate = module, sample, loss, validate
        self.recipe, self.checkpoint, self.name = recipe, checkpoint, name
        self.facts = facts | {"recipe": asdict(recipe)}
        self.step, self.best, self.curve = 0, math.inf, []
        self.optimiser = make_optimiser(module, recipe)
        self.average = {key: value.detach().clone() for key, value in module.state_dict().items()}
        self.best_weights = {key: value.clone() for key, value in self.average.items()}

    def run(self) -> list[dict[str, float]]:
        """Train to the end, load the best weights into the module and return the curve of validations.

        The checkpoint stays: whoever has written the result may remove it.
        """
        recipe, (rank, world) = self.recipe, rank_and_world()
        self._resume()
        writer = self._writer() if rank == 0 else None
        every = max(1, recipe.steps // recipe.validate)
        with progress(total=recipe.steps, initial=self.step, desc=self.name, unit="step", disable=rank > 0) as bar:
            while self.step < recipe.steps:
                value = self._train_step(rank, world)
                self.step += 1
                bar.update()
                if self.step % every == 0 or self.step == recipe.steps:
                    errors = self._validate()
                    bar.set_postfix({"loss": f"{value:.3g}"} | {k: f"{v:.3g}" for k, v in errors.items()})
                    if writer is not None:
                        for key, number in ({"loss": value, "rate": recipe.rate(self.step - 1)} | errors).items():
                            writer.add_scalar(key, number, self.step)
                    if rank == 0:
                        self.save_checkpoint()
        if recipe.polish:
            self._polish(rank, world)
        self.module.load_state_dict(self.best_weights)
        if writer is not None:
            writer.close()
        return self.curve

    def _train_step(self, rank: int, world: int) -> float:
        recipe = self.recipe
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.rate(self.step)
        if recipe.optimiser == "lbfgs":
            return self._lbfgs_step(rank, world)
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(self.sample(self.generator(rank), recipe.batch))
        loss.backward()
        average_gradients(self.module, world)
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), recipe.clip)
        if bool(norm.isfinite()):  # a batch that overflows is left out, and every process sees the same norm
            self.optimiser.step()
        decay = min(recipe.ema, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for key, value in self.module.state_dict().items():
                if value.is_floating_point():
                    self.average[key].lerp_(value, 1 - decay)
        return loss.item()

    def _lbfgs_step(self, rank: int, world: int) -> float:
        """Some iterations on the batch of the first step: what was learned of its curvature holds for no other."""
        generator = torch.Generator().manual_seed((self.recipe.seed << 40) + (rank << 32))
        batch, values = self.sample(generator, self.recipe.batch), []
        before = {key: value.clone() for key, value in self.module.state_dict().items()}
        closure: Any = self._closure(self.optimiser, batch, world, values.append)
        self.optimiser.step(closure)
        now = self.module.state_dict()
        if not all(bool(value.isfinite().all()) for value in now.values() if value.is_floating_point()):
            self.module.load_state_dict(before)  # a line that led nowhere; the history is of no use either
            self.optimiser = make_optimiser(self.module, self.recipe)
        self.take_weights()
        return min(values)

    def take_weights(self) -> None:
        """Validate the module's weights as they are, not an average."""
        self.average = {key: value.detach().clone() for key, value in self.module.state_dict().items()}

    def _validate(self) -> dict[str, float]:
        """Errors of the averaged weights; the best so far are kept."""
        weights = {key: value.clone() for key, value in self.module.state_dict().items()}
        self.module.load_state_dict(self.average)
        with torch.no_grad():
            errors = self.validate()
        first = next(iter(errors.values()))
        self.curve.append({"step": float(self.step)} | errors)
        if first < self.best:
            self.best, self.best_weights = first, {key: value.clone() for key, value in self.average.items()}
        self.module.load_state_dict(weights)
        return errors

    def _closure(
        self, optimiser: torch.optim.Optimizer, batch: TrainingBatch, world: int, tell: Callable[[float], Any]
    ) -> Callable[[], Tensor]:
        """The loss of a batch with its slopes, as L-BFGS asks for it."""

        def closure() -> Tensor:
            optimiser.zero_grad()
            loss = self.loss(batch)
            loss.backward()
            average_gradients(self.module, world)
            value = loss.detach()
            if world > 1:  # the line search must decide alike everywhere
                distributed.all_reduce(value)
                value /= world
            tell(value.item())
            return value

        return closure

    def _polish(self, rank: int, world: int) -> None:
        """L-BFGS from the best weights on one large batch; what it finds is kept if it rolls out better."""
        recipe = self.recipe
        self.module.load_state_dict(self.best_weights)
        batch = self.sample(self.generator(rank), recipe.polish_batch)
        # All iterations in one step: torch's L-BFGS searches its lines only within one.
        optimiser = lbfgs(self.module.parameters(), recipe.polish, 4 * recipe.polish)
        with progress(desc="polish", unit="evaluation", disable=rank > 0) as bar:

            def tell(value: float) -> None:
                bar.update()
                bar.set_postfix(loss=f"{value:.3g}")

            optimiser.step(self._closure(optimiser, batch, world, tell))
        self.take_weights()
        self.step += recipe.polish
        self._validate()

    def _writer(self):
        """TensorBoard's, if it is installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return None
        return SummaryWriter(str(self.checkpoint.parent / "runs" / self.checkpoint.stem), purge_step=self.step)

    def generator(self, rank: int) -> torch.Generator:
        """Draws that depend on seed, step and process alone, so that a resumed run draws the same."""
        return torch.Generator().manual_seed((self.recipe.seed << 40) + (rank << 32) + self.step)

    def save_checkpoint(self) -> None:
        """Write everything that a run needs to go on from here."""
        state = {
            "facts": self.facts,
            "step": self.step,
            "best": self.best,
            "curve": self.curve,
            "module": self.module.state_dict(),
            "average": self.average,
            "best_weights": self.best_weights,
            "optimiser": self.optimiser.state_dict(),
        }
        with atomic_write(self.checkpoint) as part:
            torch.save(state, part)

    def _resume(self) -> None:
        path = self.checkpoint
        if not path.exists():
            return
        try:
            state = torch.load(path, weights_only=True)
        except Exception as error:
            raise ValueError(
                f"{path} is not a checkpoint of this program ({error}); remove it to start anew"
            ) from error
        for key, value in self.facts.items():
            if state["facts"].get(key) != value:
                raise ValueError(
                    f"{path} is a checkpoint of a training with {key} = {state['facts'].get(key)!r}, not {value!r}; "
                    "finish that one with its own command, or remove the file"
                )
        self.step, self.best, self.curve = state["step"], state["best"], state["curve"]
        self.module.load_state_dict(state["module"])
        self.average, self.best_weights = state["average"], state["best_weights"]
        self.optimiser.load_state_dict(state["optimiser"])


def average_gradients(module: nn.Module, world: int) -> None:
    """The mean of the gradients over all processes."""
    if world == 1:
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    distributed.all_reduce(flat)
    for g, part in zip(gradients, (flat / world).split([g.numel() for g in gradients]), strict=True):
        g.copy_(part.view_as(g))
