"""What a policy's file tells of the environment that it was trained in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from nerd_gym.envs.task import option_names
from nerd_gym.registration import env_spec
from nerd_gym.wrappers.base import torch_env

from .policy import Policy

Facts = dict[str, Any]


def environment_facts(env: VectorEnv) -> Facts:
    """What a policy's facts tell of the environment that it was trained in."""
    native = torch_env(env)
    task, backend, robot = native.task, native.backend, native.task.robot
    given = native.spec.kwargs if native.spec else {}
    told = [name for name in backend.options if name in given and name != "threads"]  # which changes nothing
    options = asdict(task.config) | {name: given[name] for name in told}
    facts = {
        "env": native.spec.id if native.spec else None,
        "options": {name: Path(v).name if isinstance(v, Path) else v for name, v in options.items()},
        "backend": backend.name,
        "robot": robot.name,
        "robot_hash": robot.hash,
        "joint_names": list(robot.joint_names),
        "actuation": task.actuation,
        "frame_dt": task.frame_dt,
        "frames_per_action": task.frames,
        "horizon": native.horizon,
    }
    if backend.learned:
        facts["dynamics"] = {name: backend.facts.get(name) for name in ("kind", "teacher", "seed", "command", "hash")}
    return facts


def trained_for(policy: Path, backend: str | None = None) -> tuple[str, str, dict[str, Any]]:
    """Environment, backend and options that a policy's file tells: the task's, and those of its own backend."""
    facts = Policy.load(policy).facts
    if "env" not in facts or "backend" not in facts:
        raise ValueError(f"{policy.name} does not tell its environment; use nerd-gym play ID --agent {policy}")
    env_id, chosen, options = (
        facts["env"],
        str(facts["backend"] if backend is None else backend),
        dict(facts["options"]),
    )
    options.pop("threads", None)  # which changes nothing
    return env_id, chosen, options if chosen == facts["backend"] else of_task(env_id, options)


def of_task(env_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that are the task's."""
    names = option_names(env_spec(env_id).task_class().config_class)
    return {name: value for name, value in options.items() if name in names}
