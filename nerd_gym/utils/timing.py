"""Throughput: env-steps and physics-steps per second, interleaved repeats, medians."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import torch

from .files import whole
from .progress import progress
from .registration import PACKAGED

PACKAGES = ("gymnasium", "mujoco", "newton", "warp-lang", "torch", "numpy")


class Subject:
    """Something whose step is timed: `step()` advances `num_envs` environments once."""

    def __init__(
        self,
        label: dict[str, Any],
        step: Callable[[], Any],
        num_envs: int,
        physics_steps: int,
        torch_threads: int | None = None,
    ):
        self.label, self.step, self.num_envs, self.physics_steps = label, step, num_envs, physics_steps
        self.torch_threads = torch_threads
        self.rates: list[float] = []

    def run(self, seconds: float) -> None:
        """One repeat of about this length; the number of steps adapts to the speed."""
        if self.torch_threads is not None:
            torch.set_num_threads(self.torch_threads)
        count, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds or count < 2:
            self.step()
            count += 1
        self.rates.append(count * self.num_envs / elapsed)

    def row(self) -> dict[str, Any]:
        """The median as a row of the table."""
        rate = median(self.rates)
        return self.label | {
            "num_envs": self.num_envs,
            "env_steps_per_s": round(rate, 1),
            "physics_steps_per_s": round(rate * self.physics_steps, 1),
        }


def env_subject(env_id: str, backend: str, num_envs: int, threads: int | None = None, **options: Any) -> Subject:
    """One of our environments under random actions, with autoreset."""
    options |= {} if threads is None else {"threads": threads}
    env = gymnasium.make_vec(env_id, num_envs=num_envs, backend=backend, array="torch", **options).unwrapped
    generator = torch.Generator().manual_seed(0)
    actions = cycle([2 * torch.rand(env.action_space.shape, generator=generator) - 1 for _ in range(16)])
    env.reset(seed=0)

    def step() -> None:
        env.step(next(actions))

    for _ in range(10):
        step()
    physics_steps = env.backend.substeps * env.task.frames
    return Subject({"env": env_id, "engine": f"nerd_gym {backend}"}, step, num_envs, physics_steps, threads)


def time_interleaved(subjects: Sequence[Subject], repeats: int, seconds: float) -> list[dict[str, Any]]:
    """Run all subjects turn by turn, each round begun by the next: slow spells of the machine hit them alike."""
    count = len(subjects)
    with progress(total=repeats * count, unit="run", desc="bench") as bar:
        for first in range(repeats):
            for k in range(count):
                subjects[(first + k) % count].run(seconds)
                bar.update()
    return [subject.row() for subject in subjects]


def bench(
    env_ids: Sequence[str] = tuple(PACKAGED),
    backends: Sequence[str] = ("warp", "mujoco"),
    sizes: Sequence[int] = (1, 64, 512, 2048),
    repeats: int = 3,
    seconds: float = 1.0,
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """Every environment on every backend at every batch size."""
    grid = [(i, b, n) for i in env_ids for b in backends for n in sizes]
    subjects = [env_subject(i, b, n, threads) for i, b, n in progress(grid, unit="env", desc="set up", leave=False)]
    return time_interleaved(subjects, repeats, seconds)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as text."""
    lines = [f"{'environment':26s}{'engine':32s}{'N':>6s}{'env-steps/s':>14s}{'physics-steps/s':>18s}"]
    for row in rows:
        rates = f"{row['env_steps_per_s']:14,.0f}{row['physics_steps_per_s']:18,.0f}"
        lines.append(f"{row['env']:26s}{row['engine']:32s}{row['num_envs']:6d}{rates}")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def save(path: Path, figures: dict[str, Any]) -> None:
    """Write figures with the machine they were taken on, whole or not at all."""
    with whole(path) as part:
        part.write_text(json.dumps({"machine": machine(), **figures}, indent=2) + "\n")
