"""What strike_planning.py tells of its runs: means over settings, what hybrid changes, run times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from strike_simulators import ADAPTED, MUJOCO, VELOCITIES

from nerd_gym.collision.scenes.shapes import SHAPES


def summary(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """By shape and simulator over all settings: mean and standard deviation, and what hybrid changes of mujoco."""
    table: dict[str, Any] = {}
    for shape in SHAPES:
        own = [of[shape] for of in found.values() if shape in of]
        runs = [one["runs"] for one in own]
        if not runs:
            continue
        rows: dict[str, Any] = {}
        for name in (name for name in runs[0] if all(name in run for run in runs)):
            for what in ("position", "orientation"):
                values = np.concatenate([run[name][what] for run in runs])
                rows.setdefault(name, {})[what] = [round(float(values.mean()), 5), round(float(values.std()), 5)]
        changes = {
            name: {what: change(own, name, what) for what in ("position", "orientation")}
            for name in (ADAPTED, VELOCITIES)
            if {MUJOCO, name} <= rows.keys()
        }
        table[shape] = {"errors": rows, "change": changes}
    return table


def change(own: list[dict[str, Any]], name: str, what: str) -> dict[str, Any]:
    """Relative, of the mean error of a simulator from mujoco's, with a 95 % interval over drawn targets (bootstrap)."""
    pairs = []
    for one in own:
        both = np.array([one["runs"][each][what] for each in (MUJOCO, name)])
        pairs.append(both.reshape(2, len(one["targets"]), -1).mean(-1))
    means = np.concatenate(pairs, 1)
    rows = np.random.default_rng(0).integers(0, means.shape[1], (10_000, means.shape[1]))
    drawn = means[1][rows].mean(1) / means[0][rows].mean(1) - 1
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = means[1].mean() / means[0].mean() - 1
    return {"mean": round(float(value), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def timing(seconds: dict[str, list[float]], loads: list[list[float]]) -> dict[str, Any]:
    """Run times by simulator, and the median ratio of neighbours in time: slow spells hit both."""
    ratios = np.array(seconds[ADAPTED]) / np.array(seconds[MUJOCO])
    own = {name: rounded(seconds[name], 3) for name in (MUJOCO, ADAPTED)}
    return {"seconds": own, "ratio": round(float(np.median(ratios)), 3), "load_averages_before": loads}


def times_of_plans(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """By shape, over all settings."""
    table = {}
    for shape in SHAPES:
        own = [of[shape] for of in found.values() if {MUJOCO, ADAPTED} <= of.get(shape, {}).get("runs", {}).keys()]
        if own:
            seconds = {name: [s for one in own for s in one["runs"][name]["seconds"]] for name in (MUJOCO, ADAPTED)}
            table[shape] = timing(seconds, [one["load_average_before"] for one in own if "load_average_before" in one])
    return table


def rounded(values: Sequence[float], digits: int = 2) -> list[float]:
    return [round(value, digits) for value in values]
