"""NeRD/Anymal-v0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel

from .random import EnvRandom
from .task import State, Task, TaskConfig, total

# LF, RF, LH, RH x HAA, HFE, KFE, as the published simulator really applies them: its own comments name
# the legs in another order than its joints have, and its policies are trained with what it does.
DEFAULT_POSE = (-0.03, -0.4, 0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, 0.03, 0.4, -0.8)
TORQUE_GAIN = (75.0, 60.0, 12.0) * 4  # N m
TARGETS = {"forward": (1.0, 0.0), "side": (0.0, -1.0)}  # v_x, v_y in m/s


@dataclass(frozen=True)
class AnymalConfig(TaskConfig):
    """Options of Anymal."""

    task: Literal["forward", "side"] = "forward"
    control: Literal["position", "torque"] = "position"


class Anymal(Task):
    """A quadruped that tracks 1 m/s forwards (+x) or to the side (-y).

    ============  ==========================================================================
    action        12, clipped to [-1, 1]; LF, RF, LH, RH x HAA, HFE, KFE.
                  position: torque = 85 (pose + 0.5 a - q) - 2 qd, held over the frame;
                  torque: gain a + 85 (pose - q), gain 75, 60, 12 N m
    observation   37: base height, quaternion (w first), velocity, angular velocity (both of
                  the base in world axes), 12 joint angles, 12 joint rates, up, heading
    reward        max(0, exp(-abs(v_xy - target)^2) + 0.5 exp(-w_z^2) - 2.5e-5 sum(torque^2))
    termination   torso or a knee within 1 cm of the ground, or base below 0.4 m
    horizon       1000 steps of 1/60 s
    options       task: forward, side; control: position, torque
    ============  ==========================================================================

    up is the z of the base's z axis, heading the x of its x axis.
    """

    robot_name = "anymal"
    config_class = AnymalConfig
    config: AnymalConfig
    horizon = 1000
    action_size = 12
    obs_size = 37
    stiffness, damping, action_scale = 85.0, 2.0, 0.5

    def __init__(self, robot: RobotModel, config: AnymalConfig, device: torch.device | str = "cpu"):
        super().__init__(robot, config, device)
        self._pose = self.tensor(DEFAULT_POSE)
        self._gain = self.tensor(TORQUE_GAIN)
        self._pull = self.stiffness * self._pose  # N m, of the springs towards the default pose
        self._target = self.tensor(TARGETS[config.task])
        self._start = self.tensor([0, 0, 0.7, 1, 0, 0, 0])
        names = robot.candidates.names
        keep = [k for k, name in enumerate(names) if not name.endswith("_foot")]
        self._must_not_touch = torch.tensor(keep, device=self.device)

    @property
    def actuation(self) -> dict[str, Any]:
        spring = {"stiffness": self.stiffness, "pose": list(DEFAULT_POSE)}
        if self.config.control == "position":
            return {"kind": "position", "scale": self.action_scale, "unit": "rad", "damping": self.damping, **spring}
        return {"kind": "force", "scale": list(TORQUE_GAIN), "unit": "N m", **spring}

    def initial_state(self, rng: EnvRandom) -> tuple[Tensor, Tensor]:
        n = rng.num_envs
        joints = self._pose * rng.uniform(0.5, 1.5, 12)
        base_rates = torch.zeros(n, 6, device=self.device)
        return torch.cat([self._start.expand(n, 7), joints], -1), torch.cat([base_rates, rng.centred(0.1, 12)], -1)

    def joint_force(self, action: Tensor, state: State) -> Tensor:
        action = action.clamp(-1, 1)
        if self.config.control == "position":
            force = torch.add(self._pull, action, alpha=self.stiffness * self.action_scale)
            force.sub_(state.qd.narrow(1, 6, 12), alpha=self.damping)
        else:
            force = torch.addcmul(self._pull, self._gain, action)
        return force.sub_(state.q.narrow(1, 7, 12), alpha=self.stiffness)

    def observe(self, state: State) -> Tensor:
        motion = state.base_motion
        _, pose, joints = state.q.split((2, 5, 12), -1)
        rates = state.qd.narrow(-1, 6, 12)
        return torch.cat([pose, motion.velocity, motion.omega, joints, rates, motion.up, motion.heading], -1)

    def reward(self, state: State, action: Tensor, joint_force: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        terms = {
            "velocity": torch.exp(-self._off(state).square().sum(-1)),
            "straight": 0.5 * torch.exp(-state.base_motion.omega.select(1, 2).square()),
            "torque": -2.5e-5 * joint_force.square().sum(-1),
        }
        return total(terms).clamp(min=0), terms

    def measures(self, state: State) -> dict[str, Tensor]:
        return {"velocity error (m/s)": self._off(state).norm(dim=-1)}

    def _off(self, state: State) -> Tensor:
        """[N, 2]: velocity over ground less the one that is asked for."""
        return state.base_motion.velocity.narrow(1, 0, 2) - self._target

    def terminated(self, state: State) -> Tensor:
        nearest = state.contacts.distance.index_select(1, self._must_not_touch).amin(-1)
        return (nearest < 0.01) | (state.q.select(1, 2) < 0.4)
