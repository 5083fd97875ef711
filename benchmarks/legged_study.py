"""What a legged robot's model gains by data, steps, width, rate, and what it is told: results/legged_study_KIND.json.

Every row is one training that differs from the first in one thing. Errors are of held-back trajectories that no
training saw: 1 - R2 of the one-frame change of velocity, and rollouts of 10 and 50 frames (mean over them of the sum of
position, orientation and joint errors). The same command goes on with what was stopped.

python benchmarks/legged_study.py --data out/data/ant-warp.h5
python benchmarks/legged_study.py --data out/data/ant-warp.h5 --kind mlp
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import tyro

from nerd_gym.data.reader import Data, windows
from nerd_gym.dynamics.models.base import kind_of
from nerd_gym.dynamics.models.frozen_pose import POSE_UPDATES
from nerd_gym.dynamics.models.residual import ResidualModel
from nerd_gym.dynamics.training.loop import Recipe, TrainingLoop
from nerd_gym.dynamics.training.residual import identify_prior
from nerd_gym.dynamics.training.train import NETWORK_RECIPES, explained, rollout_error
from nerd_gym.robots import symmetry
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.timing import save

RESULTS = Path(__file__).parent / "results"
CONTACTS = (
    "distance",
    "predicted distance",
    "distance, close up",
    "normal speed",
    "predicted distance, close up",
    "sliding",
)
# What may be hidden from a network, by the kind of model.
GROUPS = {
    "mlp": {name: (name,) for name in (*CONTACTS, "joint limits")} | {"all of the contacts": CONTACTS},
    "residual": {name: (name,) for name in ("distance ahead", "joint limits ahead", "prior among the inputs")},
}
PRIOR = {"mlp": "free fall", "residual": "prior"}  # what a network corrects
WIDTHS = {"mlp": (256, 128, 384), "residual": (128, 64, 256)}


@dataclass(frozen=True)
class Case:
    """One training."""

    steps: int
    width: int
    transitions: int = 2_000_000
    lr: float = NETWORK_RECIPES["residual"]["lr"]
    pose_updates: int = 0  # of the prior
    without: str = ""


@dataclass
class Args:
    """Train the variants of a legged robot's model."""

    data: Path
    """A dataset of `nerd-gym generate`."""
    robot: str = "ant"
    """The robot that it is of."""
    kind: str = "residual"
    """The kind of model: residual or mlp."""
    steps: int = 800
    """Steps of a training, where they are not what is studied."""
    out: Path | None = None
    """Where to write the json; by default results/legged_study_KIND.json."""


def cases(kind: str, steps: int) -> list[Case]:
    """The first is what the others differ from."""
    width, *widths = WIDTHS[kind]
    base = Case(steps, width, pose_updates=POSE_UPDATES if kind == "residual" else 0)
    rows = [base]
    rows += [replace(base, transitions=n) for n in (125_000, 500_000)]
    rows += [replace(base, steps=n) for n in (steps // 4, steps // 2, 2 * steps)]
    rows += [replace(base, width=n) for n in widths]
    rows += [replace(base, lr=factor * base.lr) for factor in (0.25, 0.5, 2)]
    if kind == "residual":
        rows += [replace(base, pose_updates=n) for n in (POSE_UPDATES // 2, 2 * POSE_UPDATES)]
        rows += [
            replace(base, pose_updates=n, without="network")
            for n in (POSE_UPDATES // 2, POSE_UPDATES, 2 * POSE_UPDATES)
        ]
    rows += [replace(base, without=group) for group in ("symmetry", PRIOR[kind], *GROUPS[kind])]
    return rows


@contextmanager
def no_symmetry(wanted: bool) -> Iterator[None]:
    """Robots have no symmetry but the identity meanwhile."""
    original = symmetry.group
    if wanted:
        symmetry.group = lambda robot: (symmetry.identity(robot),)
    try:
        yield
    finally:
        symmetry.group = original


def new_model(kind: str, case: Case, data: Data, prior: dict[str, torch.Tensor]) -> ResidualModel:
    """Fresh; one without its prior is an mlp."""
    cls = kind_of("mlp" if case.without == "prior" else kind)
    facts = cls.new_facts(data.robot) | {
        "network": {"width": case.width, "depth": 3},
        "pose_updates": case.pose_updates,
    }
    if case.without == "free fall":
        facts["free_fall_prior"] = False
    return cls(data.robot, prior, facts)


def run(kind: str, case: Case, data: Data, prior: dict[str, torch.Tensor]) -> dict[str, float]:
    """Train a case and judge it."""
    train = {name: value[: -(-case.transitions // data.train["force"].shape[1])] for name, value in data.train.items()}
    with no_symmetry(case.without == "symmetry"):
        torch.manual_seed(0)
        model = new_model(kind, case, data, prior)
    model.fit_normaliser(windows(train, 1, 20_000, torch.Generator().manual_seed(0)))
    for group in GROUPS[kind].get(case.without, ()):  # an enormous spread hides an input
        model.normaliser.input_std[model.input_groups()[group]] = 1e9
    recipe = Recipe(**NETWORK_RECIPES["residual"] | {"steps": case.steps, "lr": case.lr, "validate": 1})
    start = time.process_time()
    if case.without == "network":
        torch.nn.init.zeros_(model.module[-1].weight)
        torch.nn.init.zeros_(model.module[-1].bias)
        return judged(model, data, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "study.checkpoint"
        loop = TrainingLoop(
            model.module,
            lambda generator, size: windows(train, 1, size, generator),
            model.loss,
            lambda: {"rollout": rollout_error(model, data.held, 256, 10)},
            recipe,
            checkpoint,
            model.facts,
            case.without or "study",
        )
        loop.run()
    return judged(model, data, time.process_time() - start)


def judged(model: ResidualModel, data: Data, seconds: float) -> dict[str, float]:
    """What a model that took so long to train leaves unexplained and how far it errs; it is closed."""
    r2 = explained(model, data.held)
    figures = {f"unexplained {name}": 1 - value for name, value in r2.items()}
    figures |= {f"error over {n}": rollout_error(model, data.held, 256, n) for n in (10, 50)}
    model.close()
    return figures | {"cpu_seconds": round(seconds, 1)}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    if args.kind not in GROUPS:
        raise SystemExit(f"unknown kind {args.kind!r}; valid: {', '.join(GROUPS)}")
    out = args.out or RESULTS / f"legged_study_{args.kind}.json"
    done = json.loads(out.read_text())["rows"] if out.exists() else []
    data = Data.load(args.data, RobotModel.named(args.robot))
    prior = identify_prior(data, 0)[0] if args.kind == "residual" else {}
    for case in cases(args.kind, args.steps):
        if any(all(row.get(key, value) == value for key, value in asdict(case).items()) for row in done):
            continue
        done.append(asdict(case) | run(args.kind, case, data, prior))
        print({key: round(value, 4) if isinstance(value, float) else value for key, value in done[-1].items()})
        save(out, {"what": __doc__.splitlines()[0], "robot": args.robot, "data": data.command(), "rows": done})
    print(f"written: {out.name}")


if __name__ == "__main__":
    main(tyro.cli(Args))
