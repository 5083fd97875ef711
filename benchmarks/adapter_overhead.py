"""What an adapter costs: env-steps per second through each, over the environment itself in the same run.

Actions come as the library gives them: torch tensors, and numpy arrays for Stable-Baselines3. Run it on an otherwise
idle machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

import gymnasium
import torch
import tyro

import nerd_gym  # noqa: F401  registers the ids
from nerd_gym.bench import Subject, save, time_interleaved
from nerd_gym.wrappers import RlGamesVecEnv, RslRlVecEnv, Sb3VecEnv, SkrlEnv

RESULT = Path(__file__).parent / "results" / "adapter_overhead.json"
CASES = (("NeRD/Cartpole-v0", "neural"), ("NeRD/Ant-v0", "mujoco"))
ADAPTERS = {"native": None, "rl-games": RlGamesVecEnv, "rsl-rl": RslRlVecEnv, "skrl": SkrlEnv, "sb3": Sb3VecEnv}


@dataclass
class Args:
    """Measure the adapters."""

    num_envs: int = 512
    """Batch size."""
    repeats: int = 15
    """Interleaved repeats; each ratio is the median of those within a repeat."""
    seconds: float = 0.5
    """Length of a repeat."""
    out: Path = RESULT
    """Where to write the json."""


def subject(name: str, env_id: str, backend: str, num_envs: int) -> Subject:
    """The environment under random actions, through an adapter or as it is."""
    env = gymnasium.make_vec(env_id, num_envs=num_envs, backend=backend, array="torch")
    generator = torch.Generator().manual_seed(0)
    actions = [2 * torch.rand(env.action_space.shape, generator=generator) - 1 for _ in range(16)]
    if name == "sb3":
        actions = [action.numpy() for action in actions]
    env.reset(seed=0)
    adapter = env if ADAPTERS[name] is None else ADAPTERS[name](env)
    turns = cycle(actions)

    def step() -> None:
        adapter.step(next(turns))

    if name == "rsl-rl":
        step = torch.inference_mode()(step)  # as its runner calls it
    for _ in range(10):
        step()
    return Subject({"env": env_id, "backend": backend, "adapter": name}, step, num_envs, 1)


def main(args: Args) -> None:
    rows = []
    for env_id, backend in CASES:
        subjects = {name: subject(name, env_id, backend, args.num_envs) for name in ADAPTERS}
        time_interleaved(list(subjects.values()), args.repeats, args.seconds)
        native = subjects["native"].rates
        for name, timed in subjects.items():
            ratio = median(rate / base for rate, base in zip(timed.rates, native))
            rows.append({"env": env_id, "backend": backend, "adapter": name, "num_envs": args.num_envs})
            rows[-1] |= {"env_steps_per_s": round(median(timed.rates)), "ratio": round(ratio, 3)}
            print(f"{env_id:20s}{backend:10s}{name:10s}{median(timed.rates):12,.0f} env-steps/s{ratio:8.3f}")
    save(args.out, {"what": "env-steps/s through each adapter over the native environment, one run", "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
