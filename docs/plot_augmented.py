"""Plots of networks inside the engine, from benchmarks/results/augmented_*.json."""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from results_json import ROOT, load

PICTURES = ROOT / "docs" / "pictures"
BLUE, ORANGE, GREY = "#1f6fd0", "#f08a1d", "#888888"


def discovery() -> None:
    """Errors over the number of samples: feed-forward networks beside the augmented engine."""
    rows = load("augmented_discovery")["rows"]
    figure, axis = pyplot.subplots(figsize=(5.2, 3.4), layout="constrained")
    for k, row in enumerate(rows):
        others = row["feed_forward"]
        label = "feed-forward network" if k == 0 else None
        axis.loglog([o["samples"] for o in others], [o["rmse"] for o in others], "o-", color=GREY, label=label)
        label = "networks inside the engine" if k == 0 else None
        axis.loglog(row["samples"], row["rmse"], "o", color=BLUE, label=label)
    axis.set_xlabel("samples to train on")
    axis.set_ylabel("error over 900 frames, rad")
    axis.legend(fontsize=8)
    _save(figure, "augmented-discovery.png")


def measured() -> None:
    """Errors on tosses that were only tested, a dot per seed."""
    seeds = load("augmented_cube")["seeds"]
    figure, axes = pyplot.subplots(1, 2, figsize=(8.4, 2.4), sharey=True, layout="constrained")
    for axis, (unit, label) in zip(axes, (("mm", "mean error, mm"), ("degrees", "mean error, degrees")), strict=True):
        _dots(axis, {name: [seed["rows"][name][unit][0] for seed in seeds] for name in seeds[0]["rows"]})
        axis.set_xlabel(label)
    _save(figure, "augmented-measured.png")


def _dots(axis: Any, values: dict[str, list[float]]) -> None:
    for y, (name, own) in enumerate(reversed(values.items())):
        colour = ORANGE if "network" in name else BLUE
        axis.plot(own, [y] * len(own), "o", color=colour, alpha=0.7)
    axis.set_yticks(range(len(values)), list(reversed(values)), fontsize=8)
    axis.set_ylim(-0.6, len(values) - 0.4)
    axis.set_xlim(left=0)
    axis.grid(axis="x", alpha=0.3)


def _save(figure: Any, name: str) -> None:
    figure.savefig(PICTURES / name, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    discovery()
    measured()
