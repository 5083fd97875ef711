"""Trajectories of random motion in one HDF5 file.

``q`` [M, T+1, nq], ``qd`` [M, T+1, nv], ``force`` [M, T, nj], ``ground_point`` and ``ground_normal`` [M, 3], with
the robot's hash, backend, seed and ranges as attributes.

Blocks of trajectories are written one by one beside the file that they will make; each appears when it is whole.
A run that is killed loses the block it was in, and the same command goes on with the next one. What a block
holds depends on seed and number alone, so that an interrupted run and a whole one make the same file.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from nerd_gym.backends import make_backend
from nerd_gym.backends.base import Backend
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.arguments import check_seed, whole
from nerd_gym.utils.files import atomic_write, file_hash
from nerd_gym.utils.progress import progress

from .excitation import Sampler, ranges_for
from .hdf5 import Hdf5Reader, array_in, attributes, same_plan
from .task_rollouts import STARTS, WILD, TaskRollouts, all_limited, check_policies

FORMAT = 1
FIELDS = ("q", "qd", "force", "ground_point", "ground_normal")
BLOCK = 256  # trajectories
MOST_FRAMES = 1_000_000


@dataclass(frozen=True)
class DatasetPlan:
    """What a dataset holds; two runs with the same plan make the same file."""

    robot: RobotModel
    backend: str
    transitions: int
    frames: int = 100
    preset: str = "wide"
    seed: int = 0
    options: tuple[tuple[str, Any], ...] = ()  # of the backend
    task_share: float = 0.0  # the part of the blocks that starts where the robot's task starts (task_rollouts.py)
    policies: tuple[Path, ...] = ()  # that excitation the robots there
    model: Path | None = None  # to be refined: half of the rollouts begin where it takes the robots
    starts: tuple[str, ...] = STARTS  # kinds of those in the task's blocks, in turn

    @property
    def blocks(self) -> int:
        """How many blocks give at least the transitions asked for, if no trajectory is dropped."""
        return -(-self.transitions // (BLOCK * self.frames))

    def facts(self) -> dict[str, Any]:
        """Attributes of the file."""
        facts = {
            "format": FORMAT,
            "robot": self.robot.name,
            "robot_hash": self.robot.hash,
            "frame_dt": self.robot.frame_dt,
            "backend": self.backend,
            "backend_options": json.dumps(dict(self.options), sort_keys=True),
            "preset": self.preset,
            "ranges": json.dumps(ranges_for(self.robot, self.preset).as_dict()),
            "seed": self.seed,
            "task_share": self.task_share,
            "policies": json.dumps([[path.name, file_hash(path)] for path in self.policies]),
            "frames": self.frames,
            "blocks": self.blocks,
        }
        if self.robot.ignored:
            facts["ignored"] = " ".join(self.robot.ignored)
        if self.model:
            facts["model"] = file_hash(self.model)
        if self.starts != STARTS:
            facts["starts"] = " ".join(self.starts)
        return facts


def generate(plan: DatasetPlan, path: Path) -> dict[str, int]:
    """Make the file, going on where an earlier run stopped. Returns counts of trajectories, transitions, dropped."""
    if plan.transitions < 1 or plan.frames < 1:
        raise ValueError(f"transitions is {plan.transitions} and frames {plan.frames}; both must be at least 1")
    whole("frames", plan.frames, MOST_FRAMES)
    check_seed(plan.seed)
    if not 0 <= plan.task_share <= 1:
        raise ValueError(f"the share of the task is {plan.task_share}; it must be from 0 to 1")
    if plan.policies and not plan.task_share:
        names = ", ".join(path.name for path in plan.policies)
        raise ValueError(
            f"policies ({names}) drive robots from the starts of their task, whose share is 0; give it one"
        )
    if plan.starts != STARTS and not plan.task_share:
        given = " ".join(plan.starts)
        raise ValueError(f"starts are those of a robot's task, whose share is 0; give it one to have {given!r}")
    odd = [start for start in plan.starts if start not in STARTS]
    if odd or not plan.starts:
        raise ValueError(f"unknown start {odd[0] if odd else ''!r}; valid: {', '.join(STARTS)}")
    if plan.task_share:
        check_policies(plan.robot, plan.policies)
    facts = plan.facts()
    if path.exists():
        with Hdf5Reader() as reader:
            made = same_plan(reader.open(path), facts)
        return {name: int(made[name]) for name in ("trajectories", "transitions", "dropped")}
    parts = path.with_name(f"{path.name}.parts")
    names = [parts / f"{block:06d}.h5" for block in range(plan.blocks)]
    missing = [block for block, name in enumerate(names) if not name.exists()]
    if len(missing) < len(names):
        with Hdf5Reader() as reader:
            for name in (name for name in names if name.exists()):
                same_plan(reader.open(name), facts)
    if missing:
        backend = make_backend(plan.backend, plan.robot, BLOCK, **dict(plan.options))
        parts.mkdir(parents=True, exist_ok=True)  # now that the backend could be made
        rollouts = None
        if plan.task_share:
            rollouts = TaskRollouts(
                plan.robot, plan.backend, BLOCK, plan.policies, dict(plan.options), plan.model, plan.starts
            )
        with progress(total=plan.blocks, initial=plan.blocks - len(missing), unit="block", desc=path.name) as bar:
            for block in missing:
                _write(names[block], *make_block(plan, backend, block, rollouts), facts)
                bar.update()
        backend.close()
        if rollouts is not None:
            rollouts.close()
    counts = _merge(plan.robot, names, path, facts)
    shutil.rmtree(parts)
    return counts


def make_block(
    plan: DatasetPlan, backend: Backend, block: int, rollouts: TaskRollouts | None
) -> tuple[dict[str, np.ndarray], int]:
    """One block's trajectories and how many were left out."""
    if rollouts is not None and is_task_block(plan.task_share, block):
        excitation = rollouts.start(int(block * plan.task_share + 1e-9), block, plan.seed)
        fastest = math.inf if all_limited(plan.robot) else WILD
        return _record(excitation.backend, plan.frames, lambda frame: excitation.step(), fastest)
    sampler = Sampler(backend, ranges_for(plan.robot, plan.preset, block), plan.seed, block)
    sampler.start()
    forces = sampler.forces(plan.frames)

    def push(frame: int) -> torch.Tensor:
        force = forces.at(frame, backend.q, backend.qd)
        backend.step(force)
        return force

    return _record(backend, plan.frames, push)


