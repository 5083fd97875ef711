"""Collisions in one HDF5 file: ``pre`` [M, C] and ``post`` [M, 7], float32, with shape, ranges and seed as attributes.

Blocks are written one by one beside the file that they will make; each appears when it is whole. A run that is killed
loses the block it was in, and the same command goes on with the next. What a block holds depends on seed and number
alone, so that an interrupted run and a whole one make the same file.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import mujoco
import numpy as np
import torch
from torch import Tensor

from nerd_gym.collision.scenes.columns import COLUMNS, OUTCOME, WIDE, draw, ranges
from nerd_gym.collision.scenes.mjcf import TIMESTEP
from nerd_gym.collision.scenes.shapes import shape_named
from nerd_gym.collision.scenes.simulate import CollisionSimulator
from nerd_gym.data.hdf5 import array_in, attributes, open_hdf5, same_plan
from nerd_gym.utils.arguments import check_seed, whole
from nerd_gym.utils.files import atomic_write, check_facts
from nerd_gym.utils.progress import progress

FORMAT = 1
BLOCK = 4096  # collisions
MOST = 10**8
HELD_BACK = 0.05  # of the collisions, for validation
NEEDED = {"shape": (str,), "wide": (int,), "seed": (int,), "collisions": (int,), "timestep": (float,)}


@dataclass(frozen=True)
class CollisionPlan:
    """What a file holds; two runs with the same plan make the same file."""

    shape: str
    collisions: int = 100_000
    wide: bool = False  # of perturbed simulators
    seed: int = 0

    def __post_init__(self):
        shape_named(self.shape)
        whole("collisions", self.collisions, MOST)
        check_seed(self.seed)

    @property
    def blocks(self) -> list[int]:
        """Sizes of the blocks."""
        full, rest = divmod(self.collisions, BLOCK)
        return [BLOCK] * full + ([rest] if rest else [])

    @property
    def columns(self) -> tuple[str, ...]:
        return WIDE if self.wide else COLUMNS

    def facts(self) -> dict[str, Any]:
        """Attributes of the file."""
        return {
            "format": FORMAT,
            "shape": self.shape,
            "wide": int(self.wide),
            "columns": " ".join(self.columns),
            "outcome": " ".join(OUTCOME),
            "ranges": json.dumps(ranges(shape_named(self.shape), self.wide)),
            "timestep": TIMESTEP,
            "simulator": f"mujoco {mujoco.__version__}",
            "seed": self.seed,
            "collisions": self.collisions,
        }

    def command(self) -> str:
        wide = " --wide" if self.wide else ""
        return f"nerd-gym collision generate {self.shape} --collisions {self.collisions}{wide} --seed {self.seed}"


def make_block(plan: CollisionPlan, simulator: CollisionSimulator, block: int) -> dict[str, np.ndarray]:
    """The collisions of one block; one that MuJoCo cannot finish is an error, not a gap."""
    rng = np.random.default_rng([plan.seed, block])
    pre = draw(simulator.shape, plan.blocks[block], rng, plan.wide)
    post = simulator(pre)
    if not np.isfinite(post).all():
        row = pre[~np.isfinite(post).all(-1)][0]
        raise ValueError(f"MuJoCo diverged in the collision {dict(zip(plan.columns, row.tolist(), strict=True))}")
    return {"pre": pre.astype(np.float32), "post": post.astype(np.float32)}


def generate(plan: CollisionPlan, path: Path, threads: int | None = None) -> int:
    """Make the file, going on where an earlier run stopped; returns how many collisions it made now."""
    facts = plan.facts()
    if path.exists():
        with open_hdf5(path) as file:
            same_plan(file, facts)
        return 0
    parts = path.with_name(f"{path.name}.parts")
    names = [parts / f"{block:06d}.h5" for block in range(len(plan.blocks))]
    there = [name for name in names if name.exists()]
    if there:
        with open_hdf5(there[0]) as file:
            same_plan(file, facts)
    missing = [block for block, name in enumerate(names) if not name.exists()]
    if missing:
        simulator = CollisionSimulator(shape_named(plan.shape), BLOCK, threads)
        parts.mkdir(parents=True, exist_ok=True)
        done = plan.collisions - sum(plan.blocks[block] for block in missing)
        with progress(total=plan.collisions, initial=done, unit="collision", desc=path.name) as bar:
            for block in missing:
                _write(names[block], make_block(plan, simulator, block), facts)
                bar.update(plan.blocks[block])
    _merge(plan, names, path)
    shutil.rmtree(parts)
    return sum(plan.blocks[block] for block in missing)


def load(path: Path, shape: str, wide: bool) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """`pre`, `post` and the facts of a file, if it is of this shape and kind."""
    with open_hdf5(path) as file:
        facts = attributes(file)
        check_facts(str(path), facts, NEEDED)
        kinds = {0: "one simulator", 1: "perturbed simulators"}
        if facts["shape"] != shape or bool(facts["wide"]) != wide:
            raise ValueError(
                f"{path} holds collisions of shape {facts['shape']!r} in {kinds.get(facts['wide'], facts['wide'])}; "
                f"asked for {shape!r} in {kinds[int(wide)]}"
            )
        arrays = [
            torch.from_numpy(array_in(file, name, (None, size)))
            for name, size in (("pre", len(WIDE if wide else COLUMNS)), ("post", len(OUTCOME)))
        ]
    if len(arrays[0]) != len(arrays[1]) or len(arrays[0]) < 2:
        raise ValueError(f"{path} has {len(arrays[0])} strikes and {len(arrays[1])} outcomes; valid: equal, from 2 on")
    return arrays[0], arrays[1], facts


def _write(path: Path, data: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    with atomic_write(path) as part, h5py.File(part, "w") as file:
        file.attrs.update(facts)
        for name, values in data.items():
            file.create_dataset(name, data=values, chunks=(min(BLOCK, len(values)), values.shape[1]))


def _merge(plan: CollisionPlan, names: list[Path], path: Path) -> None:
    """All blocks into one chunked file, which appears when it is whole."""
    data: dict[str, list[np.ndarray]] = {"pre": [], "post": []}
    for name in names:
        with h5py.File(name) as file:  # of this very program
            for field, values in data.items():
                values.append(np.asarray(file[field]))
    _write(path, {field: np.concatenate(values) for field, values in data.items()}, plan.facts())
