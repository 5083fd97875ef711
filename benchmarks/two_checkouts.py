"""`warp` of this checkout over that of another, frames per second on one thread, in one run.

python benchmarks/two_checkouts.py --before ../before

Each checkout steps in a process of its own; the processes are asked turn by turn, so that slow spells of the machine
hit both alike. The other checkout may be any commit since `make_backend` exists; `git worktree add` makes one.
Run it on an otherwise idle machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, cast

import tyro

HERE = Path(__file__).resolve().parent.parent
RESULT = HERE / "benchmarks" / "results" / "two_checkouts.json"
ROBOTS = ("cartpole", "pendulum_contact", "ant", "anymal", "franka")

# Runs in both checkouts and so keeps to what every one of them has. It reads a robot and seconds, and answers with
# microseconds per frame of one robot.
WORKER = """
import sys, time, torch
from nerd_gym import RobotModel, make_backend
torch.set_num_threads(1)
N, known = int(sys.argv[1]), {}
def subject(name):
    robot = RobotModel.named(name)
    backend = make_backend("warp", robot, N, threads=1)
    generator = torch.Generator().manual_seed(0)
    limit = torch.as_tensor(robot.force_limit, dtype=torch.float32)
    forces = [0.1 * limit * torch.randn(N, robot.nj, generator=generator) for _ in range(10)]
    for force in forces:
        backend.step(force)
    return backend, forces, backend.snapshot()
print("ready", flush=True)
for line in sys.stdin:
    name, seconds = line.split()
    if name not in known:
        known[name] = subject(name)
    backend, forces, start = known[name]
    frames, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < float(seconds):
        backend.restore(start)  # on the ground, in random motion, set back every ten frames
        for force in forces:
            backend.step(force)
        frames += len(forces)
    print(1e6 * (time.perf_counter() - begin) / frames / N, flush=True)
"""


@dataclass
class Args:
    """Measure `warp` of this checkout over that of another."""

    before: Path
    """The other checkout."""
    num_envs: int = 512
    """Robots."""
    repeats: int = 9
    """Turns; the median of the ratios counts."""
    seconds: float = 0.5
    """Length of a turn."""
    out: Path = RESULT
    """Where to write the json."""


class Checkout:
    """A process that steps the `warp` backend of a checkout."""

    def __init__(self, folder: Path, num_envs: int):
        if not (folder / "nerd_gym" / "__init__.py").is_file():
            raise ValueError(f"{folder} is no checkout: it has no nerd_gym/__init__.py")
        command = [sys.executable, "-c", WORKER, str(num_envs)]
        variables = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        while self._answer() != "ready":  # after what Warp says of itself
            pass

    def _answer(self) -> str:
        line = cast("IO[str]", self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"the process ended with exit code {self._process.wait()}")
        return line.strip()

    def frame(self, robot: str, seconds: float) -> float:
        """Microseconds of a frame of one robot."""
        questions = cast("IO[str]", self._process.stdin)
        questions.write(f"{robot} {seconds}\n")
        questions.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        cast("IO[str]", self._process.stdin).close()
        self._process.wait()


def commit_of(folder: Path) -> str:
    """Its short hash, with a plus if files were changed."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(args: Args) -> None:
    """Print and write a row per robot."""
    from nerd_gym.utils.progress import progress
    from nerd_gym.utils.timing import save

    folders = [args.before.resolve(), HERE]
    checkouts = [Checkout(folder, args.num_envs) for folder in folders]
    rows = []
    with progress(total=args.repeats * len(ROBOTS), unit="turn", desc="bench") as bar:
        for robot in ROBOTS:
            for checkout in checkouts:
                checkout.frame(robot, 0.01)  # kernels are compiled here
            pairs = []
            for turn in range(args.repeats):
                order = checkouts if turn % 2 else checkouts[::-1]
                took = {checkout: checkout.frame(robot, args.seconds) for checkout in order}
                pairs.append([took[checkout] for checkout in checkouts])
                bar.update()
            old, new = (median(column) for column in zip(*pairs, strict=True))
            ratio = median(a / b for a, b in pairs)
            rows.append({"robot": robot, "before (us)": round(old, 3), "now (us)": round(new, 3)})
            rows[-1]["ratio"] = round(ratio, 2)
    for checkout in checkouts:
        checkout.close()
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    before, now = map(commit_of, folders)
    save(args.out, {"before": before, "now": now, "num_envs": args.num_envs, "threads": 1, "rows": rows})


if __name__ == "__main__":
    main(tyro.cli(Args))