def is_task_block(share: float, block: int) -> bool:
    """Whether a block is one of the task's, spread evenly over them all."""
    return int((block + 1) * share + 1e-9) > int(block * share + 1e-9)


def _record(
    backend: Backend, frames: int, push: Callable[[int], torch.Tensor], fastest: float = math.inf
) -> tuple[dict[str, np.ndarray], int]:
    """Trajectories of the rows that stay healthy, their joints no faster than `fastest`, while `push` moves them frame
    by frame, and how many do not."""
    healthy = torch.ones(BLOCK, dtype=torch.bool, device=backend.device)
    rows: dict[str, list[np.ndarray]] = {"q": [], "qd": [], "force": []}

    def note(name: str, value: torch.Tensor) -> None:
        rows[name].append(value.cpu().numpy().copy())

    for frame in range(frames):
        note("q", backend.q)
        note("qd", backend.qd)
        note("force", push(frame))
        healthy &= backend.healthy & (backend.qd[:, backend.robot.joint_qd].abs().amax(-1) <= fastest)
    note("q", backend.q)
    note("qd", backend.qd)
    keep = healthy.cpu().numpy()
    data = {name: np.stack(values, 1)[keep] for name, values in rows.items()}
    for name in ("ground_point", "ground_normal"):
        data[name] = getattr(backend, name).cpu().numpy()[keep].copy()
    return data, int((~keep).sum())


def _write(path: Path, data: dict[str, np.ndarray], dropped: int, facts: dict[str, Any]) -> None:
    with atomic_write(path) as part, h5py.File(part, "w") as file:
        file.attrs.update(facts | {"dropped": dropped})
        for name, values in data.items():
            file.create_dataset(name, data=values)


def shapes(robot: RobotModel, frames: int) -> dict[str, tuple[int, ...]]:
    """Of the arrays of a file, for one trajectory."""
    sizes = ((frames + 1, robot.nq), (frames + 1, robot.nv), (frames, robot.nj), (3,), (3,))
    return dict(zip(FIELDS, sizes, strict=True))


def _merge(robot: RobotModel, names: list[Path], path: Path, facts: dict[str, Any]) -> dict[str, int]:
    """All blocks into one chunked file, which appears when it is whole."""
    dropped, frames = 0, int(facts["frames"])
    with atomic_write(path) as part, h5py.File(part, "w") as out, Hdf5Reader() as reader:
        arrays = {
            field: out.create_dataset(field, (0, *s), np.float32, maxshape=(None, *s), chunks=(BLOCK, *s))
            for field, s in shapes(robot, frames).items()
        }
        for name in names:
            block = reader.open(name)
            dropped += int(attributes(block)["dropped"])
            for field, data in arrays.items():
                values = array_in(block, field, (None, *data.shape[1:]))
                data.resize(len(data) + len(values), axis=0)
                data[len(data) - len(values) :] = values
        trajectories = len(arrays["q"])
        counts = {"trajectories": trajectories, "transitions": trajectories * frames, "dropped": dropped}
        out.attrs.update(facts | counts)
    return counts
