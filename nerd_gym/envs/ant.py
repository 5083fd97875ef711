"""NeRD/Ant-v0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_rotate

from .random import EnvRandom
from .task import State, Task, TaskConfig, total


@dataclass(frozen=True)
class AntConfig(TaskConfig):
    """Options of Ant."""

    task: Literal["run", "spin", "spin_track"] = "run"


class Ant(Task):
    """A four-legged ant of 117 kg that runs along x, or spins about the vertical.

    ============  ==========================================================================
    action        8: torque / 400 N m, hip 1, ankle 1 ... ankle 4, clipped to [-1, 1]
    observation   28: torso height, quaternion (w first), velocity, angular velocity (both of
                  the torso in world axes), 8 joint angles, 8 joint rates, up
    reward        run: v_x + 0.1 up + heading; spin: w_z + up;
                  spin_track: 5 exp(-(w_z - 5)^2 - 0.1 w_x^2 - 0.1 w_y^2) + 0.1 up
    termination   torso below 0.3 m
    horizon       500 steps of 1/60 s
    options       task: run, spin, spin_track
    ============  ==========================================================================

    up is the z of the torso's z axis, heading the x of its x axis.
    """

    robot_name = "ant"
    config_class = AntConfig
    config: AntConfig
    horizon = 500
    action_size = 8
    obs_size = 28
    gain = 400.0  # N m

    def __init__(self, robot: RobotModel, config: AntConfig, device: torch.device | str = "cpu"):
        super().__init__(robot, config, device)
        self._start = self.tensor([0, 0, 1])
        self._start_spread = self.tensor([0.2, 0.2, 0.1])
        self._pose = self.tensor([0, 1, 0, -1, 0, -1, 0, 1])

    @property
    def actuation(self) -> dict[str, Any]:
        return {"kind": "force", "scale": self.gain, "unit": "N m"}

    def initial_state(self, rng: EnvRandom) -> tuple[Tensor, Tensor]:
        position = self._start + rng.centred(self._start_spread, 3)
        rotation = rng.rotation(torch.pi / 6)
        joints = self._pose + rng.centred(0.2, 8)
        omega = rng.centred(0.25, 3)
        velocity = quat_rotate(rotation, rng.centred(0.1, 3))
        rates = rng.centred(0.25, 8)
        return torch.cat([position, rotation, joints], -1), torch.cat([velocity, omega, rates], -1)

    def joint_force(self, action: Tensor, state: State) -> Tensor:
        return self.gain * action.clamp(-1, 1)

    def observe(self, state: State) -> Tensor:
        motion = state.base_motion
        _, pose, joints = state.q.split((2, 5, 8), -1)
        rates = state.qd.narrow(-1, 6, 8)
        return torch.cat([pose, motion.velocity, motion.omega, joints, rates, motion.up], -1)

    def reward(self, state: State, action: Tensor, joint_force: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        motion = state.base_motion
        up, heading = motion.up.squeeze(-1), motion.heading.squeeze(-1)
        if self.config.task == "run":
            terms = {"forward": motion.velocity[:, 0], "up": 0.1 * up, "heading": heading}
        elif self.config.task == "spin":
            terms = {"spin": motion.omega[:, 2], "up": up}
        else:
            wx, wy, wz = motion.omega.unbind(-1)
            track = 5 * torch.exp(-((wz - 5) ** 2) - 0.1 * wx**2 - 0.1 * wy**2)
            terms = {"track": track, "up": 0.1 * up}
        return total(terms), terms

    def measures(self, state: State) -> dict[str, Tensor]:
        motion = state.base_motion
        if self.config.task == "run":
            return {"speed along x (m/s)": motion.velocity[:, 0]}
        return {"spin about the vertical (rad/s)": motion.omega[:, 2]}

    def terminated(self, state: State) -> Tensor:
        return state.q[:, 2] < 0.3
