"""Pictures: a wiring, which signals survive a penalty, and a loss over two parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nerd_gym.utils.files import atomic_write
from nerd_gym.utils.optional import require

from .models.blueprint import ResolvedWire

MOST_NAMES, MOST_LINES = 14, 10  # per column of a picture of wires; with a name of their own in a plot
COLOURS = ("#1f6fd0", "#f08a1d", "#2a9d5c", "#c0392b", "#8e5bb5", "#888888")


def plot_wiring(wires: Sequence[ResolvedWire], path: Path) -> None:
    """Signals on the left, networks in the middle, scalars on the right."""
    inputs = _listed([name for one in wires for names in one.inputs for name in names])
    outputs = _listed([name for one in wires for names in one.outputs for name in names])
    rows = max(len(inputs), len(outputs), 2 * len(wires))
    with _figure(path, (8.0, 0.8 + 0.32 * rows)) as (_, axis):
        axis.set_axis_off()
        left, right = (_places(names) for names in (inputs, outputs))
        for name, y in left.items():
            axis.text(0.0, y, name, ha="left", va="center", fontsize=9)
        for name, y in right.items():
            axis.text(1.0, y, name, ha="right", va="center", fontsize=9)
        for k, one in enumerate(wires):
            colour, y = COLOURS[k % len(COLOURS)], 1 - (k + 0.5) / len(wires)
            for names, places, ends in ((one.inputs, left, (0.26, 0.4)), (one.outputs, right, (0.74, 0.6))):
                for place in sorted({places.get(name, places.get(_MORE, 0.0)) for own in names for name in own}):
                    axis.plot(ends, (place, y), color=colour, linewidth=1, alpha=0.7)
            axis.text(
                0.5, y, _network(one), ha="center", va="center", fontsize=9,
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": colour},
            )  # fmt: skip
        axis.set_xlim(0, 1)
        axis.set_ylim(-0.02, 1.02)


_MORE = "…"


def _listed(names: list[str]) -> list[str]:
    unique = list(dict.fromkeys(names))
    return unique if len(unique) <= MOST_NAMES else [*unique[: MOST_NAMES - 1], _MORE]


def _places(names: list[str]) -> dict[str, float]:
    return {name: 1 - (k + 0.5) / len(names) for k, name in enumerate(names)}


def _network(one: ResolvedWire) -> str:
    sizes = "-".join(map(str, (len(one.inputs[0]), *one.wire.hidden, len(one.outputs[0]))))
    times = f", {len(one.outputs)} times" if len(one.outputs) > 1 else ""
    return f"{sizes} {one.wire.activation}{times}" + ("" if one.wire.residual else "\nreplaces")


def plot_path(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Norms of the signals' columns over the penalty, a panel per wire, and above them the error on held-back runs."""
    rows = sorted(rows, key=lambda row: row["lasso"])
    sizes, wires = [row["lasso"] for row in rows], len(rows[0]["surviving"])
    with _figure(path, (4.2 * (1 + wires), 3.6), 1 + wires) as (_, axes):
        axes[0].semilogx(sizes, [row["held_error"]["end"] for row in rows], "o-", color=COLOURS[0])
        axes[0].set_title("error on held-back runs")
        for k, axis in enumerate(axes[1:]):
            norms: dict[str, list[float]] = {}
            for row in rows:
                for name in row["surviving"][k]:
                    norms.setdefault(name, [])
            for name, values in norms.items():
                values.extend(row["surviving"][k].get(name, 0.0) for row in rows)
            ranked = sorted(norms, key=lambda name: -sum(norms[name]))
            for j, name in enumerate(ranked):
                named = j < MOST_LINES
                label, colour = (name, f"C{j % 10}") if named else (None, "#bbbbbb")
                axis.plot(sizes, norms[name], "o-", label=label, color=colour, markersize=4)
            axis.set_xscale("log")
            axis.set_title("norm of the column" + (f", wire {k}" if wires > 1 else ""))
            if norms:
                axis.legend(fontsize=7)
            else:
                axis.text(0.5, 0.5, "no signal survives", ha="center", transform=axis.transAxes)
                axis.set_xlim(sizes[0], sizes[-1] * (1 + 1e-9))
        for axis in axes:
            axis.set_xlabel("penalty")
            axis.grid(alpha=0.25)


def plot_landscape(
    x: np.ndarray,
    y: np.ndarray,
    loss: np.ndarray,
    path: Path,
    names: tuple[str, str],
    points: np.ndarray | None = None,
) -> None:
    """Contours of the logarithm of a loss [len(y), len(x)], and points [N, 2] where searches ended."""
    with _figure(path, (5.4, 4.4)) as (figure, axis):
        finite = np.where(np.isfinite(loss) & (loss > 0), loss, np.nan)
        filled = axis.contourf(x, y, np.log10(finite), levels=30, cmap="viridis")
        figure.colorbar(filled, ax=axis, label="log10 of the loss")
        if points is not None:
            axis.plot(points[:, 0], points[:, 1], "o", color=COLOURS[1], markersize=4)
        axis.set_xlabel(names[0])
        axis.set_ylabel(names[1])
        axis.set_xlim(x.min(), x.max())
        axis.set_ylim(y.min(), y.max())


@contextmanager
def _figure(path: Path, size: tuple[float, float], panels: int = 1) -> Iterator[tuple[Any, Any]]:
    """A figure that is written whole, or not at all."""
    require("matplotlib", extra="video").use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, panels, figsize=size, layout="constrained")
    try:
        yield figure, axes
        with atomic_write(path) as part:
            figure.savefig(part, dpi=110, format="png")
    finally:
        pyplot.close(figure)
