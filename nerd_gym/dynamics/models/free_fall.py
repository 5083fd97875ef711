"""Two priors without contact: a robot keeps its velocity, or falls freely. Contact is all for the network to learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from nerd_gym.dynamics.features.canonical import View
from nerd_gym.dynamics.features.contacts import ContactMotion, PointMotion, invariant_features, near_features
from nerd_gym.dynamics.features.kernel_tables import CONSTANT_VELOCITY, FREE_FALL
from nerd_gym.dynamics.features.normaliser import BUSY, STILL, TOUCHING, Normaliser
from nerd_gym.dynamics.features.state_view import JOINTS, OUTSIDE
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion

from .fused_step import StepBuffers
from .prior import Expected, Prior

DISTANCE, LIMITS = "distance", "joint limits"  # groups of inputs


class ConstantVelocity(Prior):
    """Nothing is expected of the frame: the network learns the whole change of velocity.

    It is told how contact candidates stand and move over the ground, and joints at their limits.
    """

    kind = CONSTANT_VELOCITY
    fact_names = ("free_fall_prior", "predicted_distance")
    writes = ("distances", "speeds", "slips", "turned")
    centred = True

    def _open(self, tensors: dict[str, Tensor], facts: dict[str, Any], threads: int | None) -> None:
        # Whether distances predicted for the frame's end are inputs at the finer scale too; not in the first files.
        self.predicted_distance = bool(facts.get("predicted_distance", False))
        self.near = 4 + self.predicted_distance
        self._points = ContactMotion(self.robot, self.view.kinematics, self.view.robot_centric, self.device)

    @classmethod
    def new_facts(cls, robot: RobotModel) -> dict[str, Any]:
        return {"free_fall_prior": may_fall(robot), "predicted_distance": True}

    def expect(self, now: Motion, force: Tensor, contacts: Contacts) -> Expected:
        frame = self.view.robot_centric.frame(contacts.poses)
        velocity = self.view.robot_centric.velocity(frame, now.qd)
        points = self._points(contacts, frame, velocity) if self.robot.ground is not None else None
        return Expected(frame, *self._expected(now, velocity), points)

    def _expected(self, now: Motion, velocity: Tensor) -> tuple[Tensor, Tensor]:
        """Step and change of velocity [N, nv]; all velocities are in the robot's frame."""
        change = self._change(now, velocity)
        return self.dt * (velocity + 0.5 * change), change

    def _change(self, now: Motion, velocity: Tensor) -> Tensor:
        """[N, nv] of velocity."""
        return torch.zeros_like(velocity)

    def groups(self) -> dict[str, int]:
        points = self.view.points
        return {
            DISTANCE: points,
            "predicted distance": points,
            "distance, close up": points,
            "normal speed": points,
            "predicted distance, close up": points if self.predicted_distance else 0,
            "sliding": 3 * points,
            LIMITS: 2 * self.near * len(self.view.limited),
        }

    def features(self, now: Motion, view: View, element: Tensor | None, expected: Expected) -> list[Tensor]:
        parts = []
        if self.robot.ground is not None:
            points = PointMotion(view.distance, view.normal_speed, view.slip)
            parts.append(invariant_features(points, self.dt, self.predicted_distance))
        if len(self.view.limited):
            limits = near_features(*self.view.limit_motion(view), self.dt, self.predicted_distance)
            parts.append(limits[0].flatten(1))
        return parts

    def record(self, buffers: StepBuffers) -> list[wp.Launch]:
        state = buffers.q, buffers.qd, buffers.point, buffers.normal
        return buffers.finder.record_motion(buffers.slices, *state, *(getattr(buffers, name) for name in self.writes))

    def expected_after(self, buffers: StepBuffers, now: Motion) -> tuple[Tensor, Tensor]:
        velocity = now.qd
        if self.robot.free_base:
            velocity = self.view.robot_centric.velocity(self.base_pose(now), now.qd)
        return self._expected(now, velocity)


class FreeFall(ConstantVelocity):
    """A robot with a free base falls without bending.

    A network's output has an error of some size even in free fall; the gate makes it small there, so that a robot in
    flight falls as it should.
    """

    kind = FREE_FALL
    centred = False

    def _change(self, now: Motion, velocity: Tensor) -> Tensor:
        change = torch.zeros_like(velocity)
        change[:, :3] = self.free_fall(now)
        return change

    def output_gate(self, inputs: Tensor, groups: dict[str, slice], scale: Normaliser) -> Tensor:
        """[..., 1]: 1 when something happens, near 0 in free fall."""
        joints, others = groups[JOINTS], groups[OUTSIDE]
        nj, count = self.robot.nj, 2 * len(self.view.limited)
        rates, forces = (slice(joints.stop - k * nj, joints.stop - (k - 1) * nj) for k in (2, 1))
        size = torch.full_like(inputs[..., :1], STILL)
        for at in (rates, forces, slice(others.stop - 3, others.stop)):
            moved = inputs[..., at] + scale.input_mean[at] / scale.input_std[at]
            size += BUSY * moved.square().mean(-1, keepdim=True)
        limits = slice(groups[LIMITS].start, groups[LIMITS].start + count)
        for now in (groups[DISTANCE], limits):
            later = slice(now.stop, 2 * now.stop - now.start)
            near = torch.minimum(*(inputs[..., at] * scale.input_std[at] + scale.input_mean[at] for at in (now, later)))
            if near.shape[-1]:
                size += (1 - near.amin(-1, keepdim=True).clamp_min(0) / TOUCHING).clamp_min(0).square()
        return size.clamp(max=1.0).sqrt()


def may_fall(robot: RobotModel) -> bool:
    """Whether a robot that nothing touches and nobody moves falls without bending."""
    return robot.free_base and not np.any(robot.mj_model.jnt_stiffness)
