"""A plan on other backends, from the same start: whether it holds there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nerd_gym.backends import parse_backend
from nerd_gym.envs.factory import manual_reset_env
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.policies.facts import of_task

from .result import Plan
from .rollouts import Rollouts


@dataclass(frozen=True)
class Execution:
    """What a plan comes to on a backend."""

    backend: str  # as it was asked for
    value: float  # return, or objective
    steps: int
    ended: str  # how: all actions, terminated or diverged
    trust: float | None  # least trust in a learned model on the way
    measures: dict[str, float]  # the task's, at the end


def env_at_start(plan: Plan, label: str | None = None) -> NerdVectorEnv:
    """One robot at the plan's start, on its own backend or on another one."""
    name, own = (plan.backend, plan.options) if label is None else parse_backend(label)
    options = own if label is None else own | of_task(plan.env_id, plan.options)
    env = manual_reset_env(plan.env_id, 1, name, **options)
    plan.start.place(env)
    return env


def execute(plan: Plan, labels: Sequence[str]) -> list[Execution]:
    """Carry the plan out on each backend; options after a colon, ``warp:substeps=4``."""
    found = []
    for label in labels:
        env = env_at_start(plan, label)
        try:
            outcome = Rollouts(env, env.snapshot(), plan.objective)(plan.actions[:, None])
            found.append(
                Execution(
                    backend=label,
                    value=float(outcome.value[0]),
                    steps=int(outcome.steps[0]),
                    ended=_ended(bool(outcome.diverged[0]), bool(outcome.terminated[0])),
                    trust=None if outcome.trust is None else float(outcome.trust[0]),
                    measures={name: float(value[0]) for name, value in env.measures().items()},
                )
            )
        finally:
            env.close()
    return found


def executions_table(plan: Plan, executions: Sequence[Execution]) -> str:
    """The plan's own value and what it comes to elsewhere, side by side."""
    lines = [f"{'backend':28s}{plan.value_name:>12s}{'less planned':>14s}{'steps':>8s}  ended"]
    planned = Execution(f"{plan.backend} (planned)", plan.value, plan.steps, _ended(False, plan.terminated), None, {})
    for e in (planned, *executions):
        told = "".join(f", {name} {value:.3g}" for name, value in e.measures.items())
        told += "" if e.trust is None else f", least model trust {e.trust:.2f}"
        line = f"{e.backend:28s}{e.value:12.4f}{e.value - plan.value:+14.4f}{e.steps:8d}  {e.ended}{told}"
        lines.append(line)
    return "\n".join(lines)


def executions_facts(executions: Sequence[Execution]) -> list[dict[str, Any]]:
    """For json."""
    return [asdict(execution) for execution in executions]


def _ended(diverged: bool, terminated: bool) -> str:
    return "diverged" if diverged else "terminated" if terminated else "all actions"
