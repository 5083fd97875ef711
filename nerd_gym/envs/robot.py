"""NeRD/Robot-v0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.contacts import ContactFinder, ground_of_model
from nerd_gym.robots.features import HINGE, UnsupportedRobot
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_multiply, quat_to_matrix

from .random import EnvRandom
from .task import State, Task, TaskConfig, total

ACTION_SCALE = {"position": 0.5, "force": 1.0}
SLIDE_UNIT = 0.1  # m, of a slide without limits
LARGEST_STEP = 0.5  # part of a lone joint's speed that the damping may take in a frame; the spring alike


@dataclass(frozen=True)
class RobotConfig(TaskConfig):
    """Options of Robot."""

    mjcf: str | Path | None = None
    task: Literal["stand", "track"] = "stand"
    control: Literal["position", "force"] = "position"
    action_scale: float | None = None
    stiffness: float = 2.0
    damping: float = 0.05
    speed: float = 0.5
    turn: float = 0.5
    ignore: tuple[str, ...] = ()

    def __post_init__(self):
        for name in ("action_scale", "stiffness", "damping", "speed", "turn"):
            value = getattr(self, name)
            if value is None and name == "action_scale":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}; it must be a number above 0")
        if isinstance(self.mjcf, Path):  # as text it stands whole in a policy's facts
            object.__setattr__(self, "mjcf", str(self.mjcf))
        ignore = self.ignore.split(",") if isinstance(self.ignore, str) else self.ignore  # as a command line gives it
        object.__setattr__(self, "ignore", tuple(ignore))


class BaseView(NamedTuple):
    """A base's motion in its own frame, whose axes are the world's in the start pose."""

    gravity: Tensor  # [N, 3] direction
    velocity: Tensor  # [N, 3]
    omega: Tensor  # [N, 3]
    up: Tensor  # [N] cosine of the tilt from the start pose
    height: Tensor  # [N] over the ground


class Robot(Task):
    """Your own robot, with a free base: it stands, or it tracks a commanded planar velocity.

    ============  ==========================================================================
    action        one per actuated joint, clipped to [-1, 1], F the joint's force limit.
                  position: force = k (pose + scale a - q) - d qd within F, held over the
                  frame, k = stiffness F / unit, d = damping F / unit, scale = action_scale unit;
                  force: action_scale F a
    observation   9 + 2 nj: direction of gravity, velocity and angular velocity of the base, all
                  in the base's frame; joints less the start pose, joint rates;
                  track: + 3, the command: v_x, v_y, turn rate
    reward        stand: exp(-((h - h0) / 0.2 h0)^2) + up - 0.1 mean((force / F)^2);
                  track: exp(-abs(v_xy - command)^2 / (speed / 2)^2)
                  + 0.5 exp(-(w_z - command)^2 / (turn / 2)^2) - 0.1 mean((force / F)^2)
    termination   base below half its start height h0 over the ground, or tilted by 60 degrees
    horizon       1000 frames
    options       mjcf: path of the robot, required; task: stand, track; control: position,
                  force; action_scale: 0.5 (position) or 1 (force); stiffness: 2; damping: 0.05;
                  speed: 0.5 m/s and turn: 0.5 rad/s, largest commands (v_y: half the speed);
                  ignore: features of the MJCF to leave out, e.g. ["self_collision"]
    ============  ==========================================================================

    The start pose is the MJCF's first keyframe, or qpos0, set down on the ground. unit is 1 rad for a hinge; half its
    range for a slide, or 0.1 m if it has no limits. Where a lone joint is so light that forces held over a frame would
    shake it, k and d are smaller: more armature or shorter frames (`substeps`) allow the full ones. up is the cosine
    of the base's tilt from the start pose, and the axes of the base's frame are the world's in the start pose: x is
    where the robot faces.
    """

    config_class = RobotConfig
    config: RobotConfig
    horizon = 1000

    @classmethod
    def robot_of(cls, config: RobotConfig) -> RobotModel:
        """The MJCF's, if it can stand on a ground and move."""
        if not isinstance(config.mjcf, str) or not config.mjcf:
            raise ValueError(
                f"mjcf is {config.mjcf!r}; NeRD/Robot-v0 needs the path of your robot's MJCF, mjcf='my_robot.xml'"
            )
        robot = RobotModel.from_mjcf(config.mjcf, config.ignore)
        needs = {
            "a free base (<freejoint/> in its first body; nerd_gym.make_backend runs one with a fixed base)": (
                robot.free_base
            ),
            "a joint with an actuator": len(robot.actuated) > 0,
            "a ground (a <geom type='plane'> that collides)": robot.ground is not None,
            "a sphere, capsule or box that touches the ground": robot.ground is None or len(robot.candidates.body) > 0,
        }
        if missing := [what for what, there in needs.items() if not there]:
            raise UnsupportedRobot(f"{robot.path.name} lacks what NeRD/Robot-v0 needs: {'; '.join(missing)}")
        return robot

    def __init__(self, robot: RobotModel, config: RobotConfig, device: torch.device | str = "cpu"):
        super().__init__(robot, config, device)
        m, joints = robot.mj_model, robot.joint_q
        self.action_size = len(robot.actuated)
        self.goal_size = 3 if config.task == "track" else 0
        self.obs_size = 9 + 2 * robot.nj + self.goal_size
        start = (m.key_qpos[0] if m.nkey else m.qpos0).copy()
        start[3:7] /= np.linalg.norm(start[3:7])
        self._find = ContactFinder(robot, Kinematics(robot, self.device))
        self._ground = [self.tensor(x)[None] for x in ground_of_model(robot)]
        self._start = self._set_down(self.tensor(start)[None])
        self._from_base = quat_to_matrix(self._start[:, 3:7])[0].T.contiguous()  # of the base's axes in the start pose
        self._pose = self._start[:, joints]
        self._range = self.tensor(robot.joint_range.T)
        self._unit = self.tensor(_units(robot))
        self._actuated = torch.tensor(robot.actuated, device=self.device)
        self._limit = self.tensor(robot.force_limit)[self._actuated]
        scale = config.action_scale or ACTION_SCALE[config.control]
        self._scale = scale * (self._limit if config.control == "force" else self._unit[self._actuated])
        self._stiffness, self._damping = (self.tensor(x)[self._actuated] for x in _gains(robot, config))
        self._largest = self.tensor([config.speed, config.speed / 2, config.turn])
        ground_point, ground_normal = self._ground
        self.start_height = float(((self._start[:, :3] - ground_point) * ground_normal).sum())
        if self.start_height <= 0:
            raise UnsupportedRobot(f"{robot.path.name}: the base is not over the ground in the start pose")

    @property
    def actuation(self) -> dict[str, Any]:
        hinge = self.robot.mj_model.jnt_type[-self.robot.nj :][list(self.robot.actuated)] == HINGE
        kind = self.config.control
        words = ("rad", "m") if kind == "position" else ("N m", "N")
        units = [words[0] if h else words[1] for h in hinge]
        facts = {"kind": kind, "scale": self._scale.tolist(), "unit": units[0] if len(set(units)) == 1 else units}
        if kind == "position":
            facts |= {"stiffness": self._stiffness.tolist(), "damping": self._damping.tolist()}
            facts["pose"] = self._pose[0, self._actuated].tolist()
        return facts | {"limit": self._limit.tolist()}

    def initial_state(self, rng: EnvRandom) -> tuple[Tensor, Tensor]:
        n, robot = rng.num_envs, self.robot
        rotation = quat_multiply(rng.rotation(0.1), self._start[:, 3:7].expand(n, 4))
        joints = (self._pose + rng.centred(0.1 * self._unit, robot.nj)).clamp(*self._range)
        q = torch.cat([self._start[:, :3].expand(n, 3), rotation, joints], -1)
        return self._set_down(q), torch.cat([rng.centred(0.1, 6), rng.centred(0.1 * self._unit, robot.nj)], -1)

    def initial_goal(self, rng: EnvRandom, q: Tensor) -> Tensor:
        return rng.centred(self._largest, 3)

    def _set_down(self, q: Tensor) -> Tensor:
        """The states [N, nq] with their lowest point on the ground."""
        point, normal = (x.expand(len(q), 3) for x in self._ground)
        lowest = self._find(q, point, normal).distance.amin(-1)
        return torch.cat([q[:, :2], (q[:, 2] - lowest / normal[:, 2])[:, None], q[:, 3:]], -1)

    def joint_force(self, action: Tensor, state: State) -> Tensor:
        wanted = self._scale * action.clamp(-1, 1)
        if self.config.control == "position":
            off = (self._pose - state.q[:, self.robot.joint_q])[:, self._actuated]
            rates = state.qd[:, self.robot.joint_qd][:, self._actuated]
            wanted = self._stiffness * (off + wanted) - self._damping * rates
        force = wanted.clamp(-self._limit, self._limit)
        return torch.zeros(len(force), self.robot.nj, device=self.device).index_copy(1, self._actuated, force)

    def _view(self, state: State) -> BaseView:
        return state.cached("base_view", lambda: self._base_view(state))

    def _base_view(self, state: State) -> BaseView:
        q, qd, ground = state.q, state.qd, state.contacts
        rotation = quat_to_matrix(q[:, 3:7]) @ self._from_base
        velocity = torch.bmm(qd[:, None, :3], rotation)[:, 0]
        omega = qd[:, 3:6] @ self._from_base
        height = ((q[:, :3] - ground.ground_point) * ground.ground_normal).sum(-1)
        return BaseView(-rotation[:, 2], velocity, omega, rotation[:, 2, 2], height)

    def observe(self, state: State) -> Tensor:
        view = self._view(state)
        joints = state.q[:, self.robot.joint_q] - self._pose
        return torch.cat([*view[:3], joints, state.qd[:, self.robot.joint_qd], state.goal], -1)

    def reward(self, state: State, action: Tensor, joint_force: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        view, effort = self._view(state), joint_force[:, self._actuated] / self._limit
        if self.config.task == "stand":
            off = (view.height - self.start_height) / (0.2 * self.start_height)
            terms = {"height": torch.exp(-off.square()), "upright": view.up}
        else:
            turn = (view.omega[:, 2] - state.goal[:, 2]) / (self.config.turn / 2)
            velocity = self._velocity_error(state) / (self.config.speed / 2)
            terms = {"velocity": torch.exp(-velocity.square()), "turn": 0.5 * torch.exp(-turn.square())}
        terms["effort"] = -0.1 * effort.square().mean(-1)
        return total(terms), terms

    def _velocity_error(self, state: State) -> Tensor:
        """[N], m/s."""
        return (self._view(state).velocity[:, :2] - state.goal[:, :2]).norm(dim=-1)

    def measures(self, state: State) -> dict[str, Tensor]:
        if self.config.task == "stand":
            return {"height error (m)": (self._view(state).height - self.start_height).abs()}
        return {"velocity error (m/s)": self._velocity_error(state)}

    def terminated(self, state: State) -> Tensor:
        view = self._view(state)
        return (view.height < 0.5 * self.start_height) | (view.up < 0.5)


def _units(robot: RobotModel) -> np.ndarray:
    """[nj]: what counts as much motion of a joint."""
    half = (robot.joint_range[:, 1] - robot.joint_range[:, 0]) / 2
    slide = np.where(np.isfinite(half), half, SLIDE_UNIT)
    return np.where(robot.mj_model.jnt_type[-robot.nj :] == HINGE, 1.0, slide)


def _gains(robot: RobotModel, config: RobotConfig) -> tuple[np.ndarray, np.ndarray]:
    """Stiffness and damping [nj] from the force limits, or less for a joint that moves little."""
    inertia = 1 / robot.mj_model.dof_invweight0[robot.joint_qd]  # of the joint with everything else free to move
    full, dt = robot.force_limit / _units(robot), robot.frame_dt
    return (
        np.minimum(config.stiffness * full, LARGEST_STEP * inertia / dt**2),
        np.minimum(config.damping * full, LARGEST_STEP * inertia / dt),
    )
