"""A dataset in memory: what to train on, what is held back, windows and frames drawn from them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import torch
from torch import Tensor

from ..robots.contacts import ContactFinder
from ..robots.kinematics import Kinematics
from ..robots.model import HERE, RobotModel
from .dataset import BLOCK, FIELDS

HELD_BACK = 0.05  # of the trajectories
Frames = dict[str, Tensor]  # q, qd, force, next_q, next_qd [B, ...], ground_point, ground_normal [B, 3]


@dataclass(frozen=True)
class Data:
    """Trajectories of one robot: q [M, T+1, nq], qd [M, T+1, nv], force [M, T, nj], ground_point, ground_normal."""

    robot: RobotModel
    train: dict[str, Tensor]
    held: dict[str, Tensor]
    facts: dict[str, Any]

    @classmethod
    def load(cls, path: Path, robot: RobotModel) -> Data:
        """A file of `nerd-gym generate`, if it is of this robot; its last trajectories are held back."""
        try:
            with h5py.File(path) as file:
                facts = dict(file.attrs)
                if facts.get("robot_hash") != robot.hash:
                    found = f"{facts.get('robot')!r} ({facts.get('robot_hash')})"
                    raise ValueError(f"{path} holds motion of robot {found}; this is {robot.name!r} ({robot.hash})")
                arrays = {name: torch.as_tensor(file[name][:]) for name in FIELDS}
        except OSError as error:
            raise ValueError(f"{path} is not a dataset of nerd-gym generate: {error}") from error
        cut = len(arrays["q"]) - max(1, round(HELD_BACK * len(arrays["q"])))
        if cut < 1:
            raise ValueError(f"{path} holds {len(arrays['q'])} trajectories; at least 2 are needed")
        train, held = ({k: v[part] for k, v in arrays.items()} for part in (slice(None, cut), slice(cut, None)))
        return cls(robot, train, held, facts)

    def command(self) -> str:
        """What made the file."""
        f, own = self.facts, self.robot.path.parent != HERE
        robot = os.path.relpath(self.robot.path) if own else f["robot"]
        options = "".join(f" {key}={value}" for key, value in json.loads(f["backend_options"]).items())
        count = f["blocks"] * BLOCK * f["frames"]
        return (
            f"nerd-gym generate {robot} --backend {f['backend']} --transitions {count} "
            f"--frames {f['frames']} --preset {f['preset']} --seed {f['seed']}" + (options and f" --option{options}")
        )


def windows(arrays: dict[str, Tensor], frames: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Random stretches of `frames` frames: q and qd [B, frames + 1, ...], force [B, frames, nj], ground [B, 3]."""
    count, length = arrays["force"].shape[:2]
    row = torch.randint(count, (size,), generator=generator)
    start = torch.randint(length - frames + 1, (size,), generator=generator)
    at = start[:, None] + torch.arange(frames + 1)
    batch = {name: arrays[name][row[:, None], at] for name in ("q", "qd")}
    batch["force"] = arrays["force"][row[:, None], at[:, :-1]]
    return batch | {name: arrays[name][row] for name in ("ground_point", "ground_normal")}


def frames_at(arrays: dict[str, Tensor], row: Tensor, at: Tensor) -> Frames:
    """Single frames: trajectory `row` [B] at frame `at` [B]."""
    frames = {name: arrays[name][row, at] for name in ("q", "qd", "force")}
    frames |= {f"next_{name}": arrays[name][row, at + 1] for name in ("q", "qd")}
    return frames | {name: arrays[name][row] for name in ("ground_point", "ground_normal")}


def nearness(robot: RobotModel, arrays: dict[str, Tensor], chunk: int = 2048) -> tuple[Tensor, Tensor]:
    """Per frame [M, T]: the least distance to the ground at its ends, and the longest way of a candidate point."""
    find = ContactFinder(robot, Kinematics(robot))
    near, way = [], []
    for rows in torch.arange(len(arrays["q"])).split(chunk):
        q, length = arrays["q"][rows], arrays["q"].shape[1]
        ground = (arrays[k][rows].repeat_interleave(length, 0) for k in ("ground_point", "ground_normal"))
        contacts = find(q.flatten(0, 1), *ground)
        distance = contacts.distance.amin(-1).unflatten(0, (-1, length))
        centre = contacts.centre.unflatten(0, (-1, length))
        near.append(torch.minimum(distance[:, 1:], distance[:, :-1]))
        way.append((centre[:, 1:] - centre[:, :-1]).norm(dim=-1).amax(-1))
    return torch.cat(near), torch.cat(way)
