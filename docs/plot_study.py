"""The study of a legged robot's model: benchmarks/results/legged_study_*.json -> docs/pictures/legged-study.png.

python docs/plot_study.py
"""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from results_json import ROOT, modern
from tables import residual_study_rows

GROUPS = {"linear": "tab:blue", "angular": "tab:orange", "joints": "tab:green"}
TICKS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
SCALES = ("transitions", "steps", "width", "lr", "pose_updates")


def short(value: float) -> str:
    """125000 -> 125k."""
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if value >= size and value % (size / 10) == 0:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def left_out(row: dict[str, Any], base: dict[str, Any]) -> str:
    """What a training did without."""
    name = modern(row["without"]) or "nothing"
    return name if row["pose_updates"] == base["pose_updates"] else f"{name}, pose updates {row['pose_updates']}"


def main() -> None:
    rows = residual_study_rows()
    base = rows[0]
    figure = pyplot.figure(figsize=(13, 6.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    axes = top.subplots(1, len(SCALES), sharey=True)
    for axis, key in zip(axes, SCALES, strict=True):
        alike = [row for row in rows if all(row[k] == base[k] for k in (*SCALES, "without") if k != key)]
        alike.sort(key=lambda row: row[key])
        places = [row[key] for row in alike]
        for group, colour in GROUPS.items():
            axis.loglog(places, [row[f"unexplained {group}"] for row in alike], "o-", color=colour, label=group)
        axis.set_xticks(places, [short(place) for place in places])
        axis.minorticks_off()
        axis.set_xlabel(modern(key))
        axis.grid(alpha=0.3)
    axes[0].set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes[0].set_ylim(TICKS[0] / 2, 100 * TICKS[0])
    axes[0].set_ylabel("unexplained part")
    axes[0].legend(fontsize=8)
    without = [base, *(row for row in rows if row["without"])]
    names = [left_out(row, base) for row in without]
    axis = bottom.subplots()
    for k, (group, colour) in enumerate(GROUPS.items()):
        places = [n + 0.27 * (k - 1) for n in range(len(without))]
        axis.barh(places, [row[f"unexplained {group}"] for row in without], 0.25, color=colour)
    axis.set_yticks(range(len(without)), names, fontsize=9)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axis.minorticks_off()
    axis.set_xlim(left=TICKS[0] / 2)
    axis.set_xlabel("unexplained part of the change of velocity, with this left out")
    axis.grid(alpha=0.3, axis="x")
    figure.savefig(ROOT / "docs" / "pictures" / "legged-study.png", dpi=100)


if __name__ == "__main__":
    main()
