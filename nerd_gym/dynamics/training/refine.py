"""Collect what is missing where policies go, and train a model further: `nerd-gym train ROBOT --refine POLICY`.

The teacher plays the policies from the starts of their tasks and from where the model takes them, with more or less
noise; the model goes on from its weights on the old data and the new. Both halves go on where a stopped run was.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nerd_gym.data.dataset import DatasetPlan, generate
from nerd_gym.data.reader import read_facts
from nerd_gym.dynamics.models.checkpoint import load_model
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import file_hash

from .train import Settings, train


def refine(
    policies: Sequence[Path],
    start: Path,
    data: Sequence[Path],
    robot: RobotModel,
    out: Path,
    settings: Settings,
    transitions: int,
    command: str = "",
) -> dict[str, Any]:
    """Train the model `start` further on `data` and on `transitions` new ones; returns the facts of the new model."""
    _, facts = load_model(start, robot)
    if out.resolve() == start.resolve():
        raise ValueError(f"{out} is the model to start from; give the refined one another name with --out")
    about = read_facts(data[0], robot)
    if (facts["teacher"], facts["teacher_options"]) != (about["backend"], about["backend_options"]):
        raise ValueError(f"{start.name} was learned from {facts['teacher']}; {data[0]} is of {about['backend']}")
    tag = "-".join(file_hash(path)[:6] for path in policies)
    new = out.parent / f"{out.stem}-{tag}.h5"
    new.parent.mkdir(parents=True, exist_ok=True)
    options = tuple(json.loads(about["backend_options"]).items())
    plan = DatasetPlan(
        robot,
        str(about["backend"]),
        transitions,
        int(about["frames"]),
        seed=settings.seed,
        options=options,
        task_share=1.0,
        policies=tuple(policies),
        model=start,
    )
    generate(plan, new)
    return train([*data, new], robot, out, replace(settings, kind=facts["kind"], start=start), command)
