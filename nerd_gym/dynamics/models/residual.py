"""`residual`: a network corrects the frozen-pose prior of a frame; for robots with a free base.

Kinematics, joint limits and gravity are the MJCF's; inertias and contact law of the prior come from data
(identify). The network learns what the frozen pose and the contact law miss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nerd_gym.dynamics.features.canonical import View
from nerd_gym.dynamics.features.contacts import PointMotion, predicted_distance_features
from nerd_gym.dynamics.features.normaliser import BUSY, STILL
from nerd_gym.dynamics.features.robot_centric import RobotPose
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_to_matrix
from nerd_gym.robots.state import Motion

from .frozen_pose import CONSTRAINT, LAW_TENSORS, PENALTY, POSE_UPDATES, FrozenPosePrior
from .mlp import OUTSIDE, MlpModel

PRIOR = "prior among the inputs"  # group of inputs


class ResidualModel(MlpModel):
    """An `mlp` that learns the residual of a frame over its prior.

    Its inputs are the prior's change of velocity beyond free fall and, of contacts and limits, the distances predicted
    for the end of the frame.
    """

    kind = "residual"
    default_network = {"width": 128, "depth": 3}
    prior: FrozenPosePrior
    has_prior = True

    def _open(self, tensors: dict[str, Tensor]) -> None:
        if not self.robot.free_base:
            raise ValueError(f"{self.robot.name} has a fixed base; residual models are for robots with a free one")
        law = LAW_TENSORS[CONSTRAINT if LAW_TENSORS[CONSTRAINT] in tensors else PENALTY]
        self._own = {name: tensors[name].detach().cpu() for name in ("prior.parameters", law)}
        pose_updates = int(self.facts.get("pose_updates", 1))  # files of the first version have one
        parameters, gains = self._own["prior.parameters"], self._own[law]
        self.prior = FrozenPosePrior(self.robot, parameters, gains, self.device, self.threads, pose_updates)
        super()._open(tensors)

    def encode(
        self, now: Motion, force: Tensor, contacts: Contacts
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor]]:
        step, change, ahead = self.prior(now, force, (contacts.ground_point, contacts.ground_normal))
        base = RobotPose(now.q[:, :3], quat_to_matrix(now.q[:, 3:7]))
        points = None
        if self.robot.ground is not None:
            ahead = ahead[:, self._points.distinct]
            points = PointMotion(ahead, torch.zeros_like(ahead), torch.zeros_like(ahead)[:, None].expand(-1, 3, -1))
        view, element = self.canonical(self._view(base, now, force, contacts.ground_normal, points))
        beyond = torch.cat([change[:, :3] - self._falls(now), change[:, 3:]], 1)
        features = torch.cat([self._features(view), self.canonical.motion(beyond, element)], 1)
        return features, element, (step, change)

    def _features(self, view: View) -> Tensor:
        parts = [view.joints.flatten(1)[:, self._shown], view.vectors.flatten(1), view.omega.flatten(1)]
        if self.robot.ground is not None:
            parts.append(predicted_distance_features(view.distance, view.normal_speed, self._dt))
        return torch.cat([*parts, predicted_distance_features(*self._limit_motion(view), self._dt)], 1)

    def input_groups(self) -> dict[str, slice]:
        groups = super().input_groups()
        points = len(self._points.distinct) if self.robot.ground is not None else 0
        columns = {name: groups[name] for name in ("joints", OUTSIDE)}
        sizes = {
            "distance ahead": points,
            "joint limits ahead": 2 * len(self.limited),
            PRIOR: self.robot.nv,
        }
        start = columns[OUTSIDE].stop
        for name, size in sizes.items():
            columns[name] = slice(start, start + size)
            start += size
        return columns

    def output_gate(self, inputs: Tensor) -> Tensor:
        """[..., 1] of normalised inputs: 1 when something happens, near 0 where the prior is free fall."""
        scale, at = self.normaliser, self.input_groups()[PRIOR]
        beyond = inputs[..., at] + scale.input_mean[at] / scale.input_std[at]
        return (STILL + BUSY * beyond.square().mean(-1, keepdim=True)).clamp(max=1.0).sqrt()

    def tensors(self) -> dict[str, Tensor]:
        return super().tensors() | self._own

    @classmethod
    def new_facts(cls, robot: RobotModel) -> dict[str, Any]:
        return {"pose_updates": POSE_UPDATES}
