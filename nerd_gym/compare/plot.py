"""A comparison as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.utils.files import atomic_write

from .comparison import DOUBTED, BackendRun, Comparison
from .metrics import quartiles
from .table import title

BASELINE, LEARNED, YARDSTICK = "#1f6fd0", "#f08a1d", "#888888"
DASHES = ("-", "--", "-.", ":", (0, (5, 1)))
OTHERS = ("#2a9d5c", "#8e44ad", "#c0392b", "#00838f")


def colours(c: Comparison) -> dict[str, str]:
    """The baseline blue, the film's other robot orange."""
    out, others = {c.baseline.label: BASELINE, c.pair[1].label: LEARNED, c.yardstick.label: YARDSTICK}, iter(OTHERS * 9)
    return out | {run.label: next(others) for run in c.runs if run.label not in out}


def plot(c: Comparison, path: Path) -> None:
    """Returns, differences, the task's measures, errors and trust over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"text.parse_math": False}):  # a `$` in the name of a file is no formula
        _plot(pyplot, c, path)


def _plot(pyplot: Any, c: Comparison, path: Path) -> None:

    columns, colour = [*c.runs, c.yardstick], colours(c)
    dashes = {run.label: DASHES[k % len(DASHES)] for k, run in enumerate(columns)}  # lines often lie on one another
    judged = [(run, run.trust) for run in c.runs if run.trust]
    panels = 2 + len(c.baseline.played.measures) + len(c.units) + bool(judged)
    wide, high = min(3, panels), -(-panels // 3)
    figure, axes = pyplot.subplots(high, wide, figsize=(4.6 * wide, 3.3 * high), squeeze=False)
    free = iter(axes.flat)

    def intervals(axis, runs: list[BackendRun], which: str, scale: float = 1.0) -> None:
        for k, run in enumerate(runs):
            e = getattr(run, which)["return"]
            spread = [[scale * (e.mean - e.low)], [scale * (e.high - e.mean)]]
            axis.errorbar([scale * e.mean], [k], xerr=spread, fmt="o", color=colour[run.label], capsize=4)
        axis.set_yticks(range(len(runs)), [_short(run.label) for run in runs], fontsize=8)
        axis.set_ylim(len(runs) - 0.5, -0.5)

    def course(axis, values: Tensor, label: str, of: str) -> None:
        low, middle, high = values.clamp(min=1e-9).T.numpy() if axis.get_yscale() == "log" else values.T.numpy()
        time = c.step * (1 + torch.arange(len(middle)).numpy())
        axis.plot(time, middle, color=colour[of], linestyle=dashes[of], label=_short(label), linewidth=1.8)
        axis.fill_between(time, low, high, color=colour[of], alpha=0.12, linewidth=0)
        axis.set_xlabel("s")

    axis = next(free)
    intervals(axis, columns, "figures")
    axis.set_title("mean return, 95 % interval")
    axis = next(free)
    mean = abs(c.baseline.figures["return"].mean)
    intervals(axis, columns[1:], "differences", 100 / mean if mean else 1.0)
    edge = 100 * c.margin if mean else 0.0
    axis.axvspan(-edge, edge, color="#1a7f37", alpha=0.12, linewidth=0)
    axis.axvline(0, color=BASELINE, linewidth=1)
    axis.set_title(f"return less that on {c.baseline.label} ({'%' if mean else 'absolute'})")
    for name in c.baseline.played.measures:
        axis = next(free)
        for run in columns:
            course(axis, quartiles(run.played.measures[name], run.played.running), run.label, run.label)
        axis.set_title(name)
        axis.legend(fontsize=7)
    for name, unit in c.units.items():
        axis = next(free)
        axis.set_yscale("log")
        for run in columns[1:]:
            course(axis, quartiles(run.errors[name]), run.label, run.label)
        axis.set_title(f"{name} ({unit}) off {c.baseline.label}")
        axis.legend(fontsize=7)
    if judged:
        axis = next(free)
        for run, trust in judged:
            if run.trust_on_baseline:
                label = f"{run.label}, where {c.baseline.label} goes"
                course(axis, run.trust_on_baseline.course, label, c.baseline.label)
            course(axis, trust.course, f"{run.label}, where it goes", run.label)
        axis.set_ylim(-0.03, 1.03)
        axis.axhline(DOUBTED, color="#888888", linewidth=0.8, linestyle=":")
        axis.set_title("trust of the learned model")
        axis.legend(fontsize=7)
    for axis in free:
        axis.axis("off")
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.title.set_fontsize(10)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title(c)}; lines are medians with quartiles", fontsize=11)
    figure.tight_layout()
    with atomic_write(path) as part:
        figure.savefig(part, dpi=110, format="png")
    pyplot.close(figure)


def _short(label: str) -> str:
    return label.replace(", starts displaced by", ",\nstarts off by")
