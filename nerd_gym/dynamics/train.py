"""Learn a `structured` model from a dataset and measure it beside two yardsticks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import torch

from ..backends import make_backend
from ..backends.base import Backend
from ..drift import state_error
from ..robots.model import RobotModel
from .checkpoint import save_model
from .identify import Identification, Inertias
from .sampling import Sampler, ranges_for

KIND = "structured"


@dataclass(frozen=True)
class Result:
    """A trained model and what was measured of it."""

    inertias: Inertias
    facts: dict[str, Any]


def train_structured(data: Path, robot: RobotModel, out: Path, transitions: int, seed: int, command: str) -> Result:
    """Fit to `transitions` random transitions of the dataset, measure, save."""
    if robot.free_base or robot.ground is not None:
        what = "a free base" if robot.free_base else "contacts"
        raise ValueError(f"{robot.name} has {what}; {KIND} models are for robots with a fixed base and no contacts")
    with h5py.File(data) as file:
        about = dict(file.attrs)
        if about["robot_hash"] != robot.hash:
            found = f"{about['robot']!r} ({about['robot_hash']})"
            raise ValueError(f"{data} holds motion of robot {found}; this is {robot.name!r} ({robot.hash})")
        arrays = {name: torch.as_tensor(file[name][:]) for name in ("q", "qd", "force")}
    generator = torch.Generator().manual_seed(seed)
    count, frames = arrays["force"].shape[:2]
    row = torch.randint(count, (transitions,), generator=generator)
    at = torch.randint(frames, (transitions,), generator=generator)
    q, qd, force = arrays["q"], arrays["qd"], arrays["force"]
    inertias = Identification(robot).fit(q[row, at], qd[row, at], force[row, at], q[row, at + 1], qd[row, at + 1])
    facts = {
        "kind": KIND,
        "robot": robot.name,
        "robot_hash": robot.hash,
        "frame_dt": robot.frame_dt,
        "substeps": robot.substeps,
        "teacher": str(about["backend"]),
        "teacher_options": str(about["backend_options"]),
        "transitions": transitions,
        "seed": seed,
        "rank": inertias.rank,
        "residual": inertias.residual,
        "command": command,
        "data_command": (
            f"nerd-gym generate {robot.name} --backend {about['backend']} --transitions {about['transitions']} "
            f"--frames {about['frames']} --preset {about['preset']} --seed {about['seed']}"
        ),
    }
    save_model(out, {"parameters": inertias.parameters}, facts)
    facts["errors"] = measure(robot, str(about["backend"]), out)
    save_model(out, {"parameters": inertias.parameters}, facts)
    return Result(inertias, facts)


def measure(robot: RobotModel, teacher: str, model: Path, num_envs: int = 512, seed: int = 500) -> dict[str, Any]:
    """Joint error against the teacher at 10, 50 and 100 frames under random forces from random wide starts.

    Beside it: the teacher with half and with twice its substeps, and with its start perturbed by 1e-3.
    """
    truth = make_backend(teacher, robot, num_envs)
    students: dict[str, Backend] = {
        "model": make_backend("neural", robot, num_envs, model=model),
        "half the substeps": make_backend(teacher, robot, num_envs, substeps=max(1, robot.substeps // 2)),
        "twice the substeps": make_backend(teacher, robot, num_envs, substeps=2 * robot.substeps),
        "start perturbed by 1e-3": make_backend(teacher, robot, num_envs),
    }
    sampler = Sampler(truth, ranges_for(robot, "wide"), seed, 0)
    sampler.start()
    everyone = torch.ones(num_envs, dtype=torch.bool)
    for name, student in students.items():
        nudge = 1e-3 * torch.sign(sampler.uniform(num_envs, robot.nq)) if "perturbed" in name else 0.0
        student.reset(everyone, truth.q + nudge, truth.qd)
    forces = sampler.forces(100)
    errors: dict[str, Any] = {name: {} for name in students}
    for frame in range(1, 101):
        force = forces.at(frame - 1, truth.q, truth.qd)
        for backend in (truth, *students.values()):
            backend.step(force)
        if frame in (10, 50, 100):
            for name, student in students.items():
                error = state_error(robot, truth.q, student.q)["joints"]
                errors[name][str(frame)] = {"mean": error.mean().item(), "median": error.median().item()}
    return errors


def table(errors: dict[str, Any]) -> str:
    """Mean / median joint error as text."""
    lines = [f"{'joint error, mean / median':28s}" + "".join(f"{frame:>15s} frames" for frame in ("10", "50", "100"))]
    for name, by_frame in errors.items():
        cells = "".join(f"{e['mean']:12.1e} /{e['median']:8.1e}" for e in by_frame.values())
        lines.append(f"{name:28s}{cells}")
    return "\n".join(lines)
