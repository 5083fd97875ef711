"""NeRD/PendulumContact-v0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import wrap_angle

from .random import EnvRandom
from .task import State, Task, TaskConfig, total

# The published planes as (point, normal); number 0 is out of reach.
GROUNDS = (
    ((0, 0, -15.5), (0, 0, 1)),
    ((0, 0, 0), (0, 0, 1)),
    ((0, 0, 0.2), (-0.107017, -0.375330, 0.920692)),
    ((0, 0, 0.5), (0, 0, 1)),
    ((0, 0, -0.5), (0, 0, 1)),
    ((0, 0, -0.3), (0, 0, 1)),
    ((0, 0, 0), (0, -0.382683, 0.923880)),
)
BASE = (0.0, -1.0, 2.0)  # of the first hinge
LINK, RADIUS = 1.5, 0.1
REACH = 2 * LINK


@dataclass(frozen=True)
class PendulumContactConfig(TaskConfig):
    """Options of PendulumContact."""

    task: Literal["swingup"] = "swingup"
    ground: Any = 1  # 0..6, (point, normal) or "random"


class PendulumContact(Task):
    """Swing a double pendulum up beside a plane that it hits.

    ============  ==========================================================================
    action        2: torque / 1500 N m, clipped to [-1, 1]
    observation   4: both angles wrapped to [-pi, pi), their rates
    reward        tip height above the base / full reach (3 m) - 0.001 abs(a)^2
    termination   none
    horizon       300 steps of 1/60 s
    options       ground: 0 to 6 (published planes), (point, normal), or "random" per episode
    ============  ==========================================================================
    """

    robot_name = "pendulum_contact"
    config_class = PendulumContactConfig
    config: PendulumContactConfig
    horizon = 300
    action_size = 2
    obs_size = 4
    gain = 1500.0  # N m

    def __init__(self, robot: RobotModel, config: PendulumContactConfig, device: torch.device | str = "cpu"):
        super().__init__(robot, config, device)
        self._plane = None if _is_random(config.ground) else tuple(map(self.tensor, _plane(config.ground)))

    @property
    def actuation(self) -> dict[str, Any]:
        return {"kind": "force", "scale": self.gain, "unit": "N m"}

    def initial_state(self, rng: EnvRandom) -> tuple[Tensor, Tensor]:
        first = rng.centred(math.pi, 1)
        second = rng.uniform(-first, math.pi - first, 1)  # so that the second link points upwards
        return torch.cat([first, wrap_angle(second)], -1), rng.centred(2.0, 2)

    def initial_ground(self, rng: EnvRandom, q: Tensor) -> tuple[Tensor, Tensor]:
        if self._plane is not None:
            point, normal = self._plane
            return point.expand(rng.num_envs, 3), normal.expand(rng.num_envs, 3)
        # Any direction, and any distance at which the pendulum starts clear of the plane but may reach it.
        normal = torch.nn.functional.normalize(rng.centred(1.0, 3), dim=-1)
        base = self.tensor(BASE).expand_as(normal)
        total = q.cumsum(-1)
        reach = LINK * torch.stack([torch.cos(total), torch.zeros_like(q), torch.sin(total)], -1)  # [N, 2, 3]
        joints = torch.stack([base, base + reach[:, 0], base + reach.sum(1)], 1)
        nearest = (joints * normal[:, None]).sum(-1).amin(-1, keepdim=True) - RADIUS
        farthest = (base * normal).sum(-1, keepdim=True) - 3.5
        return normal * rng.uniform(farthest, nearest, 1), normal

    def joint_force(self, action: Tensor, state: State) -> Tensor:
        return self.gain * action.clamp(-1, 1)

    def observe(self, state: State) -> Tensor:
        return torch.cat([wrap_angle(state.q), state.qd], -1)

    def reward(self, state: State, action: Tensor, joint_force: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        terms = {
            "height": _tip_height(state.q) / REACH,
            "effort": -0.001 * action.clamp(-1, 1).square().sum(-1),
        }
        return total(terms), terms

    def measures(self, state: State) -> dict[str, Tensor]:
        return {"tip height above the base (m)": _tip_height(state.q)}


def _tip_height(q: Tensor) -> Tensor:
    return LINK * torch.sin(q.cumsum(-1)).sum(-1)


def _is_random(ground: Any) -> bool:
    return isinstance(ground, str) and ground == "random"


def _plane(ground: Any) -> tuple[Any, Any]:
    if isinstance(ground, Integral) and not isinstance(ground, bool) and 0 <= int(ground) < len(GROUNDS):
        return GROUNDS[int(ground)]
    if isinstance(ground, (tuple, list)) and len(ground) == 2:
        point, normal = (torch.as_tensor(x, dtype=torch.float64).flatten() for x in ground)
        length = normal.norm()
        if len(point) == 3 and len(normal) == 3 and point.isfinite().all() and 0 < length < math.inf:
            return point, normal / length
    raise ValueError(f"unknown ground {ground!r}; valid: 0 to {len(GROUNDS) - 1}, (point, normal), 'random'")
