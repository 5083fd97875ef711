"""Which environments, robots and backends tests run over: read from the tables, so that a new row is tested at once."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from nerd_gym import RobotModel
from nerd_gym.backends import backend_class, backends_for, installed_backends
from nerd_gym.registration import ENVS, PACKAGED, EnvSpec

ROOT = Path(__file__).parent.parent.parent
CRITTER = ROOT / "examples" / "critter.xml"  # a robot of one's own


@cache
def robot(name: str) -> RobotModel:
    """A packaged robot, or the critter."""
    return RobotModel.from_mjcf(CRITTER) if name == "critter" else RobotModel.named(name)


ALL_ROBOTS = tuple(spec.robot_name for spec in PACKAGED.values())
ROBOTS = tuple(name for name in ALL_ROBOTS if not robot(name).features)  # of which every part of the suite knows all
LEGGED = tuple(name for name in ROBOTS if robot(name).free_base)
FIXED = tuple(name for name in ROBOTS if not robot(name).free_base)
BACKEND_NAMES = installed_backends()
ANALYTICAL = tuple(name for name in BACKEND_NAMES if not backend_class(name).learned)
LEARNED = tuple(name for name in BACKEND_NAMES if backend_class(name).learned)
PAIRS = [(backend, name) for backend in BACKEND_NAMES for name in ALL_ROBOTS if backend in backends_for(robot(name))]
LEARNED_PAIRS = [(backend, name) for backend, name in PAIRS if backend in LEARNED]
GRID = [(env_id, backend) for env_id, spec in PACKAGED.items() for backend in backends_for(spec.robot({}))]


def choices(spec: EnvSpec) -> list[dict[str, Any]]:
    """Every combination of a task's options that have a list of values."""
    config = spec.task_class().config_class
    values = {}
    for field in fields(config):
        kind = get_type_hints(config)[field.name]
        if get_origin(kind) is Literal:
            values[field.name] = get_args(kind)
        elif kind is bool:
            values[field.name] = (True, False)
    return [dict(zip(values, choice, strict=True)) for choice in product(*values.values())]


VARIANTS = {env_id: choices(spec) for env_id, spec in PACKAGED.items()}
VARIANTS["NeRD/PendulumContact-v0"] = [{"ground": 2}, {"ground": "random"}]
VARIANTS["NeRD/Strike-v0"] = [
    {"task": "single", "shape": "semicylinder"},
    {"task": "single", "shape": "triangle"},
    {"task": "route", "shape": "square", "route": "random"},
    {"task": "route", "shape": "semicylinder", "route": 3},
]
OWN_VARIANTS = [{"mjcf": str(CRITTER), "task": t, "control": c} for t, c in (("stand", "position"), ("track", "force"))]
ALL_VARIANTS = [(env_id, backend, options) for env_id, backend in GRID for options in VARIANTS[env_id]]
ALL_VARIANTS += [
    (env_id, backend, options)
    for env_id, spec in ENVS.items()
    if spec.requires == ("mjcf",)
    for backend in backends_for(robot("critter"))
    for options in OWN_VARIANTS
]
