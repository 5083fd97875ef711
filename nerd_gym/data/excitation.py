"""Task-agnostic random states, grounds and joint forces to learn dynamics from.

Two presets. ``reference`` has the ranges of the published data: uniform states and joint forces drawn anew
each frame. ``wide`` goes further out than rollouts do, mixes kinds and scales of force (a model that has seen
white noise alone drifts when nobody pushes), and starts half of the robots close to the ground. Of a robot with a free
base every fifth block of it has the published ranges.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerd_gym.backends.base import Backend
from nerd_gym.robots.features import SLIDE
from nerd_gym.robots.model import RobotModel

PRESETS = ("wide", "reference")
# Per trajectory: fresh noise each frame, held for a while, a spring to random targets, nothing at all.
KINDS = {"white": 0.25, "held": 0.25, "spring": 0.35, "passive": 0.15}


@dataclass(frozen=True)
class Ranges:
    """Half widths of the uniform start distribution, and how it is pushed."""

    angle: float = math.pi  # of a joint without limits, rad
    slide: float = 3.5  # of a slide without limits, m
    beyond_limits: float = 0.1  # how far past its limits a limited joint may start, as a part of its range
    joint_rate: float = 10.0  # rad/s or m/s
    tilt: float = math.pi  # of a free base, rad
    base_velocity: float = 2.0  # m/s
    base_spin: float = math.pi  # rad/s
    height: float = 0.6  # of the lowest point over the ground at most, m
    near: float = 0.5  # the part of the starts that is within a tenth of that height
    force: float = 1.0  # as a part of the robot's force limits
    kinds: bool = True  # mix the kinds and scales of force; False: white noise at full scale
    smooth: float = 0.0  # the part of the trajectories whose force is low-pass filtered noise instead
    full: float = 0.0  # the part of the trajectories that is pushed at full scale
    slow: bool = False  # every trajectory has a scale of its own for the rates at its start

    def as_dict(self) -> dict[str, Any]:
        """For the record."""
        return asdict(self)


REFERENCE = Ranges(beyond_limits=0.0, tilt=math.pi / 2, base_velocity=1.0, near=0.0, kinds=False)
# What the published data of each robot does otherwise.
REFERENCE_ROBOTS = {
    "cartpole": {"joint_rate": 10.0},
    "pendulum_contact": {"joint_rate": 4 * math.pi},
    "ant": {"joint_rate": 2 * math.pi},
    "franka": {"angle": 10.0, "joint_rate": math.pi, "force": 1.15},
}


LEGGED = Ranges(joint_rate=12.0, base_velocity=4.0, base_spin=7.0, smooth=0.2, full=0.3, slow=True)
PUBLISHED_BLOCK = 5  # every so many blocks of a free base


def ranges_for(robot: RobotModel, preset: str, block: int = 0) -> Ranges:
    """The ranges of a preset for a robot, in a block of its data."""
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; valid: {', '.join(PRESETS)}")
    if preset == "wide" and not robot.free_base:
        return Ranges(joint_rate=15.0 if robot.nj <= 2 else 8.0)
    if preset == "wide" and block % PUBLISHED_BLOCK != PUBLISHED_BLOCK - 1:
        return LEGGED
    return replace(REFERENCE, **REFERENCE_ROBOTS.get(robot.name, {}))


class Sampler:
    """Draws starts and forces for one block of trajectories; a block's number and seed decide every draw."""

    def __init__(self, backend: Backend, ranges: Ranges, seed: int, block: int):
        self.backend, self.robot, self.ranges = backend, backend.robot, ranges
        self.n = backend.num_envs
        self._generator = torch.Generator().manual_seed((seed << 24) + block)
        limit = self.robot.force_limit * ranges.force
        self._limit = torch.as_tensor(limit, dtype=torch.float32)

    def uniform(self, *shape: int) -> Tensor:
        """Between -1 and 1."""
        return 2 * torch.rand(*shape, generator=self._generator) - 1

    def start(self) -> None:
        """Put every row of the backend at a random state over a random ground."""
        robot, r = self.robot, self.ranges
        q, qd = torch.zeros(self.n, robot.nq), torch.zeros(self.n, robot.nv)
        q[:, robot.joint_q] = self._joints()
        qd[:, robot.joint_qd] = r.joint_rate * self.uniform(self.n, robot.nj)
        if robot.free_base:
            axis = torch.nn.functional.normalize(self.uniform(self.n, 3), dim=-1)
            half = 0.5 * r.tilt * self.uniform(self.n, 1)
            q[:, 3:7] = torch.cat([torch.cos(half), torch.sin(half) * axis], -1)
            qd[:, :3] = r.base_velocity * self.uniform(self.n, 3)
            qd[:, 3:6] = r.base_spin * self.uniform(self.n, 3)
        if r.slow:
            qd *= 0.5 * (1 + self.uniform(self.n, 1))
        device = self.backend.device
        q, qd = q.to(device), qd.to(device)
        everyone = torch.ones(self.n, dtype=torch.bool, device=device)
        if robot.ground is None:
            self.backend.reset(everyone, q, qd)
            return
        normal = torch.tensor([0.0, 0.0, 1.0]).repeat(self.n, 1)
        if not robot.free_base:  # a plane anywhere, seen from a robot that cannot leave its place
            normal = torch.nn.functional.normalize(self.uniform(self.n, 3), dim=-1)
        self.backend.reset(everyone, q, qd, (torch.zeros(self.n, 3).to(device), normal.to(device)))
        lowest = self.backend.contacts.distance.amin(-1, keepdim=True).cpu()
        gap = self._gaps()
        if robot.free_base:
            q[:, 2:3] += (gap - lowest).to(device)
            self.backend.reset(everyone, q, qd)
        else:
            point = ((lowest - gap) * normal).to(device)
            self.backend.reset(everyone, q, qd, (point, normal.to(device)))

    def _joints(self) -> Tensor:
        robot, r = self.robot, self.ranges
        free = np.where(robot.mj_model.jnt_type[-robot.nj :] == SLIDE, r.slide, r.angle)
        low, high = robot.joint_range.T
        extra = np.where(np.isfinite(high - low), r.beyond_limits * (high - low), 0.0)
        low, high = np.where(np.isfinite(low), low - extra, -free), np.where(np.isfinite(high), high + extra, free)
        middle, half = (torch.as_tensor(x, dtype=torch.float32) for x in ((low + high) / 2, (high - low) / 2))
        return middle + half * self.uniform(self.n, robot.nj)

    def _gaps(self) -> Tensor:
        """How far the lowest point starts over the ground, [N, 1]."""
        unit = 0.5 * (1 + self.uniform(self.n, 1))
        near = 0.5 * (1 + self.uniform(self.n, 1)) < self.ranges.near
        return self.ranges.height * torch.where(near, 0.1 * unit, unit)

    def forces(self, frames: int) -> Forces:
        """The joint forces of the trajectories, to be asked frame by frame."""
        return Forces(self, frames)


