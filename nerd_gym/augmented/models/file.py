"""Augmented engines on disk: safetensors with blueprint and facts as json. Loading runs no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import check_facts, check_numbers, load_tensors, save_tensors, strip_prefix

from .blueprint import Blueprint
from .model import CONTACTS, AugmentedModel

KIND = "augmented"
NEEDED = {"kind": (str,), "robot": (str,), "robot_hash": (str,), "frame_dt": (float, int), "wires": (list,)}
NEEDED |= {"contact": (str,), "sweeps": (int,)}
MOST_SWEEPS = 10_000
LARGEST = 1e9
MAY_BE_INFINITE = ("values.lower", "values.upper")
AT_LEAST_0 = ("mass", "armature", "damping", "stiffness", "limit_gains", "contact_gains")


def save_augmented(path: str | Path, model: AugmentedModel, facts: dict[str, Any] | None = None) -> None:
    """Write a model, whole or not at all."""
    robot = model.robot
    own = {"kind": KIND, "robot": robot.name, "robot_hash": robot.hash, "frame_dt": robot.frame_dt}
    own |= {"wires": model.blueprint.facts(), "contact": model.contact, "sweeps": model.sweeps}
    tensors = {name: value.detach().clone() for name, value in model.state_dict().items()}
    save_tensors(Path(path), tensors, (facts or {}) | own)


def load_augmented(path: str | Path, robot: RobotModel) -> tuple[AugmentedModel, dict[str, Any]]:
    """A model and its facts, if it is of this robot and frame time."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no model at {path}")
    tensors, facts = load_tensors(path)
    check_facts(path.name, facts, NEEDED)
    if facts["kind"] != KIND:
        raise ValueError(f"{path.name} is a model of kind {facts['kind']!r}; backend 'augmented' takes {KIND!r}")
    robot.check_learned(path.name, facts)
    check_numbers(path.name, tensors, MAY_BE_INFINITE)
    if facts["contact"] not in CONTACTS:
        raise ValueError(f"{path.name} has contact = {facts['contact']!r}; valid: {', '.join(CONTACTS)}")
    if not 1 <= facts["sweeps"] <= MOST_SWEEPS:
        raise ValueError(f"{path.name} has sweeps = {facts['sweeps']}; valid: 1 to {MOST_SWEEPS}")
    blueprint = Blueprint.of_facts(path.name, facts["wires"])
    try:
        values = strip_prefix(tensors, "values.")
        model = AugmentedModel(
            robot, blueprint, values, facts["contact"], tensors.get("contact_values"), facts["sweeps"]
        )
        model.load_state_dict(tensors)
    except (RuntimeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{path.name} is no whole augmented engine of {robot.name}: {error}") from error
    _check_values(path.name, model)
    model.requires_grad_(False)
    return model, facts


def _check_values(name: str, model: AugmentedModel) -> None:
    """Refuse parameters and scales with which nothing could move."""
    for key in AT_LEAST_0:
        if key in model.values and not bool((model.values[key] >= 0).all()):
            raise ValueError(f"{name} has {key} = {model.values[key].tolist()}; valid: from 0")
    for key, value in model.state_dict().items():
        if not key.endswith(("lower", "upper")) and bool((value.abs() > LARGEST).any()):
            raise ValueError(f"{name} has numbers beyond {LARGEST:g} in {key!r}")
        if key.endswith(".scale") and bool((value <= 0).any()):
            raise ValueError(f"{name} has scales of signals that are not above 0 in {key!r}")
    if model.contact_values is not None and not bool((model.contact_values >= 0).all()):
        raise ValueError(f"{name} has contact_values {model.contact_values.tolist()}; valid: from 0")
    matrix = _mass_matrix(model.engine())
    if not bool(matrix.isfinite().all()) or bool((torch.linalg.eigvalsh(matrix) <= 0).any()):
        raise ValueError(f"{name} has inertias that make no positive mass matrix")


def _mass_matrix(engine: Articulated) -> Tensor:
    pose = engine.pose(torch.as_tensor(engine.robot.mj_model.qpos0.copy())[None])
    return engine.mass_matrix(pose, engine.inertias(pose))[0] + engine.armature()
