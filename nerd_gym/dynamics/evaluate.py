"""Rollouts of learned models against their teacher, beside the teacher's own error: a table, a plot, a film, json.

Every student starts where the teacher starts and is given the same actions. The yardsticks are the teacher itself
with half and with twice its substeps, with its start off by 1e-3, and with its start off by one rounding error: no
model can be told from the teacher more finely than that.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerd_gym.backends import backend_class, installed_backends, make_backend
from nerd_gym.backends.base import Backend
from nerd_gym.backends.neural import NeuralBackend
from nerd_gym.data.excitation import Sampler, ranges_for
from nerd_gym.dynamics.models.checkpoint import DEFAULT_TEACHER
from nerd_gym.envs.factory import endless_env
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.registration import task_of
from nerd_gym.robots.features import HINGE
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import joint_difference, state_error
from nerd_gym.utils.arguments import check_counts, check_seed
from nerd_gym.utils.files import atomic_write, check_output
from nerd_gym.utils.progress import progress
from nerd_gym.utils.video import VideoWriter

ROUNDING = 2.0**-24
UNITS = {"position": "m", "orientation": "rad", "slides": "m", "hinges": "rad", "end_effector": "m"}
AT = (10, 50, 100, 1000)  # frames that the table shows
YARDSTICKS = ("half the substeps", "twice the substeps", "start off by 1e-3", "start off by rounding")
RANDOM_GROUNDS = 20
REDRAWS = 200


@dataclass(frozen=True)
class Scenario:
    """Starts and pushes: of a task, or at random for a robot without one."""

    name: str
    frames: int
    random: bool  # random actions, drawn anew each step; otherwise none
    env_id: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    clear: bool = False  # draw starts anew until none is inside the ground


def scenarios(robot: RobotModel) -> list[Scenario]:
    """What a robot is evaluated on."""
    env_id = task_of(robot)
    if env_id is None:
        return [Scenario("passive", 1000, False), Scenario("random forces", 1000, True)]
    if robot.name == "pendulum_contact":
        grounds: list[tuple[str, Any]] = [(f"ground {k}", k) for k in range(7)]
        grounds += [(f"random ground {k}", plane) for k, plane in enumerate(random_grounds(RANDOM_GROUNDS))]
        passive = [
            Scenario(f"passive, {name}", 100, False, env_id, {"ground": plane}, name.startswith("random"))
            for name, plane in grounds
        ]
        return [*passive, Scenario("random actions, any ground", 1000, True, env_id, {"ground": "random"})]
    if robot.name == "franka":
        random = [
            Scenario(f"random actions, {control} control", 1000, True, env_id, {"control": control})
            for control in ("position", "torque")
        ]
        return [Scenario("passive", 1000, False, env_id, {"control": "torque"}), *random]
    frames = 100 if robot.free_base else 1000  # on legs two simulators part within a second or two
    return [Scenario("passive", frames, False, env_id), Scenario("random actions", frames, True, env_id)]


def random_grounds(count: int, seed: int = 500) -> list[tuple[list[float], list[float]]]:
    """Planes in any direction, 1 to 2.8 m from the pendulum's first hinge: (point, normal) each."""
    from nerd_gym.envs.pendulum_contact import BASE

    generator = np.random.default_rng(seed)
    planes = []
    for _ in range(count):
        normal = generator.normal(size=3) * np.array([1.0, 0.5, 1.0])
        normal /= np.linalg.norm(normal)
        point = np.array(BASE) - normal * generator.uniform(1.0, 2.8)
        planes.append((point.tolist(), normal.tolist()))
    return planes


def joint_errors(robot: RobotModel, truth: Backend, student: Backend) -> dict[str, Tensor]:
    """Errors [N] of base position and orientation, slides, hinges (means of absolute differences), end effector."""
    errors = state_error(robot, truth.q, student.q)
    del errors["joints"]
    hinge = torch.as_tensor(robot.mj_model.jnt_type[-robot.nj :] == HINGE, device=truth.device)
    off = joint_difference(robot, truth.q, student.q)
    for name, kind in (("slides", ~hinge), ("hinges", hinge)):
        if bool(kind.any()):
            errors[name] = off[:, kind].mean(-1)
    sites = [robot.mj_model.site(k).name for k in range(robot.mj_model.nsite)]
    if "end_effector" in sites:
        errors["end_effector"] = (truth.site("end_effector") - student.site("end_effector")).norm(dim=-1)
    return errors


