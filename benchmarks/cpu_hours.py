"""CPU-hours until a policy earns a given return, trained in `neural` against in `warp`: results/cpu_hours.json.

The curves beside the shipped policies tell when the mean return of the training episodes first reached it. What data
and model cost is told on the command line, because no curve knows it:

python benchmarks/cpu_hours.py --model ant=0.7 anymal=0.6
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import tyro
from train_policies import BACKENDS, ROOT, SHIPPED, Shipped

from nerd_gym.utils.arguments import key_value
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "cpu_hours.json"
# What each policy has to earn.
ENOUGH = {"ant/run": 2400, "ant/spin": 2300, "ant/spin_track": 1500, "anymal/forward": 1250, "anymal/side": 1280}


@dataclass
class Args:
    """Compare what policies of legged robots cost."""

    model: tuple[str, ...]
    """CPU-hours of each robot's data and model together, e.g. ant=0.7."""
    policies: Path = ROOT / "policies"
    """Folder of the shipped policies."""
    out: Path = RESULT
    """Where to write the json."""


def hours_to(curve: Path, enough: float) -> float | None:
    """CPU-hours until the training episodes earn so much; None if they never do."""
    with curve.open() as file:
        for row in csv.DictReader(file):
            if float(row["return"]) >= enough:
                return float(row["cpu_seconds"]) / 3600
    return None


def mean_hours(shipped: Shipped, backend: str, folder: Path, enough: float) -> float | None:
    """Over the seeds."""
    curves = [
        folder / shipped.folder / f"{shipped.name}-{backend}-seed{seed}.csv" for seed in shipped.seeds_of(backend)
    ]
    hours = [hours_to(curve, enough) for curve in curves if curve.exists()]
    return sum(hours) / len(hours) if hours and None not in hours else None


def main(args: Args) -> None:
    cost = {robot: float(hours) for robot, hours in map(key_value, args.model)}
    rows = []
    for shipped in SHIPPED:
        name = f"{shipped.folder}/{shipped.name}"
        if name not in ENOUGH:
            continue
        if shipped.folder not in cost:
            raise SystemExit(
                f"--model does not tell the CPU-hours of {shipped.folder}'s model, e.g. {shipped.folder}=0.7"
            )
        neural, warp = (mean_hours(shipped, b, args.policies, ENOUGH[name]) for b in BACKENDS)
        row = {"policy": name, "return": ENOUGH[name], "neural": neural, "warp": warp, "model": cost[shipped.folder]}
        if neural and warp:
            row |= {"warp over neural": warp / neural, "warp over neural and model": warp / (neural + row["model"])}
        rows.append({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()))
    what = "CPU-hours until the episodes of training earn the return, by where they were played; model: with its data"
    save(args.out, {"what": what, "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
