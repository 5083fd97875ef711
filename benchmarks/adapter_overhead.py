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
from nerd_gym.utils.timing import Subject, save, time_interleaved
from nerd_gym.wrappers import RlGamesVecEnv, RslRlVecEnv, Sb3VecEnv, SkrlEnv

RESULT = Path(__file__).parent / "results" / "adapter_overhead.json"
CASES = (("NeRD/Cartpole-v0", "neural", 300), ("NeRD/Ant-v0", "mujoco", 150))  # and how many turns
ADAPTERS = {"native": None, "rl-games": RlGamesVecEnv, "rsl-rl": RslRlVecEnv, "skrl": SkrlEnv, "sb3": Sb3VecEnv}


@dataclass
class Args:
    """Measure the adapters."""

    num_envs: int = 512
    """Batch size."""
    part: float = 1.0
    """Of the turns."""
    seconds: float = 0.06
    """Length of a turn (two steps at least), about a rollout's; short, so that slow spells hit all alike."""
    out: Path = RESULT
    """Where to write the json."""


def subjects(env_id: str, backend: str, num_envs: int) -> dict[str, Subject]:
    """One environment under random actions, as it is and through every adapter."""
    env = gymnasium.make_vec(env_id, num_envs=num_envs, backend=backend, array="torch")
    generator = torch.Generator().manual_seed(0)
    tensors = [2 * torch.rand(env.action_space.shape, generator=generator) - 1 for _ in range(16)]
    env.reset(seed=0)
    made = {}
    for name, kind in ADAPTERS.items():
        adapter = env if kind is None else kind(env)
        turns = cycle([t.numpy() for t in tensors] if name == "sb3" else tensors)

        def step(adapter=adapter, turns=turns) -> None:
            adapter.step(next(turns))

        made[name] = Subject({"adapter": name}, step, num_envs, 1)
        if name == "rsl-rl":  # its runner enters inference mode once for all steps of a rollout
            made[name].run = torch.inference_mode()(made[name].run)
        made[name].run(0.2)
        made[name].rates.clear()
    return made


def main(args: Args) -> None:
    rows = []
    for env_id, backend, turns in CASES:
        timed = subjects(env_id, backend, args.num_envs)
        time_interleaved(list(timed.values()), max(1, round(args.part * turns)), args.seconds)
        native = median(timed["native"].rates)
        for name, subject in timed.items():
            rate = median(subject.rates)
            ratio = rate / native
            rows.append({"env": env_id, "backend": backend, "adapter": name, "num_envs": args.num_envs})
            rows[-1] |= {"env_steps_per_s": round(rate), "ratio": round(ratio, 3)}
            print(f"{env_id:20s}{backend:10s}{name:10s}{rate:12,.0f} env-steps/s{ratio:8.3f}")
    save(args.out, {"what": "env-steps/s through each adapter over the native environment, one run", "rows": rows})
    print(f"written: {args.out.name}")


if __name__ == "__main__":
    main(tyro.cli(Args))
