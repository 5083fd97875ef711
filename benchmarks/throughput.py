"""Env-steps and physics-steps per second: every environment and backend, beside Gymnasium's Ant and EnvPool's.

python benchmarks/throughput.py            all, about ten minutes
python benchmarks/throughput.py --quick    a shorter look

Everything is timed in one run, turn by turn, and the median of the repeats counts. A physics step is one
evaluation of the dynamics: a step of RK4 (Gymnasium's Ant) is four.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path

import gymnasium
import numpy as np
import tyro

import nerd_gym  # noqa: F401  registers the ids
from nerd_gym.backends import backends_for
from nerd_gym.envs.throughput import env_subject, throughput_table
from nerd_gym.registration import PACKAGED
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import Subject, save, time_interleaved

RESULT = Path(__file__).parent / "results" / "throughput.json"
PEER_PHYSICS = 5 * 4  # Ant-v5: frame_skip 5 of RK4


def gymnasium_ant(mode: str, num_envs: int) -> Subject:
    """Gymnasium's Ant-v5 in its own vector environment."""
    env = gymnasium.make_vec("Ant-v5", num_envs=num_envs, vectorization_mode=mode)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = cycle([rng.uniform(-1, 1, env.action_space.shape).astype(np.float32) for _ in range(16)])

    def step() -> None:
        env.step(next(actions))

    for _ in range(3):
        step()
    return Subject({"env": "Ant-v5", "engine": f"gymnasium {mode}"}, step, num_envs, PEER_PHYSICS)


def envpool_ant(num_envs: int) -> Subject:
    """EnvPool's Ant-v4, if it is installed."""
    import envpool

    env = envpool.make_gymnasium("Ant-v4", num_envs=num_envs, seed=0)
    env.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (num_envs, 8))
    return Subject({"env": "Ant-v4", "engine": "envpool"}, lambda: env.step(actions), num_envs, PEER_PHYSICS)


@dataclass
class Args:
    """Measure throughput beside peers."""

    quick: bool = False
    """Fewer sizes and repeats."""
    out: Path = RESULT
    """Where to write the json."""


def main(args: Args) -> None:
    sizes = (1, 512) if args.quick else (1, 64, 512, 2048)
    repeats, seconds = (2, 0.3) if args.quick else (5, 0.6)
    had = {env_id: backends_for(spec.robot({})) for env_id, spec in PACKAGED.items()}
    grid = [(i, b, n) for i in PACKAGED for b in ("warp", "mujoco") if b in had[i] for n in sizes]
    subjects = [env_subject(*row) for row in progress(grid, desc="set up")]
    subjects += [gymnasium_ant("sync", n) for n in sizes if n <= 64]
    subjects += [gymnasium_ant("async", n) for n in sizes if n == 64]
    if find_spec("envpool"):
        subjects += [envpool_ant(n) for n in sizes if n >= 64]
    rows = time_interleaved(subjects, repeats, seconds)
    print(throughput_table(rows))
    what = "default physics; median of interleaved repeats; physics steps are evaluations of the dynamics"
    save(args.out, {"what": what, "repeats": repeats, "seconds": seconds, "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
