"""`nerd-gym collision ...`"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nerd_gym.backends import DEFAULT
from nerd_gym.utils.arguments import check_counts, check_seed, count

from .dynamics import robot_of

FOLDER = Path("out/collision")


@dataclass
class Generate:
    """Simulate strikes of a block in MuJoCo to learn their outcome from; the same command resumes a stopped run."""

    shape: tyro.conf.Positional[str]
    """semicylinder, square or triangle."""
    collisions: str = "100k"
    """How many: a number, with k or M if you like."""
    wide: bool = False
    """Perturbed simulators: also draws the friction cone, torsional friction and the time constant of the contact, and
    friction and damping from larger ranges."""
    seed: int = 0
    """One seed, one file."""
    threads: int | None = None
    """CPU threads; all by default."""
    out: Path | None = None
    """The file; by default out/collision/SHAPE.h5, or SHAPE-wide.h5."""

    def run(self) -> None:
        from nerd_gym.collision.training.dataset import CollisionPlan, generate
        from nerd_gym.utils.files import check_output

        plan = CollisionPlan(self.shape, count(self.collisions), self.wide, self.seed)
        check_counts(threads=self.threads)
        out = self.out or _data(self.shape, self.wide)
        check_output(out)
        start = time.perf_counter()
        made = generate(plan, out, self.threads)
        rate = f", {made / (time.perf_counter() - start):,.0f} per second" if made else ""
        print(f"{plan.collisions:,} collisions, {made:,} of them made now{rate}")
        print(f"written: {out}")


@dataclass
class Train:
    """Train networks of a shape's collisions; the same command goes on with a run that was stopped."""

    shape: tyro.conf.Positional[str]
    """semicylinder, square or triangle."""
    data: Path | None = None
    """The dataset; by default out/collision/SHAPE.h5, as `nerd-gym collision generate` names it."""
    wide_data: Path | None = None
    """A dataset of perturbed simulators, from which fine-tuning gains."""
    recipe: str = "features"
    """features, or plain: the published network and optimiser."""
    width: int = 128
    """Of the hidden layers."""
    depth: int | None = None
    """Hidden layers; by default 2, and 3 for perturbed simulators."""
    steps: int | None = None
    """Steps of the optimiser; by default the recipe's."""
    batch: int | None = None
    """Collisions in a step."""
    lr: float | None = None
    """Largest learning rate."""
    seed: int = 0
    """One seed, one result."""
    device: str = "cpu"
    """Torch device."""
    out: Path | None = None
    """The model; by default out/collision/SHAPE.safetensors."""

    def run(self) -> None:
        from nerd_gym.collision.scenes.shapes import shape_named
        from nerd_gym.collision.training.train import TrainSettings, train
        from nerd_gym.utils.device import torch_device
        from nerd_gym.utils.files import check_output

        shape_named(self.shape)
        names = ("recipe", "width", "depth", "steps", "batch", "lr", "seed", "device")
        settings = TrainSettings(**{name: getattr(self, name) for name in names})
        settings.config(self.shape, False)
        torch_device(self.device)
        data, out = self.data or _data(self.shape, False), self.out or FOLDER / f"{self.shape}.safetensors"
        check_output(out)
        for path in (data, *([self.wide_data] if self.wide_data else [])):
            if not path.is_file():
                raise FileNotFoundError(f"no dataset at {path}; make one with nerd-gym collision generate {self.shape}")
        words = [f"nerd-gym collision train {self.shape} --data {data.name}"]
        words += [f"--wide-data {self.wide_data.name}"] if self.wide_data else []
        default = TrainSettings()
        words += [f"--{n} {getattr(self, n)}" for n in names[:-1] if getattr(self, n) != getattr(default, n)]
        trained = train(self.shape, data, self.wide_data, out, settings, " ".join(words))
        for name, row in trained.items():
            shares = ", ".join(f"{share:.3f} within {float(limit):.0%}" for limit, share in row["within"].items())
            print(f"{name}: {shares} of {row['held_back']:,} held-back collisions")
        print(f"written: {out}; measure it with nerd-gym collision evaluate {self.shape} --model {out}")


