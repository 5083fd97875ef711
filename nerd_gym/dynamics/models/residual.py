"""`sketched`: a network corrects a sketch of the frame; for robots with a free base.

Kinematics, joint limits and gravity are the MJCF's; inertias and contact gains of the sketch come from data
(identify_free.py), and what its frozen pose and its simple contact law miss is the network's to say.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nerd_gym.dynamics.features.canonical import View
from nerd_gym.dynamics.features.contacts import PointMotion, soon_features
from nerd_gym.dynamics.features.normaliser import BUSY, STILL
from nerd_gym.dynamics.features.robot_centric import Frame
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_to_matrix
from nerd_gym.robots.state import Motion

from .frozen_pose import LOOKS, Sketch
from .mlp import MlpModel


class SketchedModel(MlpModel):
    """An `mlp` that learns how a frame departs from its sketch.

    It sees what the sketch says beyond free fall, and of contacts and limits only how near they are a frame later.
    """

    kind = "sketched"
    default_network = {"width": 128, "depth": 3}
    sketched = True

    def _open(self, tensors: dict[str, Tensor]) -> None:
        if not self.robot.free_base:
            raise ValueError(f"{self.robot.name} has a fixed base; sketched models are for robots with a free one")
        self._own = {name: tensors[name].detach().cpu() for name in ("sketch.parameters", "sketch.gains")}
        looks = int(self.facts.get("looks", 1))  # models of before have one
        self.sketch = Sketch(self.robot, *self._own.values(), self.device, self.threads, looks)
        super()._open(tensors)

    def _see(
        self, now: Motion, force: Tensor, contacts: Contacts
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor]]:
        step, change, ahead = self.sketch(now, force, (contacts.ground_point, contacts.ground_normal))
        base = Frame(now.q[:, :3], quat_to_matrix(now.q[:, 3:7]))
        points = None
        if self.robot.ground is not None:
            ahead = ahead[:, self._points.distinct]
            points = PointMotion(ahead, torch.zeros_like(ahead), torch.zeros_like(ahead)[:, None].expand(-1, 3, -1))
        view, element = self._canonical(self._view(base, now, force, contacts.ground_normal, points))
        beyond = torch.cat([change[:, :3] - self._falls(now), change[:, 3:]], 1)
        features = torch.cat([self._features(view), self._canonical.motion(beyond, element)], 1)
        return features, element, (step, change)

    def _features(self, view: View) -> Tensor:
        parts = [view.joints.flatten(1)[:, self._shown], view.vectors.flatten(1), view.spin.flatten(1)]
        if self.robot.ground is not None:
            parts.append(soon_features(view.distance, view.normal_speed, self._dt))
        return torch.cat([*parts, soon_features(*self._limit_motion(view), self._dt)], 1)

    def input_groups(self) -> dict[str, slice]:
        groups = super().input_groups()
        points = len(self._points.distinct) if self.robot.ground is not None else 0
        seen = {name: groups[name] for name in ("joints", "gravity, ground, spin")}
        sizes = {
            "distance ahead": points,
            "joint limits ahead": 2 * len(self._limited),
            "sketch among the inputs": self.robot.nv,
        }
        start = seen["gravity, ground, spin"].stop
        for name, size in sizes.items():
            seen[name] = slice(start, start + size)
            start += size
        return seen

    def quiet(self, inputs: Tensor) -> Tensor:
        """[..., 1] of normalised inputs: 1 when something happens, near 0 where the sketch says that all just falls."""
        scale, at = self.normaliser, self.input_groups()["sketch among the inputs"]
        beyond = inputs[..., at] + scale.input_mean[at] / scale.input_std[at]
        return (STILL + BUSY * beyond.square().mean(-1, keepdim=True)).clamp(max=1.0).sqrt()

    def tensors(self) -> dict[str, Tensor]:
        return super().tensors() | self._own

    @classmethod
    def new_facts(cls, robot: RobotModel) -> dict[str, Any]:
        return {"looks": LOOKS}
