"""Simulators of NeRD/Strike-v0 that ten strikes in surrogate reality have shaped: what strike_planning.py plans on.

A sample is what a laboratory sees of one strike: the strike, the block's velocity when it leaves the striker, and where
it comes to rest. All simulators get the same ten, and each slides its blocks by MuJoCo:

- `mujoco`: friction and damping ratios of striker and table, searched together by CMA-ES in 200 evaluations, so that
  velocities and rests fit best, in the scene that is planned on. It has one friction of the table, as MuJoCo has, for
  the collision and for the slide;
- `hybrid, adapted`: a CollisionModel tuned to the velocities (`finetune`, then `compact`). Its collision knows nothing
  of rests, so the friction of the table, which is left for the slide alone, is searched on the rests;
- `hybrid, identified`: the same with `identify` instead, the network that nothing was corrected in.

So no simulator slides on a friction that another one found, and none has seen a rest that another has not.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from searched_mujoco import measured, searched_parameters
from torch import Tensor

from nerd_gym.collision import CollisionModel
from nerd_gym.collision.models.laws import StrikeLaw
from nerd_gym.collision.models.surrogate import relative_error
from nerd_gym.collision.scenes.columns import PARAMETERS, STRIKE, ranges
from nerd_gym.collision.scenes.robot import flat_pose, rest_height, scene_of
from nerd_gym.collision.scenes.shapes import SHAPES, Shape
from nerd_gym.collision.scenes.simulate import CollisionSimulator
from nerd_gym.envs.factory import manual_reset_env
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.robots.rotations import wrap_angle

ENV = "NeRD/Strike-v0"
SAMPLES = 10
GRID = 15  # frictions of the table in each of two searches
MUJOCO, ADAPTED, IDENTIFIED = "mujoco", "hybrid, adapted", "hybrid, identified"


@dataclass(frozen=True)
class Simulator:
    """A backend with its options."""

    name: str
    backend: str
    options: dict[str, Any]
    rest_error: float  # relative, root mean square over the samples: what it was fitted to

    def facts(self) -> dict[str, Any]:
        """For json, without the place of a file."""
        own = asdict(self)
        return own | {"options": {k: v for k, v in self.options.items() if k != "model"}}


def strike_env(shape: str, count: int, backend: str, pose: Tensor | None = None, **options: Any) -> NerdVectorEnv:
    """Blocks at rest at poses [N, 3] (x, y, yaw; default: at the origin)."""
    env = manual_reset_env(ENV, count, backend, shape=shape, threads=1, **options)
    env.reset(seed=0)
    pose = torch.zeros(count, 3) if pose is None else pose.float()
    q, qd = env.backend.q.clone(), torch.zeros_like(env.backend.qd)
    q[:, :7] = flat_pose(pose[:, :2], pose[:, 2], rest_height(env.backend.robot))
    q[:, 7:9] = pose[:, :2] + torch.tensor([0.25, 0.0])  # the striker waits anywhere but in the block
    env.reset(options={"state": (q, qd)})
    return env


def action_of(shape: Shape, strike: Tensor) -> Tensor:
    """Actions [N, 3] that strike face 0 so: the inverse of the task's `strike_of`."""
    low, high = torch.tensor([ranges(shape)[name] for name in STRIKE]).T
    speed, place, direction = (2 * (strike - low) / (high - low) - 1).unbind(-1)
    return torch.stack([place / shape.faces if shape.faces > 1 else place, speed, direction], -1)


def rests(shape: Shape, strike: Tensor, backend: str, **options: Any) -> Tensor:
    """[N, 3]: displacement of blocks at rest in the impact frame, after strikes [N, 3]."""
    env = strike_env(shape.name, len(strike), backend, **options)
    env.step(action_of(shape, strike))
    scene = scene_of(env.backend.q.clone())
    env.close()
    n = shape.normal(strike[:, 1])
    t = torch.stack([-n[:, 1], n[:, 0]], -1)
    return torch.stack([(scene.block * n).sum(-1), (scene.block * t).sum(-1), scene.yaw], -1)


def rest_error(shape: Shape, strike: Tensor, rest: Tensor, backend: str, **options: Any) -> Tensor:
    """[N], relative, as errors of velocities are."""
    found = rests(shape, strike, backend, **options)
    found[:, 2] = rest[:, 2] + wrap_angle(found[:, 2] - rest[:, 2])
    return relative_error(found, rest)


def simulators(setting: str, shape_name: str, seed: int, folder: Path) -> tuple[list[Simulator], dict[str, Any]]:
    """All of one setting and shape, and how long they took to adapt. Models are kept in the folder for the run."""
    shape, packaged = SHAPES[shape_name], CollisionModel.packaged(shape_name)
    strike, velocity, rest = measured(setting, shape_name, seed, SAMPLES, slide=True)
    base = packaged.laws[0]
    assert isinstance(base, StrikeLaw)
    seconds: dict[str, float] = {}

    def root(errors: Tensor) -> float:
        return round(float(errors.square().mean().sqrt()), 4)

    def of_rests(values: Tensor) -> Tensor:
        return rest_error(shape, strike, rest, "mujoco", **named(values))

    start = time.perf_counter()
    values = searched_parameters(CollisionSimulator(shape, 128, 1), base, strike, velocity, seed, of_rests, True)
    seconds[MUJOCO] = round(time.perf_counter() - start, 1)
    found = [Simulator(MUJOCO, "mujoco", named(values), root(of_rests(values)))]
    for name in (ADAPTED, IDENTIFIED):
        start = time.perf_counter()
        if name == ADAPTED:
            model = packaged.finetune(strike, velocity, seed=seed).compact(seed)
        else:
            model = packaged.identify(strike, velocity, seed)
        path = folder / f"{setting}-{shape_name}-{name.split()[-1]}.safetensors"
        model.save(path)
        # Every strike of a plan is in the trained range by the action's bounds; those on its edge, moved beyond it by
        # rounding, are not to be MuJoCo's.
        told = {row["parameter"]: row["value"] for row in model.facts["identified"]}
        options = {"model": str(path), "fallback": False, "zeta_table": told["zeta_table"]}
        options["mu_table"], least = sliding_friction(shape, strike, rest, options)
        seconds[name] = round(time.perf_counter() - start, 1)
        found.append(Simulator(name, "hybrid", options, root(least)))
    return found, {"adapt_seconds": seconds}


def named(values: Tensor) -> dict[str, float]:
    return dict(zip(PARAMETERS, values.flatten().tolist(), strict=True))


def sliding_friction(shape: Shape, strike: Tensor, rest: Tensor, options: dict[str, Any]) -> tuple[float, Tensor]:
    """The table's friction in the range of the other searches, with which blocks of hybrid rest nearest to where they
    did, and the errors [N] that are left: a coarse grid, then a fine one about its best."""
    low, high = ranges(shape)["mu_table"]
    best, least = low, torch.full((len(strike),), torch.inf)
    for _ in range(2):
        grid = np.geomspace(low, high, GRID)
        for mu in grid.tolist():
            errors = rest_error(shape, strike, rest, "hybrid", **options, mu_table=mu)
            if float(errors.square().mean()) < float(least.square().mean()):
                best, least = mu, errors
        step = grid[1] / grid[0]
        low, high = max(grid[0], best / step), min(grid[-1], best * step)
    return best, least
