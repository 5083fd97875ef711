"""A trot for Anymal: a controller finds the forces of the feet that stand, the others swing to their footholds.

Each frame, the forces of the ground on the feet (of a QP, or of a network in its place) become joint torques:

    torque = what carries the legs - J' force + stiffness dq + damping dqd + inertia ddq

where dq and dqd bring a foot to its desired position and velocity, and ddq is its desired acceleration, by the damped
inverse of the foot's Jacobian J. A foot in the air has no force. A foot that stands is damped alone, with the desired
velocity 0: that keeps a leg quiet that has not touched down yet, and does nothing to one that does not slip.

The torques go through the task as it is. Its position control makes of an action the torque k (pose + s a - q) - d qd,
held over the frame, and the observation tells q and qd, so that a = ((torque + d qd) / k + q - pose) / s yields exactly
the wanted torque, unless it is beyond what actions from -1 to 1 can ask for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import angle_of, quat_to_matrix, wrap_angle, yaw_of

from .forces import Forces, Plan
from .gait import FEET, Gait, TrotConfig, gait
from .legs import Legs
from .srb_mpc import GRAVITY

OBSERVATION = (1, 4, 3, 3, 12, 12, 2)  # Anymal's: height, quaternion, velocity, omega, joints, rates, two more
LARGEST_STEP = 0.5  # rad, that a foot off its arc may ask of a joint


@dataclass
class Memory:
    """What the controller remembers of N robots."""

    fresh: Tensor  # [N] bool: nothing yet
    time: Tensor  # [N] s since the trot began
    position: Tensor  # [N, 2] of the base: the sum of its velocities
    yaw: Tensor  # [N] desired
    stance: Tensor  # [N, 4] bool, in the last frame
    liftoff: Tensor  # [N, 4, 3] where each foot left the ground

    @classmethod
    def of(cls, n: int, device: torch.device) -> Memory:
        """Of robots of which nothing is known."""

        def zeros(*size: int) -> Tensor:
            return torch.zeros(n, *size, device=device)

        return cls(~zeros().bool(), zeros(), zeros(2), zeros(), ~zeros(4).bool(), zeros(4, 3))


class Motion(NamedTuple):
    """How N robots move, in world axes; positions from where the episode started, heights over the ground."""

    heading: Tensor  # [N, 3, 3] world axes of the heading frame
    base: Tensor  # [N, 1, 3]
    velocity: Tensor  # [N, 1, 3] of the base
    foot: Tensor  # [N, 4, 3]
    foot_velocity: Tensor  # [N, 4, 3]
    jacobian: Tensor  # [N, 4, 3, 3] of the feet
    carry: Tensor  # [N, 4, 3] torques that carry the legs


class Trot:
    """An agent: observations of Anymal to actions of its position control.

    Args:
        robot: Anymal.
        actuation: what the task's actions mean.
        forces: what finds the forces of the feet.
        command: v_x and v_y in m/s along the heading, and the turn rate in rad/s: [3] or [N, 3].
        config: gait and gains.
    """

    def __init__(
        self,
        robot: RobotModel,
        actuation: dict[str, Any],
        forces: Forces,
        command: Tensor,
        config: TrotConfig | None = None,
    ):
        device = command.device
        self.config = c = config or TrotConfig()
        self.forces, self.command = forces, command
        self._legs, self._dt = Legs(robot, FEET, device), robot.frame_dt
        self._footholds = c.footholds(device)
        self._inertia = torch.tensor(c.inertia, device=device)
        self._limit = torch.as_tensor(robot.force_limit, dtype=torch.float32, device=device)
        self._pose = torch.tensor(actuation["pose"], device=device)
        self._gains = (actuation["stiffness"], actuation["damping"], actuation["scale"])
        self._memory: Memory | None = None

    def reset(self, rows: Tensor | None = None) -> None:
        """Start anew: every episode, or those of a mask [N]."""
        self.forces.reset(rows)
        if rows is None:
            self._memory = None
        elif self._memory is not None:
            self._memory.fresh |= rows

    def act(self, obs: Tensor) -> Tensor:
        """[N, 37] -> [N, 12] actions: what yields the torques, as far as actions can."""
        *_, joints, rates, _ = obs.split(OBSERVATION, -1)
        stiffness, damping, scale = self._gains
        position = (self.torques(obs) + damping * rates) / stiffness + joints
        return ((position - self._pose) / scale).clamp(-1, 1)

    @torch.no_grad()
    def torques(self, obs: Tensor) -> Tensor:
        """[N, 37] -> [N, 12] of the next frame."""
        memory = self._memory_of(obs)
        now = gait(self.config, memory.time)
        command = self.command * (memory.time >= 0)[:, None]
        motion, plan = self._perceive(obs, memory, command, now)
        force = self.forces(plan) @ motion.heading.mT
        torque = self._torque(motion, now, force, self._arcs(motion, now, command, memory))
        memory.position += self._dt * motion.velocity[:, 0, :2]
        memory.yaw += self._dt * command[:, 2]
        memory.time += self._dt
        memory.stance = now.stance
        return torque.flatten(1).clamp(-self._limit, self._limit)

    def _memory_of(self, obs: Tensor) -> Memory:
        """Of these robots, with those that are new put to their start."""
        if self._memory is None or len(self._memory.time) != len(obs):
            self._memory = Memory.of(len(obs), obs.device)
        m, new = self._memory, self._memory.fresh
        m.time = torch.where(new, -self.config.settle, m.time)
        m.position = torch.where(new[:, None], 0.0, m.position)
        m.yaw = torch.where(new, yaw_of(obs[:, 1:5]), m.yaw)
        m.stance = m.stance | new[:, None]
        m.fresh = torch.zeros_like(new)
        return m

    def _perceive(self, obs: Tensor, memory: Memory, command: Tensor, now: Gait) -> tuple[Motion, Plan]:
        height, quat, velocity, omega, joints, rates, _ = obs.split(OBSERVATION, -1)
        rotation, yaw = quat_to_matrix(quat), yaw_of(quat)
        legs = self._legs(joints)
        arms = legs.foot @ rotation.mT
        jacobian = rotation[:, None] @ legs.jacobian
        turning = torch.linalg.cross(omega[:, None].expand_as(arms), arms)
        foot_velocity = velocity[:, None] + turning + _product(jacobian, rates.view_as(arms))
        heading = _about_z(yaw)
        base = torch.cat([memory.position, height], -1)[:, None]
        carry = GRAVITY * _product(legs.moment, rotation[:, None, 2].expand_as(arms))
        motion = Motion(heading, base, velocity[:, None], base + arms, foot_velocity, jacobian, carry)

        tilt = heading.mT @ rotation
        roll, pitch = angle_of(tilt[:, 2, 1], tilt[:, 2, 2]), -tilt[:, 2, 0].clamp(-1, 1).asin()
        plan = Plan(
            torch.stack([roll, pitch], -1),
            wrap_angle(memory.yaw - yaw)[:, None],
            height,
            (omega[:, None] @ heading)[:, 0],
            (velocity[:, None] @ heading)[:, 0],
            arms @ heading,
            (legs.com[:, None] @ tilt.mT)[:, 0],
            command,
            memory.time.clone(),
            now,
        )
        return motion, plan

    def _arcs(self, motion: Motion, now: Gait, command: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
        """[N, 4, 3] each: desired position, velocity and acceleration of the feet.

        A foothold is where the foot at rest will be in the middle of its stance, and further if the robot is too fast
        (Raibert). Where a foot stands it is where it is.
        """
        c = self.config
        lifts = (memory.stance & ~now.stance)[..., None]
        memory.liftoff = torch.where(lifts, motion.foot, memory.liftoff)
        flight = (1 - c.duty) * c.period
        part = (1 - now.left / flight).clamp(0, 1)[..., None]

        velocity = motion.velocity[..., :2]
        wanted = command[:, None, :2] @ motion.heading.mT[:, :2, :2]
        at_rest = self._footholds @ motion.heading.mT[:, :2, :2]
        ahead = c.duty * c.period / 2 * velocity + c.placement * (velocity - wanted)
        foothold = motion.base[..., :2] + at_rest + now.left[..., None] * velocity + ahead.clamp(-c.reach, c.reach)
        across = torch.cat([foothold, torch.full_like(foothold[..., :1], c.foot_radius)], -1) - memory.liftoff
        rise = across.new_tensor([0.0, 0.0, c.lift])

        # Cosines of half a turn along the way, of a whole one up and down.
        half, whole = math.pi * part, 2 * math.pi * part
        at = memory.liftoff + across * (1 - half.cos()) / 2 + rise * (1 - whole.cos()) / 2
        rate = math.pi / flight
        speed = rate * (across * half.sin() / 2 + rise * whole.sin())
        acceleration = rate**2 * (across * half.cos() / 2 + 2 * rise * whole.cos())
        stands = now.stance[..., None]
        zero = torch.zeros_like(at)
        return (
            torch.where(stands, motion.foot, at),
            torch.where(stands, zero, speed),
            torch.where(stands, zero, acceleration),
        )

    def _torque(self, motion: Motion, now: Gait, force: Tensor, arcs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """[N, 4, 3] for forces of the ground [N, 4, 3] and the desired motion of the feet."""
        c, transposed = self.config, motion.jacobian.mT
        position, velocity, acceleration = arcs
        square = motion.jacobian @ transposed + c.singularity**2 * torch.eye(3, device=force.device)
        inverse = transposed @ torch.linalg.inv(square)
        off = _product(inverse, position - motion.foot).clamp(-LARGEST_STEP, LARGEST_STEP)
        slow = _product(inverse, velocity - motion.foot_velocity)
        accelerate = self._inertia * _product(inverse, acceleration)
        return motion.carry - _product(transposed, force) + c.stiffness * off + c.damping * slow + accelerate


def _product(matrices: Tensor, vectors: Tensor) -> Tensor:
    """[..., A, B] times [..., B] -> [..., A]."""
    return (matrices @ vectors[..., None])[..., 0]


def _about_z(yaw: Tensor) -> Tensor:
    """[N] -> [N, 3, 3]."""
    half = yaw / 2
    return quat_to_matrix(torch.stack([half.cos(), 0 * half, 0 * half, half.sin()], -1))
