"""Training curves of the shipped policies: policies/*/*.csv -> docs/pictures/training.png.

python docs/plot_curves.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

ROOT = Path(__file__).parent.parent
COLOURS = {"neural": "tab:orange", "warp": "tab:blue", "mujoco": "tab:green", "hybrid": "tab:red"}


def curves() -> dict[str, dict[str, list[tuple[list[float], list[float]]]]]:
    """Steps and returns of every seed, by policy and backend."""
    out: dict[str, dict[str, list]] = {}
    for path in sorted((ROOT / "policies").glob("*/*.csv")):
        name, backend, _ = path.stem.rsplit("-", 2)
        rows = [row for row in csv.DictReader(path.open()) if row["return"] != "nan"]
        points = [float(row["steps"]) for row in rows], [float(row["return"]) for row in rows]
        out.setdefault(f"{path.parent.name} {name}", {}).setdefault(backend, []).append(points)
    return out


def main() -> None:
    panels = curves()
    columns = 3
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(9, 2.6 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (name, backends) in zip(axes.flat, panels.items()):
        for backend, seeds in backends.items():
            for k, (steps, returns) in enumerate(seeds):
                label = None if k else f"in {backend}"
                axis.plot([s / 1e6 for s in steps], returns, color=COLOURS[backend], lw=1, alpha=0.8, label=label)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("million steps", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, loc="lower right")
    for axis in axes[:, 0]:
        axis.set_ylabel("return while exploring", fontsize=8)
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "pictures" / "training.png", dpi=110)


if __name__ == "__main__":
    main()
