"""Environments in worker processes beside the native batch: a program, because a parent that forks must be fresh.

    python -m tests.support.workers sb3 fork:warp spawn:mujoco

It fails if the workers' results are not those of the batch, to the bit.
"""

from __future__ import annotations

import sys
from functools import partial

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

import nerd_gym  # noqa: F401  makes the ids known

ENV = "NeRD/Cartpole-v0"
NUM_ENVS, STEPS, HORIZON, SEED = 2, 40, 15, 7
# Makes the ids known in the worker too; horizons are short, so that workers reset.
make = partial(gymnasium.make, f"nerd_gym:{ENV}", max_episode_steps=HORIZON)


def sb3_workers(backend: str, method: str, actions: np.ndarray) -> list[tuple]:
    """Observation, reward and done of each step, by Stable-Baselines3's workers."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    envs = SubprocVecEnv([partial(make, backend=backend)] * NUM_ENVS, start_method=method)
    envs.seed(SEED)
    out = [(envs.reset(),)] + [envs.step(action)[:3] for action in actions]
    envs.close()
    return out


def gymnasium_workers(backend: str, method: str, actions: np.ndarray) -> list[tuple]:
    """The same by Gymnasium's workers."""
    functions = [partial(make, backend=backend)] * NUM_ENVS
    envs = AsyncVectorEnv(functions, context=method, autoreset_mode=AutoresetMode.SAME_STEP)
    out = [(envs.reset(seed=SEED)[0],)] + [_three(envs.step(action)) for action in actions]
    envs.close()
    return out


def _three(result: tuple) -> tuple:
    obs, reward, terminated, truncated, _ = result
    return obs, reward, terminated | truncated


def main(library: str, *cases: str) -> None:
    """Compare the workers of a library with native batches, which are made after all workers have ended."""
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, NUM_ENVS, 1)).astype(np.float32)
    workers = {"sb3": sb3_workers, "gymnasium": gymnasium_workers}[library]
    found = []
    for case in cases:
        method, backend = case.split(":")
        found.append((case, backend, workers(backend, method, actions)))
    for case, backend, theirs in found:
        batch = gymnasium.make_vec(ENV, num_envs=NUM_ENVS, backend=backend, max_episode_steps=HORIZON)
        ours = [(batch.reset(seed=SEED)[0],)] + [_three(batch.step(action)) for action in actions]
        for mine, other in zip(ours, theirs, strict=True):
            for a, b in zip(mine, other, strict=True):
                np.testing.assert_array_equal(a, np.asarray(b, a.dtype))
        print(f"{case} {sum(int(row[2].sum()) for row in theirs[1:])} episodes")


if __name__ == "__main__":
    main(*sys.argv[1:])
