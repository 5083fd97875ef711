"""How long the first use of a robot's kernels takes, and the second: seconds of compiling and of loading.

Each backend starts twice in a process of its own, first with an empty cache of kernels. A row is a kernel; the second
use is what all kernels of the backend take together to be loaded. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from nerd_gym.backends import backends_for
from nerd_gym.dynamics.models.checkpoint import has_packaged_model
from nerd_gym.registration import PACKAGED
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "first_use.json"
OPTIONS = (
    ("warp", {}),
    ("warp", {"reference": True}),
    ("neural", {}),
    ("neural", {"teacher": "mujoco"}),
    ("neural", {"reference": True}),
)
# Steps a backend once and prints the seconds that each kernel took to be loaded.
WORKER = """
import json, sys, time, torch
from nerd_gym import RobotModel, make_backend
from nerd_gym.physics.warp import launch
load, seconds = launch.load_with_notice, {}
def timed(kernel, device):
    start = time.perf_counter()
    load(kernel, device)
    seconds[kernel.key] = seconds.get(kernel.key, 0.0) + time.perf_counter() - start
launch.load_with_notice = timed
robot = RobotModel.named(sys.argv[1])
backend = make_backend(sys.argv[2], robot, 8, threads=1, **json.loads(sys.argv[3]))
backend.step(torch.zeros(8, robot.nj))
backend.contacts.distance
print(json.dumps(seconds))
"""


@dataclass
class Args:
    """Time the first and the second use of kernels."""

    out: Path = RESULT
    """Where to write the json."""


def started(robot: str, backend: str, options: dict[str, Any], cache: str) -> dict[str, float]:
    """Seconds by kernel in a new process."""
    command = [sys.executable, "-c", WORKER, robot, backend, json.dumps(options)]
    variables = os.environ | {"WARP_CACHE_PATH": cache}
    told = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    return json.loads(told.splitlines()[-1])


def main(args: Args) -> None:
    """Print and write a row per kernel."""
    robots = [spec.robot({}) for spec in PACKAGED.values() if "warp" in backends_for(spec.robot({}))]
    grid = []
    for robot in robots:
        for backend, options in OPTIONS:
            teacher, reference = options.get("teacher", "warp"), options.get("reference", False)
            if backend == "warp" or has_packaged_model(robot, teacher, reference):
                grid.append((robot.name, backend, options))
    rows = []
    for robot, backend, options in progress(grid, desc="backends", unit="backend"):
        with tempfile.TemporaryDirectory() as cache:
            first, second = (started(robot, backend, options, cache) for _ in range(2))
        label = ", ".join([backend, *(f"{key}={value}" for key, value in options.items())])
        rows += [
            {"robot": robot, "backend": label, "kernel": key.split("_")[0], "first (s)": round(seconds, 1)}
            | {"second, all (s)": round(sum(second.values()), 2)}
            for key, seconds in first.items()
        ]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    save(args.out, {"rows": rows})


if __name__ == "__main__":
    main(tyro.cli(Args))