@dataclass
class Identify:
    """Find friction and damping from measured strikes, and tell which of them the strikes determine."""

    shape: tyro.conf.Positional[str]
    """semicylinder, square or triangle."""
    samples: Path
    """A CSV or NPZ with columns speed, point, direction and vn, vt, omega."""
    model: Path | None = None
    """The model; by default the packaged one."""
    seed: int = 0
    """Of the starts of the search."""
    out: Path | None = None
    """The identified model; by default out/collision/SHAPE-identified.safetensors. A json is written beside it."""

    def run(self) -> None:
        check_seed(self.seed)
        model, table, out = _start(self.shape, self.model, self.samples, self.out, "identified")
        with _about(self.samples):
            found = model.identify(table, table, self.seed)
        _finish(found, out)


@dataclass
class Finetune:
    """Adapt a model to a few measured strikes."""

    shape: tyro.conf.Positional[str]
    """semicylinder, square or triangle."""
    samples: Path
    """A CSV or NPZ with columns speed, point, direction and vn, vt, omega."""
    model: Path | None = None
    """The model; by default the packaged one."""
    recipe: str = "mix"
    """mix, or paper: the published ten steps on the weights."""
    compact: bool = False
    """Fit one network to the average that `mix` makes: many times as fast, and the difference is told."""
    seed: int = 0
    """Of the starts of the search."""
    out: Path | None = None
    """The adapted model; by default out/collision/SHAPE-adapted.safetensors. A json is written beside it."""

    def run(self) -> None:
        from nerd_gym.collision.models.model import check_recipe

        check_seed(self.seed)
        model, table, out = _start(self.shape, self.model, self.samples, self.out, "adapted")
        check_recipe(self.recipe)
        with _about(self.samples):
            found = model.finetune(table, table, self.recipe, self.seed)
        if self.compact:
            found = found.compact(self.seed)
            differs = found.facts["compact"]
            print(f"compact: differs by {differs['median']:.1%} (median), {differs['p99']:.1%} (99th percentile)")
        _finish(found, out)


@dataclass
class Evaluate:
    """Compare models with collisions that they have not seen: a table, a json, a plot."""

    shape: tyro.conf.Positional[str]
    """semicylinder, square or triangle."""
    model: tuple[Path, ...] = ()
    """Models; by default the packaged one."""
    samples: Path | None = None
    """Measured or generated collisions (CSV, NPZ or HDF5); by default new ones are simulated."""
    collisions: int = 5000
    """How many to simulate."""
    seed: int = 500
    """Of the simulated ones."""
    out: Path | None = None
    """Folder for evaluation.json and evaluation.png; by default out/collision/SHAPE-evaluation."""

    def run(self) -> None:
        from nerd_gym.collision.models.model import CollisionModel
        from nerd_gym.collision.scenes.shapes import shape_named
        from nerd_gym.collision.training.evaluate import evaluate, print_rows, unseen
        from nerd_gym.collision.training.samples import read_samples
        from nerd_gym.utils.files import check_output

        shape_named(self.shape)
        check_counts(rollouts=self.collisions)
        check_seed(self.seed)
        models = {path.stem: CollisionModel.load(path, self.shape) for path in self.model}
        out = self.out or FOLDER / f"{self.shape}-evaluation"
        check_output(out, folder=True)
        samples = read_samples(self.samples) if self.samples else unseen(self.shape, self.collisions, self.seed)
        models = models or {"packaged": CollisionModel.packaged(self.shape)}
        with _about(self.samples):
            rows = evaluate(models, samples, out)
        print_rows(rows)
        print(f"written: {out}")


