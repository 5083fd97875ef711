"""Simulators of NeRD/Strike-v0 that ten strikes in surrogate reality have shaped: what strike_planning.py plans on.

A sample is what a laboratory sees of one strike: the strike, the block's velocity when it leaves the striker, and where
it comes to rest. All simulators get the same ten, and each slides its blocks by MuJoCo:

- `mujoco`: friction and damping ratios of striker and table, searched together by CMA-ES in 200 evaluations, so that
  velocities and rests fit best, in the scene that is planned on. It has one friction of the table, as MuJoCo has, for
  the collision and for the slide;
- `mujoco, velocities`: the same, searched on the velocities alone;
- `hybrid, velocities`: a CollisionModel tuned to the velocities (`finetune`, then `compact`). Its collision knows
  nothing of rests, so the friction of the table, which is left for the slide alone, is searched on the rests;
- `hybrid, identified`: the same with `identify` instead, the network that nothing was corrected in;
- `hybrid, adapted`: a CollisionModel tuned to the velocities from which a block on `hybrid, velocities` would slide to
  where it came to rest. So its collision takes over what the slide gets wrong, which four parameters cannot.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from searched_mujoco import measured, searched_parameters
from torch import Tensor

from nerd_gym.backends.hybrid import HybridBackend
from nerd_gym.backends.impacts import Impacts
from nerd_gym.collision import CollisionModel
from nerd_gym.collision.models.laws import StrikeLaw
from nerd_gym.collision.models.surrogate import LEVER, relative_error
from nerd_gym.collision.models.table import Table
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
NEWTON_STEPS, DIFFERENCE, LARGEST_STEP = 12, 0.02, 0.15  # relative to the velocity's length
MUJOCO, ADAPTED, IDENTIFIED = "mujoco", "hybrid, adapted", "hybrid, identified"
MUJOCO_VELOCITIES, VELOCITIES = "mujoco, velocities", "hybrid, velocities"
NAMES = (MUJOCO, MUJOCO_VELOCITIES, ADAPTED, VELOCITIES, IDENTIFIED)


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


class Given(CollisionModel):
    """Outcomes [N, 7] of N collisions that are known."""

    def __init__(self, outcome: Tensor):
        self._given = outcome

    def in_range(self, pre: Tensor) -> Tensor:
        return torch.ones(len(pre), dtype=torch.bool)

    def predict(self, pre: Table) -> Tensor:
        return self._given


def rests(shape: Shape, strike: Tensor, backend: str, outcome: Tensor | None = None, **options: Any) -> Tensor:
    """[N, 3]: displacement of blocks at rest in the impact frame, after strikes [N, 3]; of `hybrid` with these
    outcomes [N, 7] of the collisions, if they are given."""
    env = strike_env(shape.name, len(strike), backend, **options)
    if outcome is not None:
        assert isinstance(env.backend, HybridBackend) and isinstance(env.backend.collisions, Impacts)
        env.backend.collisions.model = Given(outcome)
    env.step(action_of(shape, strike))
    scene = scene_of(env.backend.q.clone())
    env.close()
    n = shape.normal(strike[:, 1])
    t = torch.stack([-n[:, 1], n[:, 0]], -1)
    return torch.stack([(scene.block * n).sum(-1), (scene.block * t).sum(-1), scene.yaw], -1)


def rest_error(shape: Shape, strike: Tensor, rest: Tensor, backend: str, **options: Any) -> Tensor:
    """[N], relative, as errors of velocities are."""
    return relative_error(rest + missed(rests(shape, strike, backend, **options), rest), rest)


def missed(found: Tensor, rest: Tensor) -> Tensor:
    """[N, 3]: by how much blocks rest elsewhere."""
    return torch.cat([found[:, :2] - rest[:, :2], wrap_angle(found[:, 2:] - rest[:, 2:])], -1)


def velocities_of_rests(shape: Shape, strike: Tensor, rest: Tensor, outcome: Tensor, options: dict[str, Any]) -> Tensor:
    """Velocities [N, 3] after the collision from which blocks of `hybrid` slide to where they came to rest: by
    Gauss-Newton from those of the outcomes [N, 7], whose displacements stand."""
    count, lever = len(strike), outcome.new_tensor([1.0, 1.0, LEVER])
    size = (outcome[:, :3] * lever).norm(dim=-1, keepdim=True)
    probes = torch.cat([torch.zeros(1, 3), DIFFERENCE * torch.eye(3)])[:, None]

    def misses(steps: Tensor) -> Tensor:
        """[K, N, 3] for relative changes of the velocities, [K, N, 3]."""
        tried = outcome.repeat(len(steps), 1, 1)
        tried[..., :3] += steps * size / lever
        found = rests(shape, strike.repeat(len(steps), 1), "hybrid", tried.flatten(0, 1), **options)
        return (missed(found, rest.repeat(len(steps), 1)) * lever).unflatten(0, (len(steps), count))

    change, best = torch.zeros(count, 3), torch.zeros(count, 3)
    least = torch.full((count,), torch.inf)
    for _ in range(NEWTON_STEPS):
        miss = misses(change + probes)
        nearer = miss[0].norm(dim=-1) < least
        least, best = torch.where(nearer, miss[0].norm(dim=-1), least), torch.where(nearer[:, None], change, best)
        slopes = (miss[1:] - miss[0]).permute(1, 2, 0) / DIFFERENCE
        step = torch.linalg.lstsq(slopes + 1e-6 * torch.eye(3), -miss[0][..., None]).solution[..., 0]
        change = change + step.clamp(-LARGEST_STEP, LARGEST_STEP)
    return outcome[:, :3] + best * size / lever


def simulators(
    setting: str, shape_name: str, seed: int, folder: Path, names: Sequence[str] = NAMES
) -> tuple[list[Simulator], dict[str, float]]:
    """Those of one setting and shape by name, and how long they took to adapt (s). Models are kept in the folder for
    the run."""
    shape, packaged = SHAPES[shape_name], CollisionModel.packaged(shape_name)
    strike, velocity, rest = measured(setting, shape_name, seed, SAMPLES, slide=True)
    base = packaged.laws[0]
    assert isinstance(base, StrikeLaw)

    def of_rests(values: Tensor) -> Tensor:
        return rest_error(shape, strike, rest, "mujoco", **named(values))

    def searched(name: str) -> Simulator:
        further = of_rests if name == MUJOCO else None
        values = searched_parameters(CollisionSimulator(shape, 128, 1), base, strike, velocity, seed, further, True)
        return Simulator(name, "mujoco", named(values), root(of_rests(values)))

    def learned(name: str) -> Simulator:
        if name == IDENTIFIED:
            model = packaged.identify(strike, velocity, seed)
        else:
            model = packaged.finetune(strike, velocity, seed=seed).compact(seed)
        path = folder / f"{setting}-{shape_name}-{name.split()[-1]}.safetensors"
        model.save(path)
        # Every strike of a plan is in the trained range by the action's bounds; those on its edge, moved beyond it by
        # rounding, are not to be MuJoCo's.
        told = {row["parameter"]: row["value"] for row in model.facts["identified"]}
        options = {"model": str(path), "fallback": False, "zeta_table": told["zeta_table"]}
        options["mu_table"], least = sliding_friction(shape, strike, rest, options)
        if name == ADAPTED:
            sliding = velocities_of_rests(shape, strike, rest, model.predict(strike).detach(), options)
            packaged.finetune(strike, sliding, seed=seed).compact(seed).save(path)
            least = rest_error(shape, strike, rest, "hybrid", **options)
        return Simulator(name, "hybrid", options, root(least))

    found, seconds = [], {}
    for name in names:
        start = time.perf_counter()
        found.append((searched if name in (MUJOCO, MUJOCO_VELOCITIES) else learned)(name))
        seconds[name] = round(time.perf_counter() - start, 1)
    return found, seconds


def root(errors: Tensor) -> float:
    """Of the mean square."""
    return round(float(errors.square().mean().sqrt()), 4)


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