class BareRobots:
    """Robots without a task, driven like an environment: an action in [-1, 1] is the part of a joint's force limit."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self._limit = torch.as_tensor(backend.robot.force_limit, dtype=torch.float32)

    def step(self, actions: Tensor) -> None:
        """One frame under actions [N, nj]."""
        self.backend.step(actions * self._limit)

    def close(self) -> None:
        """Give back threads."""
        self.backend.close()


class Rollouts:
    """A teacher and its students side by side through a scenario: environments, or robots without a task."""

    def __init__(
        self,
        robot: RobotModel,
        scenario: Scenario,
        models: dict[str, Path | None],
        teacher: str,
        rollouts: int,
        seed: int,
        reference: bool = False,
        learned: str = NeuralBackend.name,
    ):
        self.robot, self.scenario, self.n, self.seed = robot, scenario, rollouts, seed
        published = {"reference": True} if reference else {}
        few = {"substeps": max(1, robot.substeps // 2)}
        students: dict[str, tuple[str, dict[str, Any]]] = {}
        for name, path in models.items():
            students[name] = (learned, {"teacher": teacher} | published if path is None else {"model": path})
        for name, options in zip(YARDSTICKS, (few, {"substeps": 2 * robot.substeps}, {}, {}), strict=True):
            students[name] = (teacher, options | published)
        self.truth = self._make(teacher, published)
        self.students = {name: self._make(backend, options) for name, (backend, options) in students.items()}
        self._start()

    def _make(self, backend: str, options: dict[str, Any]) -> NerdVectorEnv | BareRobots:
        if self.scenario.env_id is None:
            return BareRobots(make_backend(backend, self.robot, self.n, **options))
        return endless_env(self.scenario.env_id, self.n, backend, **self.scenario.options, **options)

    def _start(self) -> None:
        self._random = torch.Generator().manual_seed(self.seed)
        truth = self.truth.backend
        if isinstance(self.truth, NerdVectorEnv):
            self._reset(self.truth)
        else:
            sampler = Sampler(truth, ranges_for(self.robot, "wide"), self.seed, 0)
            sampler.start()
        everyone = torch.ones(self.n, dtype=torch.bool, device=truth.device)
        nudge = torch.sign(torch.rand(self.n, self.robot.nj, generator=self._random) - 0.5).to(truth.device)
        for name, item in self.students.items():
            q = truth.q.clone()
            joints = q[:, self.robot.joint_q]
            if name == "start off by 1e-3":
                joints += 1e-3 * nudge
            if name == "start off by rounding":
                joints *= 1 + 2 * ROUNDING * nudge
            item.backend.reset(everyone, q, truth.qd, (truth.ground_point, truth.ground_normal))

    def _reset(self, truth: NerdVectorEnv) -> None:
        """Start every environment, with the same goals; then the teacher's anew until none is inside the ground."""
        for item in (truth, *self.students.values()):
            if isinstance(item, NerdVectorEnv):
                item.reset(seed=self.seed)
        for again in range(1, REDRAWS * self.scenario.clear):
            inside = truth.backend.contacts.distance.amin(-1) < 0
            if not truth.backend.may_hold(inside):
                break
            truth.reset(seed=self.seed + again * self.n, options={"reset_mask": inside})

    def run(self) -> Iterator[tuple[int, dict[str, dict[str, Tensor]], dict[str, Tensor]]]:
        """Frame by frame: its number, errors by student and measure [N], and which rows of whom came apart."""
        frame, per_step = 0, self.truth.task.frames if isinstance(self.truth, NerdVectorEnv) else 1
        while frame < self.scenario.frames:
            self._step()
            frame += per_step
            errors = {
                name: joint_errors(self.robot, self.truth.backend, item.backend) for name, item in self.students.items()
            }
            everyone = {"teacher": self.truth} | self.students
            yield frame, errors, {name: ~item.backend.healthy for name, item in everyone.items()}

    def _step(self) -> None:
        columns = self.truth.task.action_size if isinstance(self.truth, NerdVectorEnv) else self.robot.nj
        action = torch.zeros(self.n, columns)
        if self.scenario.random:
            action = 2 * torch.rand(self.n, columns, generator=self._random) - 1
        for item in (self.truth, *self.students.values()):
            item.step(action)

    def close(self) -> None:
        """Give back threads."""
        for item in (self.truth, *self.students.values()):
            item.close()


def statistics(errors: Tensor) -> dict[str, Any]:
    """Of [N] errors."""
    finite = torch.nan_to_num(errors.float(), nan=torch.inf)
    low, middle, high = torch.quantile(finite, torch.tensor([0.25, 0.5, 0.75])).tolist()
    return {"mean": finite.mean().item(), "median": middle, "quartiles": [low, high], "std": finite.std().item()}


