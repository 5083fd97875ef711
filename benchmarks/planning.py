"""Plans: CMA-ES against CEM and random shooting at equal env-steps, numbers of knots, and plans on other backends.

- searches: the hanging pole of Cartpole and a reach of Franka, short and long, three seeds each;
- knots: the same with CMA-ES and other numbers of knots, among them one per action;
- transfer: plans that were found on one backend, carried out on the others from the same start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from nerd_gym.backends import backends_for
from nerd_gym.envs.factory import manual_reset_env
from nerd_gym.planning import Plan, plan
from nerd_gym.planning.execution import execute
from nerd_gym.planning.search import METHODS
from nerd_gym.planning.sequences import default_knots
from nerd_gym.registration import env_spec
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

CARTPOLE, FRANKA = "NeRD/Cartpole-v0", "NeRD/Franka-v0"
TASKS = ((CARTPOLE, 20), (CARTPOLE, 60), (CARTPOLE, 120), (FRANKA, 20), (FRANKA, 64))
KNOTS = (3, 5, 10, 20)  # beside the default and one per action
MOST_NUMBERS = 200  # in a plan of the study of knots: CMA-ES takes the cube of them
SPLITS = ((256, 30), (64, 120))  # candidates and iterations, as many env-steps each
TRANSFER = ((CARTPOLE, 60), ("NeRD/PendulumContact-v0", 60), (FRANKA, 20), ("NeRD/Ant-v0", 20), ("NeRD/Anymal-v0", 20))


@dataclass
class Args:
    """Benchmark of plans."""

    backend: str = "warp"
    """Where searches and knots are measured."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of starts and searches."""
    threads: int = 1
    """CPU threads."""
    out: Path = Path(__file__).parent / "results" / "planning.json"
    """The json to write."""


def planned(env_id: str, horizon: int, seed: int, args: Args, backend: str, **config: Any) -> Plan:
    """A plan from the seed's start; the pole of Cartpole hangs at rest, which only the search's seed changes."""
    candidates, iterations = SPLITS[0]
    given = {"horizon": horizon, "seed": seed, "candidates": candidates, "iterations": iterations} | config
    env = manual_reset_env(env_id, 1, backend, threads=args.threads)
    env.reset(seed=seed)
    if env_id == CARTPOLE:
        env.reset(options={"state": (torch.tensor([[0.0, math.pi]]), torch.zeros(1, 2))})
    try:
        return plan(env, **given)
    finally:
        env.close()


def measured(found: list[Plan]) -> dict[str, Any]:
    """Returns by seed, and the task's measures at the end, their means."""
    ends = [execute(one, [one.backend])[0].measures for one in found]
    return {
        "returns": [round(one.value, 3) for one in found],
        "measures": {name: sum(end[name] for end in ends) / len(ends) for name in ends[0]},
        "env_steps": [one.env_steps for one in found],
        "seconds": round(sum(one.seconds for one in found) / len(found), 2),
    }


def searches(args: Args) -> Iterator[dict[str, Any]]:
    """Every method on every task."""
    for env_id, horizon in TASKS:
        for method in METHODS:
            for candidates, iterations in SPLITS if method != "random" else SPLITS[:1]:
                split = {"method": method, "candidates": candidates, "iterations": iterations}
                found = [planned(env_id, horizon, seed, args, args.backend, **split) for seed in args.seeds]
                yield {"env": env_id, "horizon": horizon} | split | measured(found)


def knots(args: Args) -> Iterator[dict[str, Any]]:
    """CMA-ES and CEM with other numbers of knots."""
    for env_id, horizon in TASKS:
        size = env_spec(env_id).task_class().action_size
        counts = {*(k for k in KNOTS if k < horizon), default_knots(horizon), horizon}
        for count in sorted(k for k in counts if k * size <= MOST_NUMBERS):
            for method in ("cma", "cem"):
                found = [
                    planned(env_id, horizon, seed, args, args.backend, method=method, knots=count)
                    for seed in args.seeds
                ]
                row = {"env": env_id, "horizon": horizon, "method": method, "knots": count}
                yield row | {"default": count == default_knots(horizon)} | measured(found)


def transfer(args: Args) -> Iterator[dict[str, Any]]:
    """Plans of each backend on all backends."""
    for env_id, horizon in TRANSFER:
        backends = backends_for(env_spec(env_id).robot({}))
        for backend in backends:
            found = [planned(env_id, horizon, seed, args, backend) for seed in args.seeds]
            elsewhere = [execute(one, backends) for one in found]
            yield {
                "env": env_id,
                "horizon": horizon,
                "planned on": backend,
                "planned": [round(one.value, 4) for one in found],
                "executed": {name: [round(e[k].value, 4) for e in elsewhere] for k, name in enumerate(backends)},
                "seconds": round(sum(one.seconds for one in found) / len(found), 2),
            }


def main(args: Args) -> None:
    torch.set_num_threads(args.threads)
    began, parts = time.perf_counter(), {}
    for part in (searches, knots, transfer):
        parts[part.__name__] = rows = []
        for row in progress(part(args), unit="row", desc=part.__name__):
            rows.append(row)
            print({name: value for name, value in row.items() if name != "env_steps"}, flush=True)
    about: dict[str, Any] = {name: value for name, value in vars(args).items() if name != "out"}
    seconds = round(time.perf_counter() - began)
    save(args.out, {"what": __doc__.splitlines()[0], **about, "seconds": seconds, **parts})
    print(f"written: {args.out.name}")


if __name__ == "__main__":
    main(tyro.cli(Args))
