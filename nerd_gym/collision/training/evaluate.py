"""How well models predict collisions: a table, a json, and a picture of predicted against true outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerd_gym.collision.models.model import CollisionModel
from nerd_gym.collision.models.surrogate import share_within
from nerd_gym.collision.models.table import to_tensor
from nerd_gym.collision.scenes.columns import COLUMNS, OUTCOME, draw
from nerd_gym.collision.scenes.shapes import shape_named
from nerd_gym.collision.scenes.simulate import CollisionSimulator
from nerd_gym.utils.files import atomic_write, finite

LIMITS = (0.05, 0.1, 0.2, 0.3)


def unseen(shape: str, count: int, seed: int, threads: int | None = None) -> dict[str, np.ndarray]:
    """Collisions that no training saw, if their seed is another."""
    own = shape_named(shape)
    pre = draw(own, count, np.random.default_rng([seed, 2**31]))  # no block of a dataset has this number
    post = CollisionSimulator(own, 2048, threads)(pre)
    return dict(zip((*COLUMNS, *OUTCOME), (*pre.T, *post.T), strict=True))


def errors_of(model: CollisionModel, samples: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Relative errors [N], predicted and true velocities [N, V]."""
    names = model.outcome[: model.velocities]
    true = to_tensor(samples, names, "samples")
    found = model.predict(samples)
    predicted = torch.stack([torch.as_tensor(found[name]) for name in names], -1)
    weight = _weights(model, samples)
    error = ((predicted - true) * weight).norm(dim=-1) / (true * weight).norm(dim=-1)
    return error, predicted, true


def _weights(model: CollisionModel, samples: Mapping[str, Any]) -> Tensor:
    """By which velocities count: an angular one times a lever, so that all are m/s."""
    from nerd_gym.collision.models.surrogate import LEVER

    if model.shape is not None:
        return torch.tensor([1.0, 1.0, LEVER])
    pre = to_tensor(samples, model.columns, "samples")
    gyration = [(pre[:, k + 1] / pre[:, k]).sqrt() for k in ((0, 11) if model.velocities > 3 else (0,))]
    one = torch.ones(len(pre))
    return torch.stack([value for g in gyration for value in (one, one, g)], -1)


def evaluate(models: Mapping[str, CollisionModel], samples: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """Write evaluation.json and evaluation.png to a folder; returns the table."""
    rows, curves = {}, {}
    for name, model in models.items():
        error, predicted, true = errors_of(model, samples)
        rows[name] = {
            "samples": len(error),
            "within": share_within(error, LIMITS),
            "median_error": float(error.median()),
            "shape": model.shape.name if model.shape else None,
            "adapted": model.facts.get("adapted"),
        }
        curves[name] = (error, predicted, true, model.outcome)
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(out / "evaluation.json") as part:
        part.write_text(json.dumps(finite(rows), indent=1) + "\n")
    plot(curves, out / "evaluation.png")
    return rows


def plot(curves: Mapping[str, tuple[Tensor, Tensor, Tensor, tuple[str, ...]]], path: Path) -> None:
    """Predicted against true outcome of the first model, and accuracy against threshold of all."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"text.parse_math": False}):
        first = next(iter(curves.values()))
        figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
        for k, axis in enumerate(axes[:3]):
            true, predicted = first[2][:, k], first[1][:, k]
            axis.plot(true, predicted, ".", markersize=2, alpha=0.5)
            ends = [float(true.min()), float(true.max())]
            axis.plot(ends, ends, color="#888888", linewidth=1)
            axis.set_xlabel(f"true {first[3][k]}")
            axis.set_ylabel("predicted")
        limits = np.linspace(0, 0.4, 81)
        for name, (error, *_) in curves.items():
            axes[3].plot(limits, [float((error <= limit).float().mean()) for limit in limits], label=name)
        axes[3].set_xlabel("relative error")
        axes[3].set_ylabel("share of collisions within")
        axes[3].legend()
        with atomic_write(path) as part:
            figure.savefig(part, format="png", dpi=110)
        pyplot.close(figure)


def print_rows(rows: Mapping[str, Any]) -> None:
    """The table."""
    heads = [f"{float(limit):.0%}" for limit in LIMITS]
    print(f"{'model':28s}{'samples':>9s}" + "".join(f"{head:>8s}" for head in heads) + f"{'median':>9s}")
    for name, row in rows.items():
        shares = "".join(f"{row['within'][f'{limit:g}']:8.3f}" for limit in LIMITS)
        print(f"{name:28s}{row['samples']:9d}{shares}{row['median_error']:9.4f}")
