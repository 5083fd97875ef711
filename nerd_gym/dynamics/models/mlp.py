"""`mlp`: a network from the current state alone, on features that do not change when the world is moved.

Of a robot with a free base the network learns the residual over free fall. Its output has an error of some size even
in free fall; :meth:`MlpModel.output_gate` makes it small there, so that a robot in flight falls as it should.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nerd_gym.dynamics.features.canonical import Canonical, View
from nerd_gym.dynamics.features.contacts import ContactMotion, PointMotion, invariant_features, near_features
from nerd_gym.dynamics.features.kernel_tables import Shown
from nerd_gym.dynamics.features.normaliser import BUSY, STILL, TOUCHING
from nerd_gym.dynamics.features.robot_centric import RobotPose
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.features import SLIDE
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_to_matrix
from nerd_gym.robots.state import Motion

from .base import History
from .fused_step import FusedStep
from .network_model import NetworkModel
from .networks import Mlp

if TYPE_CHECKING:
    from .frozen_pose import FrozenPosePrior

RESIDUAL_WEIGHT = 0.3  # of the position's residual beside the change of velocity
BASE_WEIGHT = 2.0  # of a free base's linear velocity, which is the hardest to learn and what most rewards are about
GENTLE = 0.03  # mean square of a change of velocity, over that of all data, below which no frame counts more
OUTSIDE = "gravity, ground, angular velocity"  # group of inputs
RELATIVE = 0.5  # 0: all errors count alike; 1: each counts as a part of its frame's change


class MlpModel(NetworkModel):
    """Learns the change of velocity over a frame, and what the trapezoid rule misses in position.

    World position and yaw are no inputs: they matter only through gravity, contacts and limits, which are expressed in
    the robot's frame and in the canonical one of the robot's symmetric views.
    """

    kind = "mlp"
    default_network = {"width": 256, "depth": 3}
    frames = 1
    module: Mlp
    prior: FrozenPosePrior | None = None  # what the network corrects (residual.py)
    has_prior = False  # whether there is one

    def _open(self, tensors: dict[str, Tensor]) -> None:
        super()._open(tensors)
        shown = Shown(self._gravity, self._points.distinct, self._shown, self.limited, self.limits, self.canonical)
        self.fused = FusedStep(self, shown)

    def _prepare(self) -> None:
        robot, m, frames = self.robot, self.robot.mj_model, self.robot_centric
        self._dt = robot.frame_dt
        self._gravity = bool(np.any(m.opt.gravity))
        # Files of the first version have neither.
        self.free_fall_prior = bool(self.facts.get("free_fall_prior", False))
        self.predicted_distance = bool(self.facts.get("predicted_distance", False))
        self.centred = not (self.free_fall_prior or self.has_prior)
        self._fall = self._dt * float(np.linalg.norm(m.opt.gravity))
        self._points = ContactMotion(robot, self.kinematics, frames, self.device)
        unlimited = frames.unlimited.cpu().numpy()
        position, rate = np.ones(robot.nj, bool), np.ones(robot.nj, bool)
        if self._first_joint_is_seen_from_outside():
            dof = m.jnt_dofadr[0]
            position[0] = False
            rate[0] = m.jnt_type[0] != SLIDE or m.dof_damping[dof] != 0
        shown = np.stack([position, position & unlimited, rate, np.ones(robot.nj, bool)])  # the rows of View.joints
        self.canonical = Canonical(robot, int(self._gravity) + int(robot.ground is not None), shown, self.device)

        def tensor(x) -> Tensor:
            return torch.as_tensor(x, device=self.device)

        self._shown = tensor(np.flatnonzero(shown))
        limited = np.isfinite(robot.joint_range).all(1)
        self.limited = tensor(np.flatnonzero(limited))
        self.limits = tensor(robot.joint_range[limited].T.astype(np.float32))  # [2, limited]

    def _first_joint_is_seen_from_outside(self) -> bool:
        """Whether gravity and contacts in the first link's frame tell all that the first joint's position means."""
        m = self.robot.mj_model
        roots = [j for j in range(m.njnt) if m.body_weldid[m.body_parentid[m.jnt_bodyid[j]]] == 0]
        return not self.robot.free_base and roots == [0] and m.jnt_stiffness[0] == 0

    def _build(self, inputs: int, outputs: int, sizes: dict[str, int]) -> Mlp:
        return Mlp(inputs, outputs, **sizes)

    def _output_weight(self) -> Tensor:
        weight = torch.ones(2 * self.robot.nv)
        weight[: self.robot.nv] = RESIDUAL_WEIGHT
        if self.robot.free_base:
            weight[self.robot.nv : self.robot.nv + 3] = BASE_WEIGHT
        return weight

    def loss_scale(self, targets: Tensor) -> Tensor:
        """Gentle frames count more: a robot that stands or falls freely is seldom in the data and often in rollouts."""
        change = targets[..., self.robot.nv :].square().mean(-1, keepdim=True)
        return (change + GENTLE) ** (RELATIVE / 2)

    @staticmethod
    def may_fall(robot: RobotModel) -> bool:
        """Whether a robot that nothing touches and nobody moves falls without bending."""
        return robot.free_base and not np.any(robot.mj_model.jnt_stiffness)

    @classmethod
    def new_facts(cls, robot: RobotModel) -> dict[str, Any]:
        return {"free_fall_prior": cls.may_fall(robot), "predicted_distance": True}

    def output_gate(self, inputs: Tensor) -> Tensor:
        """[..., 1] of normalised inputs: 1 when something happens, near 0 in free fall."""
        if not self.free_fall_prior:
            return inputs.new_ones(())
        groups, scale = self.input_groups(), self.normaliser
        joints, others = groups["joints"], groups[OUTSIDE]
        nj, count = self.robot.nj, 2 * len(self.limited)
        rates, forces = (slice(joints.stop - k * nj, joints.stop - (k - 1) * nj) for k in (2, 1))
        size = torch.full_like(inputs[..., :1], STILL)
        for at in (rates, forces, slice(others.stop - 3, others.stop)):
            moved = inputs[..., at] + scale.input_mean[at] / scale.input_std[at]
            size += BUSY * moved.square().mean(-1, keepdim=True)
        limits = slice(groups["joint limits"].start, groups["joint limits"].start + count)
        for now in (groups["distance"], limits):
            later = slice(now.stop, 2 * now.stop - now.start)
            near = torch.minimum(*(inputs[..., at] * scale.input_std[at] + scale.input_mean[at] for at in (now, later)))
            if near.shape[-1]:
                size += (1 - near.amin(-1, keepdim=True).clamp_min(0) / TOUCHING).clamp_min(0).square()
        return size.clamp(max=1.0).sqrt()

    def _expected(self, now: Motion, velocity: Tensor) -> tuple[Tensor, Tensor]:
        """Step and change of velocity [N, nv] that the network corrects; all velocities are in the robot's frame."""
        change = torch.zeros_like(velocity)
        if self.free_fall_prior:
            change[:, :3] = self._falls(now)
        return self._dt * (velocity + 0.5 * change), change

    def _falls(self, now: Motion) -> Tensor:
        """The change of a free base's velocity [N, 3] in free fall, in its axes."""
        return self._fall * self.robot_centric.gravity_in(RobotPose(now.q[:, :3], quat_to_matrix(now.q[:, 3:7])))

    def _view(self, frame: RobotPose, now: Motion, force: Tensor, normal: Tensor, points: PointMotion | None) -> View:
        """The robot seen from its frame; normal [N, 3] is the ground's in the world."""
        robot, frames = self.robot, self.robot_centric
        q = now.q[:, robot.joint_q]
        sine = torch.where(frames.unlimited, torch.sin(q), q)
        cosine = torch.where(frames.unlimited, torch.cos(q), 0.0)
        joints = torch.stack([sine, cosine, now.qd[:, robot.joint_qd], force], 1)
        vectors = [frames.gravity_in(frame)] if self._gravity else []
        none = q[:, :0]
        if robot.ground is not None:
            vectors.append(frame.vector(normal))
        omega = now.qd[:, None, 3:6] if robot.free_base else q.new_zeros(len(q), 0, 3)
        directions = torch.stack(vectors, 1) if vectors else q.new_zeros(len(q), 0, 3)
        return View(joints, directions, omega, *(points or (none, none, none[:, None].expand(-1, 3, -1))))

    def _features(self, view: View) -> Tensor:
        """[N, D] of canonical views."""
        parts = [view.joints.flatten(1)[:, self._shown], view.vectors.flatten(1), view.omega.flatten(1)]
        if self.robot.ground is not None:
            points = PointMotion(view.distance, view.normal_speed, view.slip)
            parts.append(invariant_features(points, self._dt, self.predicted_distance))
        if len(self.limited):
            parts.append(near_features(*self._limit_motion(view), self._dt, self.predicted_distance)[0].flatten(1))
        return torch.cat(parts, 1)

    def _limit_motion(self, view: View) -> tuple[Tensor, Tensor]:
        """How far joints are from their lower and upper limits [N, 2 L], and how fast that changes."""
        q, rate = (view.joints[:, row, self.limited] for row in (0, 2))
        return torch.cat([q - self.limits[0], self.limits[1] - q], 1), torch.cat([rate, -rate], 1)

    def input_groups(self) -> dict[str, slice]:
        """Columns of the network's inputs, by what they tell."""
        robot = self.robot
        points = len(self._points.distinct) if robot.ground is not None else 0
        vectors = int(self._gravity) + int(robot.ground is not None) + int(robot.free_base)
        sizes = {
            "joints": len(self._shown),
            OUTSIDE: 3 * vectors,
            "distance": points,
            "predicted distance": points,
            "distance, close up": points,
            "normal speed": points,
            "predicted distance, close up": points if self.predicted_distance else 0,
            "sliding": 3 * points,
            "joint limits": 2 * (4 + self.predicted_distance) * len(self.limited),
        }
        ends = list(accumulate(sizes.values(), initial=0))
        return {name: slice(a, b) for name, (a, b) in zip(sizes, pairwise(ends), strict=True)}

    def encode(
        self, now: Motion, force: Tensor, contacts: Contacts
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor]]:
        """Features [N, D], elements [N] that lead to the canonical views, and what is expected of the frame."""
        frame = self.robot_centric.frame(contacts.poses)
        velocity = self.robot_centric.velocity(frame, now.qd)
        points = self._points(contacts, frame, velocity) if self.robot.ground is not None else None
        view, element = self.canonical(self._view(frame, now, force, contacts.ground_normal, points))
        return self._features(view), element, self._expected(now, velocity)

    def _examples(self, now: Motion, after: Motion, force: Tensor, contacts: Contacts) -> tuple[Tensor, Tensor]:
        features, element, expected = self.encode(now, force, contacts)
        return features, self._targets(now, after, expected, element)

    def _targets(self, now: Motion, after: Motion, expected: tuple[Tensor, Tensor], element: Tensor | None) -> Tensor:
        """[N, 2 nv] in the canonical view: what is left of the change of velocity, and of the step after it."""
        step, change = self.robot_centric.relative_motion(now, after)
        change = change - expected[1]
        residual = step - expected[0] - 0.5 * self._dt * change
        return torch.cat([self.canonical.motion(motion, element) for motion in (residual, change)], 1)

    def normalised(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        now, after, force, contacts = self._transitions(batch)
        encoded = self.fused.encode(now, force, contacts)
        if self.has_prior:
            expected = encoded.step, encoded.change
        else:
            velocity = now.qd
            if self.robot.free_base:
                base = RobotPose(now.q[:, :3], quat_to_matrix(now.q[:, 3:7]))
                velocity = self.robot_centric.velocity(base, now.qd)
            expected = self._expected(now, velocity)
        element = encoded.element.long() if self.canonical.size > 1 else None
        targets = self.normaliser.targets(self._targets(now, after, expected, element))
        shape = batch["force"].shape[:2]
        return encoded.inputs.clone().unflatten(0, shape), targets.unflatten(0, shape)

    @torch.no_grad()
    def predict(self, state: Motion, joint_force: Tensor, contacts: Contacts, history: History | None) -> Motion:
        return self.fused(state, joint_force, contacts)

    @torch.no_grad()
    def predict_in_torch(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Motion:
        """What :meth:`predict` does, by the functions that training uses."""
        features, element, expected = self.encode(state, joint_force, contacts)
        outputs = self.outputs(self.normaliser.inputs(features))
        residual, change = (self.canonical.motion_back(x, element) for x in outputs.split(self.robot.nv, 1))
        step = expected[0] + residual + 0.5 * self._dt * change
        return self.robot_centric.advance(state, step, expected[1] + change)

    def network_inputs(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Tensor:
        self.fused.encode(state, joint_force, contacts)
        return self.last_network_inputs()

    def last_network_inputs(self) -> Tensor:
        return self.fused.last_inputs()

    def distances(self, q: Tensor, ground_point: Tensor, ground_normal: Tensor) -> Tensor:
        return self.fused.distances(q, ground_point, ground_normal)

    def close(self) -> None:
        self.fused.close()
