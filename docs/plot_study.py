"""What a legged robot's model gains by what: benchmarks/results/legged_study_sketched.json -> docs/legged-study.png.

python docs/plot_study.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

ROOT = Path(__file__).parent.parent
GROUPS = {"linear": "tab:blue", "angular": "tab:orange", "joints": "tab:green"}
TICKS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
SCALES = {"transitions": "transitions", "steps": "steps", "width": "width", "lr": "learning rate", "looks": "looks"}


def short(value: float) -> str:
    """125000 -> 125k."""
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if value >= size and value % (size / 10) == 0:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def main() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "legged_study_sketched.json").read_text())["rows"]
    base = rows[0]
    figure = pyplot.figure(figsize=(13, 6.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    axes = top.subplots(1, len(SCALES), sharey=True)
    for axis, (key, title) in zip(axes, SCALES.items(), strict=True):
        alike = [row for row in rows if all(row[k] == base[k] for k in (*SCALES, "without") if k != key)]
        alike.sort(key=lambda row: row[key])
        places = [row[key] for row in alike]
        for group, colour in GROUPS.items():
            axis.loglog(places, [row[f"unexplained {group}"] for row in alike], "o-", color=colour, label=group)
        axis.set_xticks(places, [short(place) for place in places])
        axis.minorticks_off()
        axis.set_xlabel(title)
        axis.grid(alpha=0.3)
    axes[0].set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes[0].set_ylim(TICKS[0] / 2, 100 * TICKS[0])
    axes[0].set_ylabel("unexplained part")
    axes[0].legend(fontsize=8)
    without = [base, *(row for row in rows if row["without"])]
    names = [row["without"] or "nothing" for row in without]
    names = [
        name if row["looks"] == base["looks"] else f"{name}, looks {row['looks']}"
        for name, row in zip(names, without, strict=True)
    ]
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
    figure.savefig(ROOT / "docs" / "legged-study.png", dpi=100)


if __name__ == "__main__":
    main()
