"""A plan as a film."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch

from nerd_gym.utils.progress import progress
from nerd_gym.utils.video import VideoWriter, label

from .execution import env_at_start
from .result import Plan

LEAST_SECONDS, HELD = 3.0, 8  # a shorter plan is shown slowly; pictures that its end stays for


def film(plan: Plan, path: Path) -> None:
    """One picture per action, or as many as the task has within one, and the start and the end a little longer."""
    slow = max(1, round(LEAST_SECONDS / (len(plan.actions) * plan.step_dt)))
    env = env_at_start(plan)
    speed = f", {slow} times slower" if slow > 1 else ""
    seconds = env.task.picture_dt
    try:
        with torch.no_grad(), VideoWriter(path, 1 / (seconds * slow)) as writer:

            def show(count: int, times: int = 1) -> None:
                text = f"{plan.env_id} on {plan.backend}{speed}   {count * seconds:.2f} s"
                picture = label(env.renderer.frame(env), text)
                for _ in range(times):
                    writer.add(picture)

            show(0, HELD // 2)
            shown = itertools.count(1)
            env.watch = lambda: show(next(shown))
            for action in progress(plan.actions[: plan.steps], unit="step", desc="film"):
                env.step(action[None])
                env.watch()
            show(next(shown) - 1, HELD)
    finally:
        env.close()
