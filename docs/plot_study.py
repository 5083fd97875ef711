"""What a legged robot's model gains by what: benchmarks/results/legged_study.json -> docs/legged-study.png.

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
SCALES = {"transitions": "transitions", "steps": "steps", "width": "width", "lr": "learning rate"}


def main() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "legged_study.json").read_text())["rows"]
    base = rows[0]
    figure, axes = pyplot.subplots(1, 5, figsize=(15, 3.4), gridspec_kw={"width_ratios": [1, 1, 1, 1, 1.6]})
    for axis, key in zip(axes, SCALES, strict=False):
        alike = [row for row in rows if all(row[k] == base[k] for k in (*SCALES, "without") if k != key)]
        alike.sort(key=lambda row: row[key])
        for group, colour in GROUPS.items():
            values = [row[f"unexplained {group}"] for row in alike]
            axis.loglog([row[key] for row in alike], values, "o-", color=colour, label=group)
        axis.set_xlabel(SCALES[key])
        axis.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("unexplained part of the change of velocity")
    axes[0].legend(fontsize=8)
    without = [base, *(row for row in rows if row["without"])]
    names = [row["without"] or "nothing" for row in without]
    for k, (group, colour) in enumerate(GROUPS.items()):
        places = [n + 0.27 * (k - 1) for n in range(len(without))]
        axes[-1].barh(places, [row[f"unexplained {group}"] for row in without], 0.25, color=colour)
    axes[-1].set_yticks(range(len(without)), names, fontsize=8)
    axes[-1].invert_yaxis()
    axes[-1].set_xlabel("left out: unexplained part")
    axes[-1].grid(alpha=0.3, axis="x")
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "legged-study.png", dpi=110)


if __name__ == "__main__":
    main()
