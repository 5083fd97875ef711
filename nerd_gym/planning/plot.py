"""A search as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from nerd_gym.utils.files import atomic_write
from nerd_gym.utils.optional import require

from .result import Plan

BLUE, ORANGE, GREY = "#1f6fd0", "#f08a1d", "#888888"
MOST_LINES, MOST_DOTS = 8, 20_000  # actions in one panel; candidates in the picture


def plot(plan: Plan, path: Path) -> None:
    """Left every candidate's value, right the actions: of all candidates if they are few numbers, else of the best."""
    require("matplotlib", extra="video").use("Agg")
    from matplotlib import pyplot

    panels = 1 if plan.tried is None else plan.tried.shape[2]
    figure, axes = pyplot.subplots(
        1, 1 + panels, figsize=(5.2 + (5.2, 3.3)[panels > 1] * panels, 3.9), squeeze=False, layout="constrained"
    )
    _values(axes[0, 0], plan)
    if plan.tried is None:
        _best_actions(axes[0, 1], plan)
    else:
        _tried(figure, axes[0, 1:], plan)
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.title.set_fontsize(10)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    method = f"{plan.config.method}, {plan.config.candidates} candidates"
    figure.suptitle(f"{plan.env_id} on {plan.backend}, {method}, best {plan.value_name} {plan.value:.4g}", fontsize=11)
    with atomic_write(path) as part:
        figure.savefig(part, dpi=110, format="png")
    pyplot.close(figure)


def _values(axis: Any, plan: Plan) -> None:
    iterations, candidates = plan.values.shape
    stride = -(-iterations * candidates // MOST_DOTS)
    axis.scatter(_places(plan, stride), plan.values[:, ::stride], s=4, color=GREY, alpha=0.4, linewidth=0)
    count = torch.arange(1, iterations + 1)
    axis.plot(count, [i.mean for i in plan.history], color=BLUE, linewidth=1.8, label="mean")
    axis.plot(count, [i.best_so_far for i in plan.history], color=ORANGE, linewidth=1.8, label="best so far")
    # A few candidates that fall over must not squeeze the others into a line.
    low = min(float(plan.values.nanquantile(0.02)), min(i.mean for i in plan.history))
    room = 0.06 * max(plan.value - low, 1e-9)
    axis.set_ylim(low - room, plan.value + room)
    axis.set_xlabel("iteration")
    axis.set_title(f"{plan.value_name} of each candidate (lowest 2 % cut off)")
    axis.legend(fontsize=7, loc="lower right")


def _best_actions(axis: Any, plan: Plan) -> None:
    time = plan.step_dt * torch.arange(len(plan.actions) + 1)
    for k, course in enumerate(plan.actions.T[:MOST_LINES]):
        axis.stairs(course.numpy(), time.numpy(), baseline=None, linewidth=1.5, label=f"action {k}")
    if plan.steps < len(plan.actions):
        axis.axvline(plan.steps * plan.step_dt, color=GREY, linestyle=":", label="episode ends")
    axis.set_ylim(-1.08, 1.08)
    axis.set_xlabel("s")
    left_out = plan.actions.shape[1] - MOST_LINES
    axis.set_title("actions of the best plan" + (f", {left_out} more left out" if left_out > 0 else ""))
    if plan.actions.shape[1] > 1:
        axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _tried(figure: Any, axes: Any, plan: Plan) -> None:
    assert plan.tried is not None
    iterations, candidates, _ = plan.tried.shape
    stride = -(-iterations * candidates // MOST_DOTS)
    values, low = plan.values[:, ::stride], float(plan.values.nanquantile(0.02))
    for k, axis in enumerate(axes):
        knot, action = divmod(k, plan.actions.shape[1])
        points = plan.tried[:, ::stride, k]
        dots = axis.scatter(
            _places(plan, stride), points, s=6, c=values, vmin=low, vmax=plan.value, cmap="viridis", linewidth=0
        )
        axis.set_ylim(-1.08, 1.08)
        axis.set_xlabel("iteration")
        axis.set_title(f"action {action}" + (f", knot {knot}" if len(plan.actions) > 1 else ""))
    figure.colorbar(dots, ax=axes[-1], label=plan.value_name)


def _places(plan: Plan, stride: int) -> torch.Tensor:
    """[iterations, C / stride]: candidates of an iteration stand side by side, or they would hide one another."""
    iterations, candidates = plan.values.shape
    beside = 0.7 * (torch.linspace(0, 1, candidates)[::stride] - 0.5)
    return 1 + torch.arange(iterations)[:, None] + beside
