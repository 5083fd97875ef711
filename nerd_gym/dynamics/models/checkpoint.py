"""Learned models on disk: safetensors with their facts as json in the metadata. Loading runs no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from nerd_gym.physics.warp.constraint_params import LAW_BOUNDS
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import check_facts, check_numbers, load_tensors, save_tensors

PRETRAINED = Path(__file__).parent.parent / "pretrained"
NEEDED = {"kind": (str,), "robot": (str,), "robot_hash": (str,), "frame_dt": (float, int), "teacher": (str,)}
KNOWN = {
    "network": (dict,),
    "substeps": (int,),
    "pose_updates": (int,),
    "contact_law": (str,),
    "inertia_of": (list,),
    "trust": (dict,),
    "r2": (dict,),
}
MAY_BE_INFINITE = ("_range", "output_limit")  # of a base that may walk anywhere; of a network without a limit
LARGEST_SIZE = 4096
CONTACT_LAWS = ("penalty", "constraint")
DEFAULT_TEACHER = "warp"  # of the packaged model that is taken if none is named


def save_model(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write a model, whole or not at all. Facts name at least kind, robot, robot_hash, frame_dt and teacher."""
    save_tensors(path, tensors, facts)


# Names that files of the first version have, and what they are called since.
OLD_KINDS = {"sketched": "residual"}
OLD_FACTS = {"falling": "free_fall_prior", "soon": "predicted_distance", "looks": "pose_updates"}
OLD_TENSORS = {"sketch.parameters": "prior.parameters", "sketch.gains": "prior.gains"}


def current_kind(kind: str) -> str:
    """A kind of model by the name of today: commands and facts of older files may have another."""
    return OLD_KINDS.get(kind, kind)


def load_model(path: str | Path, robot: RobotModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a model, if it is of this robot and frame time."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no model at {path}")
    tensors, facts = load_tensors(path)
    check_facts(path.name, facts, NEEDED)
    tensors, facts = with_current_names(tensors, facts)
    check_facts(path.name, facts, KNOWN, needed=False)
    check_numbers(path.name, tensors, MAY_BE_INFINITE)
    for size, value in facts.get("network", {}).items():
        if type(value) is not int or not 1 <= value <= LARGEST_SIZE:
            raise ValueError(f"{path.name} has a network of {size} = {value!r}; valid: 1 to {LARGEST_SIZE}")
    for name in ("substeps", "pose_updates"):
        if name in facts and not 1 <= facts[name] <= LARGEST_SIZE:
            raise ValueError(f"{path.name} has {name} = {facts[name]!r}; valid: 1 to {LARGEST_SIZE}")
    check_contact_law(path.name, tensors, facts)
    robot.check_learned(path.name, facts)
    return tensors, facts


def check_contact_law(name: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Refuse a prior whose contacts no kernel could compute."""
    law, gains = facts.get("contact_law", "penalty"), tensors.get("prior.constraint")
    if law not in CONTACT_LAWS:
        raise ValueError(f"{name} has contact_law = {law!r}; valid: {', '.join(CONTACT_LAWS)}")
    if (law == "constraint") != (gains is not None):
        raise ValueError(
            f"{name} has contact_law = {law!r} and {'a' if gains is not None else 'no'} 'prior.constraint'"
        )
    if gains is None:
        return
    low, high = LAW_BOUNDS
    if gains.shape != low.shape or not bool(((gains >= low) & (gains <= high)).all()):
        raise ValueError(
            f"{name} has 'prior.constraint' = {gains.tolist()}; valid: 7 numbers from {low.tolist()} to {high.tolist()}"
        )


def with_current_names(tensors: dict[str, Tensor], facts: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a file, whenever it was written, by the names of today."""
    facts = {OLD_FACTS.get(name, name): value for name, value in facts.items()}
    facts["kind"] = current_kind(facts["kind"])
    return {OLD_TENSORS.get(name, name): value for name, value in tensors.items()}, facts


def has_packaged_model(robot: RobotModel, teacher: str, reference: bool = False) -> bool:
    """Whether a model of a robot comes with the package."""
    return robot.packaged and _packaged(robot.name, teacher, reference).exists()


def _packaged(robot_name: str, teacher: str, reference: bool) -> Path:
    return PRETRAINED / f"{robot_name}-{teacher}{'-reference' if reference else ''}.safetensors"


def packaged_model(robot: RobotModel, teacher: str, reference: bool = False) -> Path:
    """The model of a robot that comes with the package, of a teacher with or without the published mistakes."""
    path = _packaged(robot.name, teacher, reference)
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in PRETRAINED.glob("*.safetensors")))
        physics = " and reference=True" if reference else ""
        raise ValueError(
            f"no packaged model of robot {robot.name!r} with teacher {teacher!r}{physics}; packaged: {known}. "
            "Give the path of one of your own, model=...; nerd-gym train --mjcf makes it"
        )
    return path
