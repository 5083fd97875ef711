"""`nerd-gym generate`, `train` and `evaluate`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nerd_gym.backends import DEFAULT
from nerd_gym.utils.arguments import count, key_value


@dataclass
class Generate:
    """Make a dataset of random motion to learn a robot's dynamics from; the same command resumes a stopped run."""

    robot: tyro.conf.Positional[str]
    """A packaged robot (cartpole, pendulum_contact, ant, anymal, franka) or the path of an MJCF."""
    backend: str = DEFAULT
    """Teacher, as `nerd-gym list` names backends."""
    transitions: str = "1M"
    """How many transitions: a number, with k or M if you like."""
    frames: int = 100
    """Frames in a trajectory."""
    preset: str = "wide"
    """wide, or reference: the ranges of the published data."""
    task_share: float | None = None
    """The part of the data that starts where the robot's task starts; by default, of packaged robots with a free base,
    0.75, or 1 if joints have no limits; 0 for others."""
    policies: tuple[Path, ...] = ()
    """Policies (.safetensors) that drive the robots there, with more or less noise."""
    starts: tuple[str, ...] = ()
    """Of these data: start (where the task starts), later, displaced (turned and thrown), passive (at the start, and
    nobody acts); by default all of them in turn."""
    seed: int = 0
    """One seed, one file."""
    out: Path | None = None
    """The file; by default out/data/ROBOT-BACKEND.h5."""
    option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Options of the backend, e.g. --option reference=True."""
    ignore: tuple[str, ...] = ()
    """Features of an MJCF to leave out on every backend, e.g. self_collision gravcomp."""

    def run(self) -> None:
        from nerd_gym.data.dataset import DatasetPlan, generate
        from nerd_gym.data.task_rollouts import STARTS, default_share
        from nerd_gym.utils.files import check_output

        robot = robot_of(self.robot, self.ignore)
        options = tuple(map(key_value, self.option))
        share = default_share(robot) if self.task_share is None else self.task_share
        plan = DatasetPlan(
            robot,
            self.backend,
            count(self.transitions),
            self.frames,
            self.preset,
            self.seed,
            options,
            share,
            self.policies,
            starts=self.starts or STARTS,
        )
        out = self.out or Path("out/data") / f"{robot.name}-{self.backend}.h5"
        check_output(out)
        counts = generate(plan, out)
        print("  ".join(f"{name} {value:,}" for name, value in counts.items()))
        print(f"written: {out}")


@dataclass
class Train:
    """Learn a model of a robot's dynamics from a dataset; the same command goes on with a run that was stopped.

    With --mjcf in place of ROBOT the dataset is made first, if it is not there."""

    robot: tyro.conf.Positional[str | None] = None
    """A packaged robot or the path of an MJCF."""
    mjcf: Path | None = None
    """Your own robot, from nothing to a model: generates the dataset, trains, tells how to use the model."""
    data_transitions: str | None = None
    """With --mjcf: transitions to generate, with k or M if you like; by default 1M, for a structured model 200k."""
    model: str | None = None
    """structured (default for a fixed base), residual (default for a free one), mlp or transformer (the paper's)."""
    data: tuple[Path, ...] = ()
    """The dataset, or several; by default out/data/ROBOT-warp.h5, as `nerd-gym generate` names it."""
    refine: tuple[Path, ...] = ()
    """Policies: record on the teacher where they go and train the model `--start` further."""
    start: Path | None = None
    """A network to go on from; by default, with --refine, the packaged one."""
    new_transitions: str = "500k"
    """With --refine: how many transitions to record."""
    newest: float = 0.5
    """With --refine: the part of every batch that is drawn from what was recorded last."""
    steps: int | None = None
    """Steps of the optimiser; by default the model's own."""
    batch: int | None = None
    """Frames (transformer: windows of frames) in a step."""
    optimiser: str | None = None
    """soap or adamw."""
    lr: float | None = None
    """Largest learning rate."""
    polish: int | None = None
    """Iterations of L-BFGS on one large batch at the end."""
    size: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Sizes of a network (residual, mlp, transformer), e.g. --size width=384 depth=3."""
    transitions: int = 4000
    """structured: how many transitions the inertial parameters are fitted to."""
    force_net: str = "auto"
    """structured: a network for joint forces that nobody described: on, off, or auto: if the data call for it."""
    seed: int = 0
    """One seed, one result."""
    device: str = "cpu"
    """Torch device on which a network is trained."""
    out: Path | None = None
    """The model; by default out/models/ROBOT-MODEL.safetensors."""
    ignore: tuple[str, ...] = ()
    """Features of an MJCF to leave out on every backend, e.g. self_collision gravcomp."""

    def run(self) -> None:
        from nerd_gym.dynamics.models.base import kind_of
        from nerd_gym.dynamics.models.checkpoint import DEFAULT_TEACHER, current_kind, load_model, packaged_model
        from nerd_gym.dynamics.training.refine import refine
        from nerd_gym.dynamics.training.train import Settings, check_sizes, default_kind, train
        from nerd_gym.policies.policy import Policy
        from nerd_gym.utils.files import check_output

        robot = self._which_robot()
        data = self.data or (Path("out/data") / f"{robot.name}-{DEFAULT}.h5",)
        kind = current_kind(self.model) if self.model else default_kind(robot)
        kind_of(kind)  # wrong words are told before the work
        out = self.out or Path("out/models") / f"{robot.name}-{kind}.safetensors"
        check_output(out)
        network = tuple(map(network_size, self.size))
        chosen = ("steps", "batch", "optimiser", "lr", "polish", "transitions", "force_net", "seed")
        settings = Settings(
            kind=kind,
            network=network,
            device=self.device,
            start=self.start,
            newest=self.newest if self.refine else 0.0,
            **{name: getattr(self, name) for name in chosen},
        )
        check_sizes(kind, network)
        if not 0 <= self.newest <= 1:
            raise ValueError(f"newest is {self.newest}; it must be from 0 to 1")
        for path in (*self.refine, *([self.start] if self.start else [])):
            if not path.is_file():
                raise FileNotFoundError(f"no file at {path}")
        if self.start:
            load_model(self.start, robot)
        for path in self.refine:
            Policy.load(path)
        if self.mjcf and "RANK" not in os.environ:  # several processes would make it at once
            self._generate(robot, kind, data[0])
        for path in data:
            if not path.exists():
                own = self.mjcf or self.robot
                raise FileNotFoundError(f"no dataset at {path}; make one with nerd-gym generate {own}")
        default = Settings(kind=kind)
        changed = [name for name in chosen if getattr(settings, name) != getattr(default, name)]
        which = f"--mjcf {self.mjcf}" if self.mjcf else self.robot
        words = [
            f"nerd-gym train {which} --model {kind}",
            *(f"--{n.replace('_', '-')} {getattr(settings, n)}" for n in changed),
        ]
        words += [f"--size {' '.join(self.size)}"] if self.size else []
        words += [f"--ignore {' '.join(self.ignore)}"] if self.ignore else []
        words += [f"--start {self.start.name}"] if self.start else []
        if self.refine:
            words += [
                f"--refine {' '.join(path.name for path in self.refine)} --new-transitions {self.new_transitions}"
            ]
            words += [f"--newest {self.newest}"]
            start = self.start or packaged_model(robot, DEFAULT_TEACHER)
            out = self.out or Path("out/models") / f"{start.stem}-refined.safetensors"
            facts = refine(self.refine, start, data, robot, out, settings, count(self.new_transitions), " ".join(words))
        else:
            facts = train(data, robot, out, settings, " ".join(words))
        if "trust" not in facts:
            return  # one of several processes, and not the first
        if "rank" in facts:
            print(f"{facts['rank']} combinations of parameters determined, residual {facts['residual']:.1e}")
        print(f"trust: rank correlation with the true error {facts['trust']['rank_correlation']:.2f} on unseen frames")
        print(f"written: {out}; measure it with nerd-gym evaluate {self.mjcf or self.robot} --model {out}")
        if self.mjcf:
            ignore = f", ignore={list(self.ignore)}" if self.ignore else ""
            make = f'gymnasium.make("NeRD/Robot-v0", mjcf="{self.mjcf}"{ignore}, backend="neural", model="{out}")'
            model = f'nerd_gym.RobotModel.from_mjcf("{self.mjcf}"{ignore})'
            fixed = f'nerd_gym.make_backend("neural", {model}, 1, model="{out}")'
            print(f"use it:  {make if robot.free_base else fixed}")

    def _which_robot(self):
        if bool(self.robot) == bool(self.mjcf):
            given = f"both {self.robot} and --mjcf {self.mjcf} were" if self.robot else "neither ROBOT nor --mjcf was"
            raise ValueError(f"{given} given; valid: nerd-gym train ROBOT, nerd-gym train --mjcf FILE")
        if self.data_transitions and not self.mjcf:
            raise ValueError(f"--data-transitions {self.data_transitions} goes with --mjcf only")
        return robot_of(self.robot or str(self.mjcf), self.ignore, own=not self.robot)

    def _generate(self, robot, kind: str, data: Path) -> None:
        """Make the dataset if it is not there; one that is must be of the size that is asked for, if one is."""
        from nerd_gym.data.dataset import DatasetPlan, generate

        if data.exists() and not self.data_transitions:
            return
        transitions = count(self.data_transitions or ("200k" if kind == "structured" else "1M"))
        counts = generate(DatasetPlan(robot, DEFAULT, transitions, seed=self.seed), data)
        print("  ".join(f"{name} {value:,}" for name, value in counts.items()))


@dataclass
class Evaluate:
    """Roll learned models out against their teacher, beside the teacher's own error: a table, plot, film, json."""

    robot: tyro.conf.Positional[str]
    """A packaged robot or the path of an MJCF."""
    model: tuple[Path, ...] = ()
    """Models to evaluate; by default the packaged one."""
    backend: str = "neural"
    """The backend that runs the models: neural, or hybrid."""
    teacher: str = DEFAULT
    """The backend that is taken for the truth."""
    reference: bool = False
    """The truth is the published simulator with its mistakes; the packaged model is that of it."""
    rollouts: int = 2048
    """Rollouts per scenario."""
    seed: int = 500
    """Seed of starts and actions."""
    scenario: str | None = None
    """Only scenarios with this text in their name."""
    out: Path | None = None
    """Folder for evaluation.json, .png and .mp4; by default out/evaluate/ROBOT."""
    video: bool = True
    """Whether to film."""
    ignore: tuple[str, ...] = ()
    """Features of an MJCF to leave out on every backend, e.g. self_collision gravcomp."""

    def run(self) -> None:
        from nerd_gym.backends import make_backend
        from nerd_gym.dynamics.evaluate import run_evaluation

        robot = robot_of(self.robot, self.ignore)
        models: dict[str, Path | None] = {path.stem: path for path in self.model}
        for path in self.model:
            make_backend(self.backend, robot, 1, model=path).close()  # refuse a wrong one before anything is computed
        out = self.out or Path("out/evaluate") / robot.name
        run_evaluation(
            robot,
            models or {self.backend: None},
            out,
            self.teacher,
            self.rollouts,
            self.seed,
            self.scenario,
            self.video,
            self.reference,
            self.backend,
        )


def network_size(text: str) -> tuple[str, int]:
    """KEY=VALUE with a whole number, e.g. width=384."""
    key, value = key_value(text)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"size {key} is {value!r}; it must be a whole number")
    return key, value


def robot_of(text: str, ignore: tuple[str, ...] = (), own: bool = False):
    """A packaged robot by name, or the path of an MJCF."""
    from nerd_gym.robots.model import RobotModel

    if own or text.endswith(".xml"):
        return RobotModel.from_mjcf(text, ignore)
    if ignore:
        raise ValueError(f"--ignore {' '.join(ignore)} goes with an MJCF; {text} is a packaged robot, simulated whole")
    return RobotModel.named(text)
