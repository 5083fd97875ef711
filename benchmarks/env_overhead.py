"""What an environment adds to its backend's step: actions, observation, reward, termination, autoreset and info.

N = 512, one thread, random actions. The backend's part of every step is timed inside it, so that both are of the same
states; the rest of the step is what the environment adds. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

import gymnasium
import torch
import tyro
from torch import Tensor

from nerd_gym.backends import backends_for
from nerd_gym.envs.factory import native
from nerd_gym.registration import PACKAGED
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "env_overhead.json"
BACKENDS = ("warp", "neural")
WARM_UP = 100  # steps


@dataclass
class Args:
    """Measure what environments add to the steps of their backends."""

    num_envs: int = 512
    """Robots."""
    repeats: int = 9
    """Interleaved repeats; the median of the shares counts."""
    steps: int = 200
    """Steps of a repeat."""
    only: str = ""
    """Only environments with this text in their id, e.g. Ant."""
    out: Path = RESULT
    """Where to write the json."""


class TimedEnv:
    """An environment whose backend keeps count of the time that it takes."""

    def __init__(self, env_id: str, backend: str, num_envs: int):
        self._env = native(gymnasium.make_vec(env_id, num_envs=num_envs, backend=backend, array="torch", threads=1))
        generator = torch.Generator().manual_seed(0)
        size = num_envs, self._env.task.action_size
        self._actions = cycle([2 * torch.rand(size, generator=generator) - 1 for _ in range(16)])
        self._physics, self.spent = self._env.backend.step, 0.0
        self._env.backend.step = self._timed
        self._env.reset(seed=0)
        self.run(WARM_UP)

    def _timed(self, joint_force: Tensor) -> None:
        start = time.perf_counter()
        self._physics(joint_force)
        self.spent += time.perf_counter() - start

    def run(self, steps: int) -> tuple[float, float]:
        """Seconds of so many steps, and of the backend's part of them."""
        self.spent, start = 0.0, time.perf_counter()
        for _ in range(steps):
            self._env.step(next(self._actions))
        return time.perf_counter() - start, self.spent


def main(args: Args) -> None:
    """Print and write a row per environment and backend."""
    torch.set_num_threads(1)
    had = {env_id: backends_for(spec.robot({})) for env_id, spec in PACKAGED.items() if args.only in env_id}
    grid = [(env_id, backend) for env_id in had for backend in BACKENDS if backend in had[env_id]]
    envs = [TimedEnv(env_id, backend, args.num_envs) for env_id, backend in progress(grid, desc="set up", unit="env")]
    times: list[list[tuple[float, float]]] = [[] for _ in grid]
    for _ in progress(range(args.repeats), desc="bench", unit="repeat"):
        for env, mine in zip(envs, times, strict=True):
            mine.append(env.run(args.steps))
    rows, scale = [], 1e6 / (args.steps * args.num_envs)
    for (env_id, backend), mine in zip(grid, times, strict=True):
        row = {"env": env_id, "backend": backend, "added": round(median(a / b - 1 for a, b in mine), 3)}
        for name, column in zip(("env step (us)", "backend step (us)"), zip(*mine, strict=True), strict=True):
            row[name] = round(scale * median(column), 3)
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    save(args.out, {"num_envs": args.num_envs, "threads": 1, "rows": rows})


if __name__ == "__main__":
    main(tyro.cli(Args))
