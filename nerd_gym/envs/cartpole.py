"""NeRD/Cartpole-v0."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nerd_gym.robots.rotations import wrap_angle

from .random import EnvRandom
from .task import State, Task, total


class Cartpole(Task):
    """Swing a pole up and keep it upright by pushing the cart.

    ============  ==========================================================================
    action        1: force on the cart / 1500 N, clipped to [-1, 1]
    observation   4: x, theta wrapped to [-pi, pi), their rates; theta = 0 is upright
    reward        5 - (theta^2 + 0.05 x^2 + 0.1 theta_rate^2 + 0.1 x_rate^2)
    termination   abs(x) > 4 m, or a rate beyond 10
    horizon       300 steps of 1/60 s
    start         x, rates in [-1, 1], theta anywhere
    ============  ==========================================================================
    """

    robot_name = "cartpole"
    horizon = 300
    action_size = 1
    obs_size = 4
    gain = 1500.0  # N

    @property
    def actuation(self) -> dict[str, Any]:
        return {"kind": "force", "scale": self.gain, "unit": "N"}

    def initial_state(self, rng: EnvRandom) -> tuple[Tensor, Tensor]:
        return rng.centred(self.tensor([1.0, torch.pi]), 2), rng.centred(1.0, 2)

    def joint_force(self, action: Tensor, state: State) -> Tensor:
        return torch.nn.functional.pad(self.gain * action.clamp(-1, 1), (0, 1))

    def observe(self, state: State) -> Tensor:
        return torch.cat([state.q[:, :1], wrap_angle(state.q[:, 1:]), state.qd], -1)

    def reward(self, state: State, action: Tensor, joint_force: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x, theta = state.q.unbind(-1)
        x_rate, theta_rate = state.qd.unbind(-1)
        terms = {
            "alive": torch.full_like(x, 5.0),
            "upright": -(wrap_angle(theta) ** 2),
            "centre": -0.05 * x**2,
            "pole_rate": -0.1 * theta_rate**2,
            "cart_rate": -0.1 * x_rate**2,
        }
        return total(terms), terms

    def measures(self, state: State) -> dict[str, Tensor]:
        return {"pole angle from upright (rad)": wrap_angle(state.q[:, 1]).abs()}

    def terminated(self, state: State) -> Tensor:
        return (state.q[:, 0].abs() > 4) | (state.qd.abs() > 10).any(-1)
