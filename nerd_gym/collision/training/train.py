"""Networks of the outcome of a strike, trained on generated collisions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.collision.models.model import CollisionModel
from nerd_gym.collision.models.surrogate import (
    RECIPES,
    NetConfig,
    OutcomeNet,
    outcome_loss,
    relative_error,
    share_within,
)
from nerd_gym.dynamics.training.loop import Recipe, TrainingLoop
from nerd_gym.utils.arguments import check_counts, check_real, check_seed
from nerd_gym.utils.device import torch_device

from .dataset import HELD_BACK, load

# The published recipe: a ReLU network on the columns themselves, AdamW. The rate falls and the weights are averaged as
# everywhere here, which only helps it.
PLAIN = {"optimiser": "adamw", "lr": 1e-3, "weight_decay": 0.01, "steps": 1000, "batch": 4096}


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained; None stands for the recipe's own."""

    recipe: str = "features"
    width: int = 128
    depth: int | None = None  # by default the paper's 2, and 3 for the network of perturbed simulators
    steps: int | None = None
    batch: int | None = None
    lr: float | None = None
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self):
        if self.recipe not in RECIPES:
            raise ValueError(f"unknown recipe {self.recipe!r}; valid: {', '.join(RECIPES)}")
        check_counts(steps=self.steps, batch=self.batch)
        check_seed(self.seed)
        if self.lr is not None:
            check_real("lr", self.lr, 0.0, 1.0)

    def config(self, shape: str, wide: bool) -> NetConfig:
        """Of the network."""
        depth = (3 if wide else 2) if self.depth is None else self.depth
        return NetConfig(shape, self.recipe, wide, self.width, depth)

    def optimisation(self, wide: bool) -> Recipe:
        own: dict[str, Any] = PLAIN if self.recipe == "plain" else {"steps": 6000 if wide else 3000, "batch": 1024}
        given = {name: getattr(self, name) for name in ("steps", "batch", "lr")}
        return Recipe(**(own | {k: v for k, v in given.items() if v is not None}), seed=self.seed)


def train_net(data: Path, shape: str, wide: bool, settings: TrainSettings, checkpoint: Path) -> tuple[OutcomeNet, dict]:
    """A network of a file's collisions and its facts; a stopped run goes on from its checkpoint."""
    device = torch_device(settings.device)
    pre, post, facts = load(data, shape, wide)
    cut = len(pre) - max(1, round(HELD_BACK * len(pre)))
    train, held = [(pre[rows].to(device), post[rows].to(device)) for rows in (slice(0, cut), slice(cut, None))]
    torch.manual_seed(settings.seed)
    net = OutcomeNet(settings.config(shape, wide)).to(device)
    net.normalise_to(train[0])

    def sample(generator: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
        rows = torch.randint(cut, (size,), generator=generator).to(device)
        return train[0][rows], train[1][rows]

    def validate() -> dict[str, float]:
        error = relative_error(net(held[0]), held[1])
        return {"error": float(error.mean()), "within_10": float((error <= 0.1).float().mean())}

    known = {"shape": shape, "net": net.config.as_dict(), "data": {k: facts[k] for k in ("seed", "collisions")}}
    recipe = settings.optimisation(wide)
    loop = TrainingLoop(
        net, sample, lambda batch: outcome_loss(net, *batch), validate, recipe, checkpoint, known, checkpoint.stem
    )
    curve = loop.run()
    with torch.no_grad():
        error = relative_error(net(held[0]), held[1])
    own = {
        "held_back": len(held[0]),
        "within": share_within(error),
        "median_error": float(error.median()),
        "recipe": asdict(recipe),
        "data": {name: facts[name] for name in ("seed", "collisions", "timestep", "simulator", "ranges")},
        "curve": curve,
    }
    return net.cpu(), own


def train(
    shape: str, data: Path, wide_data: Path | None, out: Path, settings: TrainSettings, command: str
) -> dict[str, Any]:
    """A model of a shape's collisions, with a second network of perturbed simulators if there are data of them.

    Returns what each network was trained on and its error there; a stopped run goes on where it was."""
    trained: dict[str, Any] = {}
    nets: dict[str, OutcomeNet] = {}
    checkpoints = []
    for name, path in (("base", data), ("wide", wide_data)):
        if path is None:
            continue
        checkpoint = out.with_name(f"{out.stem}-{name}.ckpt")
        nets[name], trained[name] = train_net(path, shape, name == "wide", settings, checkpoint)
        checkpoints.append(checkpoint)
    model = CollisionModel.of_strikes(nets["base"], nets.get("wide"), {"trained": trained, "command": command})
    model.save(out)
    for checkpoint in checkpoints:
        checkpoint.unlink(missing_ok=True)
    return trained
