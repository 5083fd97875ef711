"""A prior of a frame and a network that corrects it: the kind `residual`, and of other priors `mlp` (mlp.py).

The network works from the current state alone, on features that do not change when the world is moved.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from nerd_gym.dynamics.features.state_view import StateView
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion

from .base import History
from .frozen_pose_prior import FrozenPosePrior
from .fused_step import FusedStep
from .network_model import NetworkModel
from .networks import Mlp
from .prior import Prior

RESIDUAL_WEIGHT = 0.3  # of the position's residual beside the change of velocity
BASE_WEIGHT = 2.0  # of a free base's linear velocity, which is the hardest to learn and what most rewards are about
GENTLE = 0.03  # mean square of a change of velocity, over that of all data, below which no frame counts more
RELATIVE = 0.5  # 0: all errors count alike; 1: each counts as a part of its frame's change


class ResidualModel(NetworkModel):
    """Learns what its prior leaves of the change of velocity over a frame, and of the step by the trapezoid rule."""

    kind = "residual"
    default_network = {"width": 128, "depth": 3}
    frames = 1
    module: Mlp

    @classmethod
    def prior_class(cls, facts: dict[str, Any]) -> type[Prior]:
        """Of a model with these facts."""
        return FrozenPosePrior

    @classmethod
    def new_facts(cls, robot: RobotModel) -> dict[str, Any]:
        return cls.prior_class({}).new_facts(robot)

    @classmethod
    def kept_facts(cls) -> tuple[str, ...]:
        return cls.prior_class({}).fact_names

    def _open(self, tensors: dict[str, Tensor]) -> None:
        super()._open(tensors)
        self.fused = FusedStep(self)

    def _prepare(self, tensors: dict[str, Tensor]) -> None:
        self._dt = self.robot.frame_dt
        self.view = StateView(self.robot, self.kinematics, self.robot_centric, self.device)
        self.prior = self.prior_class(self.facts)(self.view, tensors, self.facts, self.device, self.threads)
        self.centred = self.prior.centred

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

    def output_gate(self, inputs: Tensor) -> Tensor:
        return self.prior.output_gate(inputs, self.input_groups(), self.normaliser)

    def input_groups(self) -> dict[str, slice]:
        """Columns of the network's inputs, by what they tell."""
        sizes = self.view.groups() | self.prior.groups()
        ends = list(accumulate(sizes.values(), initial=0))
        return {name: slice(a, b) for name, (a, b) in zip(sizes, pairwise(ends), strict=True)}

    def encode(
        self, now: Motion, force: Tensor, contacts: Contacts
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor]]:
        """Features [N, D], elements [N] that lead to the canonical views, and the prior's step and change."""
        expected = self.prior.expect(now, force, contacts)
        view, element = self.view(expected.frame, now, force, contacts.ground_normal, expected.points)
        features = [*self.view.features(view), *self.prior.features(now, view, element, expected)]
        return torch.cat(features, 1), element, (expected.step, expected.change)

    def _examples(self, now: Motion, after: Motion, force: Tensor, contacts: Contacts) -> tuple[Tensor, Tensor]:
        features, element, expected = self.encode(now, force, contacts)
        return features, self._targets(now, after, expected, element)

    def _targets(self, now: Motion, after: Motion, expected: tuple[Tensor, Tensor], element: Tensor | None) -> Tensor:
        """[N, 2 nv] in the canonical view: what is left of the change of velocity, and of the step after it."""
        step, change = self.robot_centric.relative_motion(now, after)
        change = change - expected[1]
        residual = step - expected[0] - 0.5 * self._dt * change
        return torch.cat([self.view.canonical.motion(motion, element) for motion in (residual, change)], 1)

    def normalised(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        now, after, force, contacts = self._transitions(batch)
        encoded = self.fused.encode(now, force, contacts)
        element = encoded.element.long() if self.view.canonical.size > 1 else None
        targets = self._targets(now, after, self.prior.expected_after(encoded, now), element)
        shape = batch["force"].shape[:2]
        return encoded.inputs.clone().unflatten(0, shape), self.normaliser.targets(targets).unflatten(0, shape)

    @torch.no_grad()
    def predict(self, state: Motion, joint_force: Tensor, contacts: Contacts, history: History | None) -> Motion:
        return self.fused(state, joint_force, contacts)

    @torch.no_grad()
    def predict_in_torch(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Motion:
        """What :meth:`predict` does, by the functions that training uses."""
        features, element, expected = self.encode(state, joint_force, contacts)
        outputs = self.outputs(self.normaliser.inputs(features))
        residual, change = (self.view.canonical.motion_back(x, element) for x in outputs.split(self.robot.nv, 1))
        step = expected[0] + residual + 0.5 * self._dt * change
        return self.robot_centric.advance(state, step, expected[1] + change)

    def network_inputs(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Tensor:
        self.fused.encode(state, joint_force, contacts)
        return self.last_network_inputs()

    def last_network_inputs(self) -> Tensor:
        return self.fused.last_inputs()

    def distances(self, q: Tensor, ground_point: Tensor, ground_normal: Tensor) -> Tensor:
        return self.fused.distances(q, ground_point, ground_normal)

    def tensors(self) -> dict[str, Tensor]:
        return super().tensors() | self.prior.tensors()

    def close(self) -> None:
        self.fused.close()
