"""Throughput: env-steps and physics-steps per second, interleaved repeats, medians."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from .files import atomic_write
from .progress import progress

PACKAGES = ("gymnasium", "mujoco", "newton", "warp-lang", "torch", "numpy")


class Subject:
    """Something whose step is timed: `step()` advances `num_envs` environments once."""

    def __init__(
        self,
        label: dict[str, Any],
        step: Callable[[], Any],
        num_envs: int,
        physics_steps: int | None,  # in a step; None: it varies
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
            "physics_steps_per_s": None if self.physics_steps is None else round(rate * self.physics_steps, 1),
        }


def time_interleaved(subjects: Sequence[Subject], repeats: int, seconds: float) -> list[dict[str, Any]]:
    """Run all subjects turn by turn, each round begun by the next: slow spells of the machine hit them alike."""
    count = len(subjects)
    with progress(total=repeats * count, unit="run", desc="bench") as bar:
        for first in range(repeats):
            for k in range(count):
                subjects[(first + k) % count].run(seconds)
                bar.update()
    return [subject.row() for subject in subjects]


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
    with atomic_write(path) as part:
        part.write_text(json.dumps({"machine": machine(), **figures}, indent=2) + "\n")