def evaluate(
    robot: RobotModel,
    models: dict[str, Path | None],
    teacher: str = DEFAULT_TEACHER,
    rollouts: int = 2048,
    seed: int = 500,
    only: str | None = None,
    on_frame: Callable[[Scenario, int, Rollouts], None] | None = None,
    reference: bool = False,
    learned: str = NeuralBackend.name,
) -> tuple[dict[str, Any], dict[str, dict[str, dict[str, np.ndarray]]]]:
    """Results by scenario, student and measure, and the curves that the plot shows."""
    todo = [s for s in scenarios(robot) if only is None or only in s.name]
    if not todo:
        raise ValueError(
            f"no scenario has {only!r} in its name; there are {', '.join(s.name for s in scenarios(robot))}"
        )
    results: dict[str, Any] = {}
    told: dict[str, dict[str, Any]] = {}
    curves: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    with progress(total=sum(s.frames for s in todo), unit="frame", desc=f"evaluate {robot.name}") as bar:
        for scenario in todo:
            bar.set_postfix_str(scenario.name)
            group = Rollouts(robot, scenario, models, teacher, rollouts, seed, reference, learned)
            told = {name: about_model(group.students[name].backend) for name in models}
            result, curve = _one(group, lambda n: bar.update(n), on_frame)
            results[scenario.name], curves[scenario.name] = result, curve
            group.close()
    facts = {
        "command": command_of(robot, models, teacher, rollouts, seed, only, reference, learned),
        "models": told,
        "robot": robot.name,
        "robot_hash": robot.hash,
        "teacher": teacher,
        "physics": "reference" if reference else "default",
        "rollouts": rollouts,
        "seed": seed,
        "units": UNITS,
        "results": results,
    }
    return facts, curves


def command_of(
    robot: RobotModel,
    models: dict[str, Path | None],
    teacher: str,
    rollouts: int,
    seed: int,
    only: str | None,
    reference: bool,
    learned: str = NeuralBackend.name,
) -> str:
    """The command that evaluates the same again, from the same folder."""
    words = ["nerd-gym", "evaluate", robot.name if robot.packaged else os.path.relpath(robot.path)]
    own = [os.path.relpath(path) for path in models.values() if path is not None]
    words += ["--backend", learned] if learned != NeuralBackend.name else []
    words += ["--model", *own] if own else []
    words += ["--teacher", teacher, "--rollouts", str(rollouts), "--seed", str(seed)]
    words += ["--scenario", only] if only else []
    words += ["--ignore", *robot.ignored] if robot.ignored else []
    return shlex.join([*words, "--reference"] if reference else words)


TOLD = (
    "kind",
    "network",
    "law",
    "teacher",
    "teacher_options",
    "data_command",
    "command",
    "start",
    "seed",
    "r2",
    "trust",
)


def about_model(backend: Backend) -> dict[str, Any]:
    """How a model was made, and what of it is known before any rollout."""
    return {key: backend.facts[key] for key in TOLD if key in backend.facts}


def _one(group: Rollouts, update: Callable[[int], Any], on_frame) -> tuple[dict[str, Any], dict[str, Any]]:
    totals: dict[tuple[str, str], list[float]] = {}
    result: dict[str, Any] = {name: {} for name in group.students}
    curve: dict[str, dict[str, list]] = {name: {} for name in group.students}
    lost = {name: torch.zeros(group.n, dtype=torch.bool) for name in ("teacher", *group.students)}
    last = 0
    for frame, errors, unhealthy in group.run():
        lost["teacher"] |= unhealthy["teacher"].cpu()
        for name, by_measure in errors.items():
            lost[name] |= unhealthy[name].cpu()
            for measure, error in by_measure.items():
                error = error.cpu()
                if frame <= 100:
                    totals.setdefault((name, measure), []).append(error.mean().item())
                low, middle, high = np.quantile(error.numpy(), (0.25, 0.5, 0.75))
                curve[name].setdefault(measure, []).append((frame, low, middle, high, error.mean().item()))
                if frame in AT:
                    result[name].setdefault(measure, {})[str(frame)] = statistics(error)
        if on_frame is not None:
            on_frame(group.scenario, frame, group)
        update(frame - last)
        last = frame
    for (name, measure), values in totals.items():
        result[name][measure]["mean over 100"] = sum(values) / len(values)
    for name in group.students:
        result[name]["diverged"] = int(lost[name].sum())
    result["teacher"] = {"diverged": int(lost["teacher"].sum())}
    return result, {name: {m: np.array(rows) for m, rows in by.items()} for name, by in curve.items()}


