"""The scene of a strike as a robot: a block with a free joint, and a striker on two slides.

q is the block's position and quaternion, then x and y of the striker; qd likewise, as everywhere in the suite.
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import yaw_of

from .columns import NOMINAL, PARAMETERS
from .mjcf import robot_name
from .shapes import SHAPES, Shape, shape_named
from .simulate import rest_difference

STRIKE_PAIR = "strike"  # of striker and block; the other pairs are the table's
LEAST, MOST = {"mu": 0.0, "zeta": 0.01}, {"mu": 2.0, "zeta": 5.0}


class Scene(NamedTuple):
    """Block and striker, seen from above."""

    block: Tensor  # [N, 2]
    yaw: Tensor  # [N]
    striker: Tensor  # [N, 2]


def scene_of(q: Tensor) -> Scene:
    """States [N, 9] from above."""
    return Scene(q[:, :2], yaw_of(q[:, 3:7]), q[:, 7:9])


def shape_of_robot(robot: RobotModel) -> Shape | None:
    """The shape of a packaged scene's block; None for any other robot."""
    names = {robot_name(shape): shape for shape in SHAPES}
    return SHAPES[names[robot.name]] if robot.packaged and robot.name in names else None


def strike_robot(shape: str, **parameters: float) -> RobotModel:
    """The scene of a shape with friction and damping ratios by name; those that are not given are nominal."""
    shape_named(shape)
    for name, value in parameters.items():
        if name not in PARAMETERS:
            raise ValueError(f"unknown parameter {name!r}; valid: {', '.join(PARAMETERS)}")
        kind = name.partition("_")[0]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not LEAST[kind] <= value <= MOST[kind]:
            raise ValueError(f"{name} is {value!r}; it must be a number from {LEAST[kind]:g} to {MOST[kind]:g}")
    values = NOMINAL | {name: float(value) for name, value in parameters.items()}
    return _robot(shape, tuple(values[name] for name in PARAMETERS))


@lru_cache(maxsize=32)
def _robot(shape: str, values: tuple[float, ...]) -> RobotModel:
    robot = RobotModel.named(robot_name(shape))
    if values == tuple(NOMINAL[name] for name in PARAMETERS):
        return robot
    model = copy.copy(robot.mj_model)
    named: dict[str, float] = dict(zip(PARAMETERS, values, strict=True))
    strike = np.arange(model.npair) == model.pair(STRIKE_PAIR).id
    for pairs, of in ((strike, "striker"), (~strike, "table")):
        model.pair_friction[pairs, :2] = named[f"mu_{of}"]
        model.pair_solref[pairs, 1] = named[f"zeta_{of}"]
    return replace(robot, mj_model=model)


def parameters_of(robot: RobotModel) -> dict[str, float]:
    """Friction and damping ratios of a scene."""
    m = robot.mj_model
    strike = m.pair(STRIKE_PAIR).id
    table = next(k for k in range(m.npair) if k != strike)
    pairs = {"striker": strike, "table": table}
    found = {f"mu_{of}": float(m.pair_friction[k, 0]) for of, k in pairs.items()}
    found |= {f"zeta_{of}": float(m.pair_solref[k, 1]) for of, k in pairs.items()}
    return {name: found[name] for name in PARAMETERS}


@lru_cache(maxsize=32)
def rest_height(robot: RobotModel) -> float:
    """z (m) of a block at rest on the table."""
    nominal = RobotModel.named(robot.name).mj_model
    depth = float(rest_difference(nominal)[2]) * parameters_of(robot)["zeta_table"] ** 2
    return float(nominal.qpos0[2]) + depth


def flat_pose(position: Tensor, yaw: Tensor, height: float) -> Tensor:
    """[N, 7]: the free joint of blocks that lie flat."""
    nothing = torch.zeros_like(yaw)
    z = torch.full_like(yaw, height)
    return torch.stack([*position.unbind(-1), z, (yaw / 2).cos(), nothing, nothing, (yaw / 2).sin()], -1)
