"""A plan as a film."""

from __future__ import annotations

from pathlib import Path

import torch

from nerd_gym.utils.progress import progress
from nerd_gym.utils.video import VideoWriter, label

from .execution import env_at_start
from .result import Plan

LEAST_SECONDS, HELD = 3.0, 8  # a shorter plan is shown slowly; pictures that its end stays for


def film(plan: Plan, path: Path) -> None:
    """One picture per action, and the start and the end a little longer."""
    slow = max(1, round(LEAST_SECONDS / (len(plan.actions) * plan.step_dt)))
    env = env_at_start(plan)
    speed = f", {slow} times slower" if slow > 1 else ""
    text = f"{plan.env_id} on {plan.backend}{speed}"
    try:
        with torch.no_grad(), VideoWriter(path, 1 / (plan.step_dt * slow)) as writer:
            picture = label(env.renderer.frame(env), f"{text}   0.00 s")
            for _ in range(HELD // 2):
                writer.add(picture)
            for k, action in enumerate(progress(plan.actions[: plan.steps], unit="step", desc="film"), 1):
                env.step(action[None])
                picture = label(env.renderer.frame(env), f"{text}   {k * plan.step_dt:.2f} s")
                writer.add(picture)
            for _ in range(HELD):
                writer.add(picture)
    finally:
        env.close()
