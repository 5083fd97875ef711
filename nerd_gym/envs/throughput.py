"""Env-steps and physics-steps per second of environments on backends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import gymnasium
import torch

from nerd_gym.backends import backend_class, backends_for
from nerd_gym.registration import PACKAGED, env_spec
from nerd_gym.utils.arguments import check_counts, check_real
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import Subject, time_interleaved

from .factory import native


def env_subject(env_id: str, backend: str, num_envs: int, threads: int | None = None, **options: Any) -> Subject:
    """One of our environments under random actions, with autoreset."""
    options |= {} if threads is None else {"threads": threads}
    env = native(gymnasium.make_vec(env_id, num_envs=num_envs, backend=backend, array="torch", **options))
    generator = torch.Generator().manual_seed(0)
    actions = cycle([2 * torch.rand(num_envs, env.task.action_size, generator=generator) - 1 for _ in range(16)])
    env.reset(seed=0)

    def step() -> None:
        env.step(next(actions))

    for _ in range(10):
        step()
    physics_steps = None if env.task.waits else env.backend.substeps * env.task.frames
    return Subject({"env": env_id, "engine": f"nerd_gym {backend}"}, step, num_envs, physics_steps, threads)


def bench(
    env_ids: Sequence[str] = tuple(PACKAGED),
    backends: Sequence[str] = (),
    sizes: Sequence[int] = (1, 64, 512, 2048),
    repeats: int = 3,
    seconds: float = 1.0,
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """Every environment on every backend at every batch size; by default on the backends that its robot has."""
    for name in backends:
        backend_class(name)
    if not sizes:
        raise ValueError("num_envs names no batch size; valid: one or more counts")
    for size in sizes:
        check_counts(num_envs=size)
    check_counts(repeats=repeats, threads=threads)
    check_real("seconds", seconds, 0, 86_400)
    chosen = {env_id: backends or backends_for(env_spec(env_id).robot({})) for env_id in env_ids}
    grid = [(i, b, n) for i in env_ids for b in chosen[i] for n in sizes]
    subjects = [env_subject(i, b, n, threads) for i, b, n in progress(grid, unit="env", desc="set up", leave=False)]
    return time_interleaved(subjects, repeats, seconds)


def throughput_table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as text."""
    lines = [f"{'environment':26s}{'engine':32s}{'N':>6s}{'env-steps/s':>14s}{'physics-steps/s':>18s}"]
    for row in rows:
        physics = row["physics_steps_per_s"]
        rates = f"{row['env_steps_per_s']:14,.0f}" + (f"{'-':>18s}" if physics is None else f"{physics:18,.0f}")
        lines.append(f"{row['env']:26s}{row['engine']:32s}{row['num_envs']:6d}{rates}")
    return "\n".join(lines)