@dataclass
class Contacts:
    """Learn the contacts of an articulated robot with the ground, for backend "hybrid"; goes on after a stop."""

    robot: tyro.conf.Positional[str]
    """A packaged robot or the path of an MJCF."""
    teacher: str = DEFAULT
    """The backend whose contacts are learned: names the dataset, if none is given."""
    data: tuple[Path, ...] = ()
    """The dataset, or several; by default out/data/ROBOT-TEACHER.h5, as `nerd-gym generate` names it."""
    law: str = "auto"
    """network, penalty, constraint (MuJoCo's form, for robots with a free base), or auto: what explains frames of
    other runs best."""
    width: int = 32
    """Of the network's hidden layers."""
    steps: int = 4000
    """Steps of the network's optimiser."""
    batch: int = 1024
    """Substeps in a step."""
    seed: int = 0
    """One seed, one result."""
    out: Path | None = None
    """The model; by default out/collision/contacts-ROBOT-TEACHER.safetensors."""

    def run(self) -> None:
        from nerd_gym.backends import backend_class
        from nerd_gym.collision.training.contacts import ContactSettings, train_contacts
        from nerd_gym.data.reader import Data
        from nerd_gym.utils.files import check_output

        robot = robot_of(self.robot)
        backend_class(self.teacher)
        settings = ContactSettings(self.law, self.width, self.steps, self.batch, self.seed)
        out = self.out or FOLDER / f"contacts-{robot.name}-{self.teacher}.safetensors"
        check_output(out)
        paths = list(self.data) or [Path("out/data") / f"{robot.name}-{self.teacher}.h5"]
        for path in paths:
            if not path.is_file():
                made_by = f"nerd-gym generate {self.robot} --backend {self.teacher}"
                raise FileNotFoundError(f"no dataset at {path}; make one with {made_by}")
        words = f"nerd-gym collision contacts {self.robot} --teacher {self.teacher}"
        default = ContactSettings()
        for name in ("law", "width", "steps", "batch", "seed"):
            value = getattr(settings, name)
            words += f" --{name} {value}" if value != getattr(default, name) else ""
        model = train_contacts(Data.load(paths, robot), out, settings, words)
        for law, left in model.facts.get("unexplained", {}).items():
            parts = ", ".join(f"{name} {100 * value:.2g} %" for name, value in left.items())
            print(f"{law}: leaves {parts} of a frame's change of velocity{' (chosen)' * (law == model.law)}")
        print("held-back runs, R2: " + ", ".join(f"{name} {value:.5f}" for name, value in model.facts["r2"].items()))
        print(f"written: {out}; use it with backend=hybrid, model={out}")


@dataclass
class Collision:
    """Learned collisions: strikes of a block, and the contacts of articulated robots."""

    command: Annotated[
        Annotated[Generate, tyro.conf.subcommand("generate")]
        | Annotated[Train, tyro.conf.subcommand("train")]
        | Annotated[Identify, tyro.conf.subcommand("identify")]
        | Annotated[Finetune, tyro.conf.subcommand("finetune")]
        | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
        | Annotated[Contacts, tyro.conf.subcommand("contacts")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> None:
        self.command.run()


def _data(shape: str, wide: bool) -> Path:
    return FOLDER / f"{shape}{'-wide' if wide else ''}.h5"


@contextmanager
def _about(samples: Path | None) -> Iterator[None]:
    """What is wrong with samples is told with the name of their file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{samples}: {error}" if samples else str(error)) from error


def _start(shape: str, model: Path | None, samples: Path, out: Path | None, name: str):
    """The model, the table of samples and where to write to, all checked before the work."""
    from nerd_gym.collision.models.model import CollisionModel
    from nerd_gym.collision.scenes.shapes import shape_named
    from nerd_gym.collision.training.samples import read_samples
    from nerd_gym.utils.files import check_output

    shape_named(shape)
    out = out or FOLDER / f"{shape}-{name}.safetensors"
    check_output(out)
    check_output(out.with_suffix(".json"))
    table = read_samples(samples)
    return CollisionModel.load(model, shape) if model else CollisionModel.packaged(shape), table, out


def _finish(model, out: Path) -> None:
    from nerd_gym.utils.files import atomic_write, finite

    told = {name: model.facts[name] for name in ("identified", "adapted")}
    for row in told["identified"]:
        verdict = "identified" if row["identified"] else "not determined by these samples"
        print(f"{row['parameter']:16s}{row['value']:10.4g} +- {row['spread']:<10.3g}{verdict}")
    for law, error in told["adapted"]["left_out_error"].items():
        weight = told["adapted"]["weights"][law]
        print(f"{law:16s}leave-one-out error {error:.3f}, weight {weight:.2f}")
    model.save(out)
    with atomic_write(out.with_suffix(".json")) as part:
        part.write_text(json.dumps(finite(told), indent=1) + "\n")
    print(f"written: {out}, {out.with_suffix('.json').name}")
