"""What an environment adds to its backend's step: actions, observation, reward, termination, autoreset and info.

N = 512, one thread. `env.step` under random actions, and `backend.step` from the states and with the forces of such
steps, turn by turn in one run. Run it on an otherwise idle machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
import tyro

from nerd_gym.envs.factory import native
from nerd_gym.envs.throughput import env_subject
from nerd_gym.registration import PACKAGED
from nerd_gym.utils.timing import Subject, save, time_interleaved

RESULT = Path(__file__).parent / "results" / "env_overhead.json"
BACKENDS = ("warp", "neural")
RECORDED = 10  # steps


@dataclass
class Args:
    """Measure what environments add to the steps of their backends."""

    num_envs: int = 512
    """Robots."""
    repeats: int = 9
    """Interleaved repeats; the median of the shares counts."""
    seconds: float = 0.5
    """Length of a repeat."""
    only: str = ""
    """Only environments with this text in their id, e.g. Ant."""
    out: Path = RESULT
    """Where to write the json."""


def backend_subject(env_id: str, backend: str, num_envs: int) -> Subject:
    """`backend.step` over and over through recorded steps of the environment."""
    import gymnasium

    env = native(gymnasium.make_vec(env_id, num_envs=num_envs, backend=backend, array="torch", threads=1))
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    actions = [2 * torch.rand(num_envs, env.task.action_size, generator=generator) - 1 for _ in range(2 * RECORDED)]
    for action in actions[:RECORDED]:
        env.step(action)
    start, physics = env.backend.snapshot(), env.backend
    forces = []
    for action in actions[RECORDED:]:
        for _ in range(env.task.frames):
            forces.append(env.task.joint_force(action, env.state).clone())
            physics.step(forces[-1])
    count = 0

    def step() -> None:
        nonlocal count
        if count % RECORDED == 0:
            physics.restore(start)
        at = env.task.frames * (count % RECORDED)
        for force in forces[at : at + env.task.frames]:
            physics.step(force)
        count += 1

    return Subject({"env": env_id, "engine": backend}, step, num_envs, physics.substeps * env.task.frames, 1)


def main(args: Args) -> None:
    """Print and write a row per environment and backend."""
    grid = [(env_id, backend) for env_id in PACKAGED if args.only in env_id for backend in BACKENDS]
    subjects = []
    for env_id, backend in grid:
        subjects.append(env_subject(env_id, backend, args.num_envs, threads=1))
        subjects.append(backend_subject(env_id, backend, args.num_envs))
    time_interleaved(subjects, args.repeats, args.seconds)
    rows = []
    for (env_id, backend), whole, physics in zip(grid, subjects[::2], subjects[1::2], strict=True):
        shares = [b / a - 1 for a, b in zip(whole.rates, physics.rates, strict=True)]
        row = {"env": env_id, "backend": backend, "added": round(median(shares), 3)}
        row |= {"env step (us)": round(1e6 / median(whole.rates), 3)}
        row |= {"backend step (us)": round(1e6 / median(physics.rates), 3)}
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    save(args.out, {"num_envs": args.num_envs, "threads": 1, "rows": rows})


if __name__ == "__main__":
    main(tyro.cli(Args))
