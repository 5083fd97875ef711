"""A dataset in memory: what to train on, what is held back, windows and frames drawn from them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import check_facts

from .dataset import BLOCK, MOST_FRAMES, shapes
from .hdf5 import Hdf5File, array_in, attributes, open_hdf5

NEEDED = {"robot": (str,), "robot_hash": (str,), "backend": (str,), "backend_options": (str,), "preset": (str,)}
NEEDED |= {"frames": (int,), "blocks": (int,), "seed": (int,)}
HELD_BACK = 0.05  # of the trajectories
ONE_VALUE = ("backend", "backend_options", "frames")  # that files read together must agree in
Transitions = dict[str, Tensor]  # q, qd, force, next_q, next_qd [B, ...], ground_point, ground_normal [B, 3]


@dataclass(frozen=True)
class Data:
    """Trajectories of one robot: q [M, T+1, nq], qd [M, T+1, nv], force [M, T, nj], ground_point, ground_normal."""

    robot: RobotModel
    train: dict[str, Tensor]
    held: dict[str, Tensor]
    facts: dict[str, Any]
    newest: int = 0  # trajectories at the end of `train` that are of the last file

    @classmethod
    def load(cls, paths: Path | Sequence[Path], robot: RobotModel) -> Data:
        """Files of `nerd-gym generate` of this robot and one teacher; the last trajectories of each are held back."""
        paths = [paths] if isinstance(paths, Path) else list(paths)
        files = [_read(path, robot) for path in paths]
        for path, (_, facts) in zip(paths, files, strict=True):
            for name in ONE_VALUE:
                if facts[name] != files[0][1][name]:
                    raise ValueError(f"{path} has {name} {facts[name]!r}; {paths[0]} has {files[0][1][name]!r}")
        train, held = [], []
        for path, (arrays, _) in zip(paths, files, strict=True):
            cut = len(arrays["q"]) - max(1, round(HELD_BACK * len(arrays["q"])))
            if cut < 1:
                raise ValueError(f"{path} holds {len(arrays['q'])} trajectories; at least 2 are needed")
            train.append({name: value[:cut] for name, value in arrays.items()})
            held.append({name: value[cut:] for name, value in arrays.items()})
        facts = files[0][1] | {"commands": [own["command"] for _, own in files]}
        return cls(robot, _joined(train), _joined(held), facts, len(train[-1]["q"]))

    def command(self) -> str:
        """What made the files."""
        return "; ".join(self.facts["commands"])


def read_facts(path: Path, robot: RobotModel) -> dict[str, Any]:
    """The attributes of a file of `nerd-gym generate`, if it is of this robot."""
    with open_hdf5(path) as file:
        return _facts(file, path, robot)


def _facts(file: Hdf5File, path: Path, robot: RobotModel) -> dict[str, Any]:
    facts = attributes(file)
    if facts.get("robot_hash") != robot.hash:
        found = f"{facts.get('robot')!r} ({facts.get('robot_hash')})"
        raise ValueError(f"{path} holds motion of robot {found}; this is {robot.name!r} ({robot.hash})")
    return facts


def _joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _read(path: Path, robot: RobotModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with open_hdf5(path) as file:
        facts = _facts(file, path, robot)
        check_facts(str(path), facts, NEEDED)
        if not 1 <= facts["frames"] <= MOST_FRAMES:
            raise ValueError(f"{path} has {facts['frames']} frames in a trajectory; valid: 1 to {MOST_FRAMES}")
        wanted = shapes(robot, facts["frames"])
        arrays = {name: torch.from_numpy(array_in(file, name, (None, *shape))) for name, shape in wanted.items()}
    if len({len(value) for value in arrays.values()}) > 1:
        raise ValueError(f"{path} has arrays of {', '.join(f'{len(v)} {n}' for n, v in arrays.items())} trajectories")
    return arrays, facts | {"command": _command(path, robot, facts)}


def _json(path: Path, facts: dict[str, Any], name: str, kind: type) -> Any:
    """A fact that is json of a kind; empty if it is not told."""
    text = facts.get(name, json.dumps(kind()))
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} has {name} = {str(text)[:40]!r}, which is not json: {error}") from error
    if not isinstance(value, kind):
        raise ValueError(f"{path} has {name} = {str(text)[:40]!r}; it must be a json {kind.__name__}")
    return value


def _command(path: Path, robot: RobotModel, facts: dict[str, Any]) -> str:
    """What made a file."""
    f, own = facts, not robot.packaged
    played = _json(path, f, "policies", list)
    if any(not isinstance(pair, list) or len(pair) != 2 for pair in played):
        raise ValueError(f"{path} has policies = {f['policies'][:40]!r}; it must be pairs of a name and a hash")
    name = os.path.relpath(robot.path) if own else f["robot"]
    words = f"nerd-gym generate {name} --backend {f['backend']} --transitions {f['blocks'] * BLOCK * f['frames']} "
    words += f"--frames {f['frames']} --preset {f['preset']} --seed {f['seed']} --task-share {f.get('task_share', 0.0)}"
    policies = "".join(f" {name}" for name, _ in played)
    options = "".join(f" {key}={value}" for key, value in _json(path, f, "backend_options", dict).items())
    starts = f" --starts {f['starts']}" if "starts" in f else ""
    starts += f" --ignore {f['ignored']}" if "ignored" in f else ""
    return words + starts + (policies and f" --policies{policies}") + (options and f" --option{options}")


def windows(arrays: dict[str, Tensor], frames: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Random stretches of `frames` frames: q and qd [B, frames + 1, ...], force [B, frames, nj], ground [B, 3]."""
    count, length = arrays["force"].shape[:2]
    row = torch.randint(count, (size,), generator=generator)
    start = torch.randint(length - frames + 1, (size,), generator=generator)
    at = start[:, None] + torch.arange(frames + 1)
    batch = {name: arrays[name][row[:, None], at] for name in ("q", "qd")}
    batch["force"] = arrays["force"][row[:, None], at[:, :-1]]
    return batch | {name: arrays[name][row] for name in ("ground_point", "ground_normal")}


def frames_at(arrays: dict[str, Tensor], row: Tensor, at: Tensor) -> Transitions:
    """Single frames: trajectory `row` [B] at frame `at` [B]."""
    frames = {name: arrays[name][row, at] for name in ("q", "qd", "force")}
    frames |= {f"next_{name}": arrays[name][row, at + 1] for name in ("q", "qd")}
    return frames | {name: arrays[name][row] for name in ("ground_point", "ground_normal")}


def nearness(robot: RobotModel, arrays: dict[str, Tensor], chunk: int = 2048) -> tuple[Tensor, Tensor]:
    """Per frame [M, T]: least distance to the ground at its ends, largest displacement of a candidate point."""
    find = ContactFinder(robot, Kinematics(robot))
    near, displacement = [], []
    for rows in torch.arange(len(arrays["q"])).split(chunk):
        q, length = arrays["q"][rows], arrays["q"].shape[1]
        ground = (arrays[k][rows].repeat_interleave(length, 0) for k in ("ground_point", "ground_normal"))
        contacts = find(q.flatten(0, 1), *ground)
        distance = contacts.distance.amin(-1).unflatten(0, (-1, length))
        centre = contacts.centre.unflatten(0, (-1, length))
        near.append(torch.minimum(distance[:, 1:], distance[:, :-1]))
        displacement.append((centre[:, 1:] - centre[:, :-1]).norm(dim=-1).amax(-1))
    return torch.cat(near), torch.cat(displacement)
