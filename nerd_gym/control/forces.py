"""The forces of the ground that a trot needs: what they depend on, and the controller that finds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel

from .gait import FEET, Gait, TrotConfig, gait
from .legs import Legs
from .srb_mpc import MpcConfig, Problem, SrbMpc


class Plan(NamedTuple):
    """What the forces depend on, in the heading frames of N robots: z up, x where the robot faces."""

    angles: Tensor  # [N, 2] roll, pitch
    yaw_error: Tensor  # [N, 1] desired less actual
    height: Tensor  # [N, 1] of the base
    omega: Tensor  # [N, 3]
    velocity: Tensor  # [N, 3]
    feet: Tensor  # [N, 4, 3] from the base's origin
    com: Tensor  # [N, 3] likewise
    command: Tensor  # [N, 3]: v_x, v_y, turn rate
    time: Tensor  # [N] s since the trot began
    gait: Gait  # at that time


class Forces(Protocol):
    """What finds the forces of the ground on the feet."""

    def __call__(self, plan: Plan) -> Tensor:
        """[N, 4, 3] in newtons, heading frame; 0 for feet in the air."""
        ...

    def reset(self, rows: Tensor | None = None) -> None:
        """Forget every robot, or those of a mask [N]."""


class MpcForces:
    """The first forces of each robot's QP.

    Args:
        robot: a quadruped.
        pose: [nj] joint angles at which its inertia is taken.
        config: the gait.
        mpc: horizon and weights.
        device: of the plans; the QPs are solved on the CPU.
    """

    def __init__(
        self,
        robot: RobotModel,
        pose: Sequence[float],
        config: TrotConfig | None = None,
        mpc: MpcConfig | None = None,
        device: torch.device | str = "cpu",
    ):
        legs = Legs(robot, FEET)
        self.config = config or TrotConfig()
        self.mpc = SrbMpc(legs.mass, legs.inertia(np.array(pose)), mpc)
        self._starts = torch.arange(self.mpc.config.steps, device=device) * self.mpc.config.dt
        self._footholds = self.config.footholds(device)

    def problems(self, plan: Plan) -> list[Problem]:
        """The QP of each robot.

        The body is expected to move as commanded. A foot stays until it lifts off; later it stands such that the body
        is over the foothold at rest in the middle of its stance.
        """
        c, starts = self.config, self._starts
        n, h = len(plan.time), len(starts)
        now, later = plan.gait, gait(c, plan.time[:, None] + starts)
        yaw = plan.yaw_error + plan.command[:, 2:] * (starts + self.mpc.config.dt)
        v_x, v_y = plan.command[:, None, :2].unbind(-1)
        reference = plan.height.new_zeros(n, h, 12)
        reference[..., 2], reference[..., 5], reference[..., 8] = yaw, c.height, plan.command[:, 2:]
        reference[..., 9] = yaw.cos() * v_x - yaw.sin() * v_y
        reference[..., 10] = yaw.sin() * v_x + yaw.cos() * v_y

        level = torch.zeros_like(plan.height)
        velocity = torch.cat([plan.command[:, :2], level], 1)[:, None, None]
        stays = now.stance[:, None] & (starts[:, None] < now.left[:, None])
        here = plan.feet[:, None] - velocity * starts[:, None, None]
        below = (c.foot_radius - plan.height)[:, None].expand(n, 4, 1)
        footholds = torch.cat([self._footholds.expand(n, 4, 2), below], -1)[:, None]
        there = footholds + velocity * (c.period * (c.duty / 2 - later.phase))[..., None]
        arms = torch.where(stays[..., None], here, there) - plan.com[:, None, None]

        state = torch.cat([plan.angles, level, level, level, plan.height, plan.omega, plan.velocity], 1)
        parts = (state.double(), reference.double(), arms.double(), later.stance)
        return [Problem(*row) for row in zip(*(x.cpu().numpy() for x in parts))]

    def __call__(self, plan: Plan) -> Tensor:
        first = [self.mpc.solve(problem, row)[0] for row, problem in enumerate(self.problems(plan))]
        return torch.as_tensor(np.stack(first), dtype=torch.float32, device=plan.time.device)

    def reset(self, rows: Tensor | None = None) -> None:
        self.mpc.forget(None if rows is None else rows.nonzero()[:, 0].tolist())