def evaluation_table(facts: dict[str, Any]) -> str:
    """Mean / median by scenario, measure and student."""
    teacher = f"teacher {facts['teacher']} ({facts['physics']} physics)"
    lines = [f"{facts['robot']}: error against {teacher}, {facts['rollouts']} rollouts"]
    columns = ["mean over 100", *(str(at) for at in AT)]
    for scenario, students in facts["results"].items():
        lines += ["", scenario, f"{'':46s}{columns[0]:>14s}" + "".join(f"{'at ' + c:>20s}" for c in columns[1:])]
        measures = [m for m in UNITS if m in next(iter(students.values()))]
        for measure in measures:
            for name, result in students.items():
                if measure not in result:
                    continue  # the teacher, who has no error
                cells = f"{result[measure]['mean over 100']:14.1e}"
                for at in columns[1:]:
                    e = result[measure].get(at)
                    cells += f"{e['mean']:10.1e} /{e['median']:8.1e}" if e else " " * 20
                lines.append(f"{measure + ' ' + UNITS[measure]:10.10s} {name:34.34s} {cells}")
        lost = {name: r["diverged"] for name, r in students.items() if r["diverged"]}
        diverged = [f"{name} {count}" for name, count in lost.items()]
        lines.append(f"diverged: {', '.join(diverged) or 'none'}")
    return "\n".join(lines)


def plot(facts: dict[str, Any], curves: dict[str, Any], path: Path) -> None:
    """Median and quartiles over the frames, a panel per scenario and measure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = list(curves)[:8] if len(curves) <= 8 else [*list(curves)[:7], list(curves)[-1]]
    panels = [(s, m) for s in shown for m in UNITS if m in next(iter(curves[s].values()))]
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4.2 * columns, 3.2 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (scenario, measure) in zip(axes.flat, panels, strict=False):
        for name, by_measure in curves[scenario].items():
            frame, low, middle, high, _ = by_measure[measure].T
            style = "--" if name in YARDSTICKS else "-"
            [line] = axis.semilogy(frame, middle.clip(1e-9), style, lw=1 if style == "--" else 1.8, label=name)
            axis.fill_between(frame, low.clip(1e-9), high.clip(1e-9), alpha=0.12, color=line.get_color())
        axis.set_title(f"{scenario}\n{measure} ({UNITS[measure]})", fontsize=9)
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=7)
    teacher = f"{facts['teacher']}, {facts['physics']} physics"
    figure.suptitle(f"{facts['robot']}: median error and quartiles against {teacher}", fontsize=11)
    figure.tight_layout()
    with atomic_write(path) as part:
        figure.savefig(part, dpi=110, format="png")
    pyplot.close(figure)


class Film:
    """The first rollouts of every scenario: the teacher in blue, the first model over it in orange."""

    def __init__(self, writer: VideoWriter, frames: int = 120, rows: int = 2, scenarios: int = 3):
        self._writer, self._frames, self._rows = writer, frames, rows
        self._names: list[str] = []
        self._limit = scenarios

    def __call__(self, scenario: Scenario, frame: int, group: Rollouts) -> None:
        """To be called after every frame."""
        if not isinstance(group.truth, NerdVectorEnv) or frame > self._frames or frame % 3:
            return
        if scenario.name not in self._names:
            if len(self._names) == self._limit:
                return
            self._names.append(scenario.name)
        from nerd_gym.envs.render import overlay

        student = next(iter(group.students.values()))
        text = f"{scenario.name}   teacher blue, model orange   frame {frame}"
        self._writer.add(overlay(group.truth, student.backend.q, min(self._rows, group.n), text))


def run_evaluation(
    robot: RobotModel,
    models: dict[str, Path | None],
    out: Path,
    teacher: str = DEFAULT_TEACHER,
    rollouts: int = 2048,
    seed: int = 500,
    only: str | None = None,
    video: bool = True,
    reference: bool = False,
    learned: str = NeuralBackend.name,
) -> dict[str, Any]:
    """Evaluate, print the table, write evaluation.json, .png and .mp4 into `out`."""
    check_counts(rollouts=rollouts)
    check_seed(seed)
    named = [s.name for s in scenarios(robot)]
    if only is not None and not any(only in name for name in named):
        raise ValueError(f"no scenario has {only!r} in its name; there are: {', '.join(named)}")
    backend_class(teacher)
    options = backend_class(learned).options
    if "teacher" not in options or (reference and "reference" not in options):
        wanted = "models of the published simulator" if reference else "learned models"
        needed = {"teacher", "reference"} if reference else {"teacher"}
        valid = ", ".join(name for name in installed_backends() if needed <= backend_class(name).options.keys())
        raise ValueError(f"backend {learned!r} has no {wanted}; valid: {valid}")
    check_output(out, folder=True)
    out.mkdir(parents=True, exist_ok=True)
    filmed = video and any(s.env_id for s in scenarios(robot))
    with VideoWriter(out / "evaluation.mp4", fps=20) if filmed else nullcontext() as writer:
        film = None if writer is None else Film(writer)
        facts, curves = evaluate(robot, models, teacher, rollouts, seed, only, film, reference, learned)
    print(evaluation_table(facts))
    with atomic_write(out / "evaluation.json") as part:
        part.write_text(json.dumps(facts, indent=1) + "\n")
    plot(facts, curves, out / "evaluation.png")
    print(f"written to {out}: evaluation.json, evaluation.png{', evaluation.mp4' if filmed else ''}")
    return facts