class Forces:
    """Joint forces [N, nj] frame by frame; each trajectory has one kind and one scale."""

    def __init__(self, sampler: Sampler, frames: int):
        n, nj = sampler.n, sampler.robot.nj
        self._limit, self._joint_q, self._joint_qd = sampler._limit, sampler.robot.joint_q, sampler.robot.joint_qd
        self._white = sampler.uniform(frames, n, nj)
        if not sampler.ranges.kinds:
            self._kind = torch.zeros(n, 1, dtype=torch.long)
            self._scale = torch.ones(n, 1)
        else:
            edges = torch.tensor(list(KINDS.values())).cumsum(0)
            self._kind = torch.bucketize(0.5 * (1 + sampler.uniform(n, 1)).clamp(max=1.999), edges).clamp(
                max=len(KINDS) - 1
            )
            # Log-uniform from a twentieth to the whole.
            self._scale = torch.exp(math.log(20) * 0.5 * (sampler.uniform(n, 1) - 1))
        if sampler.ranges.full:
            self._scale = torch.where(0.5 * (1 + sampler.uniform(n, 1)) < sampler.ranges.full, 1.0, self._scale)
        hold = torch.randint(2, 21, (n, 1), generator=sampler._generator)
        held = (torch.arange(frames)[:, None, None] // hold) * hold  # the frame whose noise is held
        self._held = torch.gather(self._white, 0, held.expand(frames, n, nj))
        if sampler.ranges.smooth:
            smooth = 0.5 * (1 + sampler.uniform(n, 1)) < sampler.ranges.smooth
            self._kind = torch.where(smooth & (self._kind < 2), 1, self._kind)
            self._held = torch.where(smooth, self._low_pass(sampler), self._held)
        self._target = sampler.backend.q[:, self._joint_q].cpu() + self._held
        self._stiffness = self._limit * (0.5 + 2 * (1 + sampler.uniform(n, 1)))
        self._damping = 0.02 * self._stiffness * (1 + sampler.uniform(n, 1))

    def _low_pass(self, sampler: Sampler) -> Tensor:
        """[T, N, nj]: the noise after a filter of first order with a time of 2 to 20 frames, at full scale again."""
        keep = torch.exp(-1 / (11 + 9 * sampler.uniform(sampler.n, 1)))
        gain = torch.sqrt((1 + keep) / (1 - keep))  # the noise keeps its spread
        out = torch.empty_like(self._white)
        value = self._white[0]
        for frame, fresh in enumerate(self._white):
            value = keep * value + (1 - keep) * gain * fresh if frame else fresh
            out[frame] = value.clamp(-1, 1)
        return out

    def at(self, frame: int, q: Tensor, qd: Tensor) -> Tensor:
        """The forces of a frame at the current state."""
        spring = self._stiffness * (self._target[frame] - q[:, self._joint_q].cpu())
        spring = spring - self._damping * qd[:, self._joint_qd].cpu()
        spring = torch.clamp(spring, -self._limit, self._limit)
        noise = self._scale * self._limit * torch.where(self._kind == 0, self._white[frame], self._held[frame])
        force = torch.where(self._kind <= 1, noise, torch.where(self._kind == 2, self._scale * spring, 0.0))
        return force.to(q.device)
