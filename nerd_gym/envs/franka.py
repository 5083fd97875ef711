"""NeRD/Franka-v0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel

from .random import EnvRandom
from .task import State, Task, TaskConfig, total

START = (0.0, -0.7853, 0.0, -2.3575, 0.0, 1.5703, 0.7857)
STIFFNESS = (600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0)
DAMPING = (5.0, 5.0, 5.0, 5.0, 3.0, 2.5, 1.5)
TORQUE_LIMIT = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
TARGET_LOW, TARGET_HIGH = (0.3, -0.35, 0.05), (0.7, 0.35, 0.45)


@dataclass(frozen=True)
class FrankaConfig(TaskConfig):
    """Options of Franka."""

    control: Literal["position", "torque"] = "position"
    velocity: bool = True


class Franka(Task):
    """A seven-joint arm that brings its hand to a target.

    ============  ==========================================================================
    action        7, clipped to [-1, 1].
                  position: torque = Kp a / 32 - Kd qd within the limits, in each of 2 frames;
                  torque: limit a, 1 frame
    observation   20: q, qd, end effector, target; 13 with velocity=False, which leaves qd out
    reward        -d + sum over k in (50, 300) of 1 / (exp(k d) + exp(-k d) + 1e-4),
                  d the distance of end effector and target
    termination   none
    horizon       128 steps
    options       control: position, torque; velocity: True, False
    ============  ==========================================================================
    """

    robot_name = "franka"
    config_class = FrankaConfig
    config: FrankaConfig
    horizon = 128
    action_size = 7
    goal_size = 3
    reach_per_action = 0.03125  # rad

    def __init__(self, robot: RobotModel, config: FrankaConfig, device: torch.device | str = "cpu"):
        super().__init__(robot, config, device)
        self.frames = 2 if config.control == "position" else 1
        self.obs_size = 20 if config.velocity else 13
        self._start = self.tensor(START)
        self._stiffness = self.tensor(STIFFNESS) * self.reach_per_action
        self._damping = self.tensor(DAMPING)
        self._limit = self.tensor(TORQUE_LIMIT)
        self._low, self._high = self.tensor(TARGET_LOW), self.tensor(TARGET_HIGH)

    @property
    def actuation(self) -> dict[str, Any]:
        if self.config.control == "torque":
            return {"kind": "force", "scale": list(TORQUE_LIMIT), "unit": "N m"}
        gains = {"stiffness": list(STIFFNESS), "damping": list(DAMPING), "limit": list(TORQUE_LIMIT)}
        return {"kind": "displacement", "scale": self.reach_per_action, "unit": "rad", **gains}

    def initial_state(self, rng: EnvRandom) -> tuple[Tensor, Tensor]:
        q = self._start + rng.centred(0.125, 7)
        return q, torch.zeros_like(q)

    def initial_goal(self, rng: EnvRandom, q: Tensor) -> Tensor:
        return rng.uniform(self._low, self._high, 3)

    def joint_force(self, action: Tensor, state: State) -> Tensor:
        action = action.clamp(-1, 1)
        if self.config.control == "position":
            torque = self._stiffness * action - self._damping * state.qd
            return torch.clamp(torque, -self._limit, self._limit)
        return self._limit * action

    def observe(self, state: State) -> Tensor:
        rates = [state.qd] if self.config.velocity else []
        return torch.cat([state.q, *rates, state.site("end_effector"), state.goal], -1)

    def reward(self, state: State, action: Tensor, joint_force: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        d = self._distance(state)
        terms = {"distance": -d}
        for k in (50, 300):
            far = (k * d).clamp(max=80.0)  # where an exponential overflows, its gradient is no number
            terms[f"near_{k}"] = 1 / (torch.exp(far) + 1e-4 + torch.exp(-far))
        return total(terms), terms

    def measures(self, state: State) -> dict[str, Tensor]:
        return {"distance to target (m)": self._distance(state)}

    def _distance(self, state: State) -> Tensor:
        return (state.site("end_effector") - state.goal).norm(dim=-1)
