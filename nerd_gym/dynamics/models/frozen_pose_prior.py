"""The few-poses computation of a frame as a prior: contacts and limits included, for robots with a free base."""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from nerd_gym.dynamics.features.canonical import View
from nerd_gym.dynamics.features.contacts import PointMotion, predicted_distance_features
from nerd_gym.dynamics.features.kernel_tables import FROZEN_POSE
from nerd_gym.dynamics.features.normaliser import BUSY, STILL, Normaliser
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion

from .frozen_pose import CONSTRAINT, LAW_TENSORS, PENALTY, POSE_UPDATES, FrozenPose
from .fused_step import StepBuffers
from .prior import Expected, Prior

PRIOR = "prior among the inputs"  # group of inputs


class FrozenPosePrior(Prior):
    """Kinematics, joint limits and gravity are the MJCF's; inertias and contact law come from data (identify).

    The network is told the prior's change of velocity beyond free fall and, of contacts and limits, the distances
    predicted for the end of the frame. It learns what the frozen pose and the contact law miss.
    """

    kind = FROZEN_POSE
    fact_names = ("pose_updates", "contact_law", "inertia_of")
    writes = ("step", "change", "ahead")
    centred = False
    near = 1

    def _open(self, tensors: dict[str, Tensor], facts: dict[str, Any], threads: int | None) -> None:
        if not self.robot.free_base:
            raise ValueError(f"{self.robot.name} has a fixed base; residual models are for robots with a free one")
        law = LAW_TENSORS[CONSTRAINT if LAW_TENSORS[CONSTRAINT] in tensors else PENALTY]
        self._own = {name: tensors[name].detach().cpu() for name in ("prior.parameters", law)}
        pose_updates = int(facts.get("pose_updates", 1))  # files of the first version have one
        parameters, gains = self._own["prior.parameters"], self._own[law]
        self.frozen_pose = FrozenPose(
            self.robot,
            parameters,
            gains,
            self.device,
            threads,
            pose_updates,
            inertia_of=read_pairing(self.robot, facts.get("inertia_of")),
        )

    @classmethod
    def new_facts(cls, robot: RobotModel) -> dict[str, Any]:
        return {"pose_updates": POSE_UPDATES}

    def tensors(self) -> dict[str, Tensor]:
        return self._own

    def expect(self, now: Motion, force: Tensor, contacts: Contacts) -> Expected:
        step, change, ahead = self.frozen_pose(now, force, (contacts.ground_point, contacts.ground_normal))
        points = None
        if self.robot.ground is not None:
            ahead = ahead[:, self.view.distinct]
            points = PointMotion(ahead, torch.zeros_like(ahead), torch.zeros_like(ahead)[:, None].expand(-1, 3, -1))
        return Expected(self.base_pose(now), step, change, points)

    def groups(self) -> dict[str, int]:
        return {
            "distance ahead": self.view.points,
            "joint limits ahead": 2 * len(self.view.limited),
            PRIOR: self.robot.nv,
        }

    def features(self, now: Motion, view: View, element: Tensor | None, expected: Expected) -> list[Tensor]:
        parts = []
        if self.robot.ground is not None:
            parts.append(predicted_distance_features(view.distance, view.normal_speed, self.dt))
        parts.append(predicted_distance_features(*self.view.limit_motion(view), self.dt))
        change = expected.change
        beyond = torch.cat([change[:, :3] - self.free_fall(now), change[:, 3:]], 1)
        return [*parts, self.view.canonical.motion(beyond, element)]

    def output_gate(self, inputs: Tensor, groups: dict[str, slice], scale: Normaliser) -> Tensor:
        """[..., 1]: 1 when something happens, near 0 where the prior is free fall."""
        at = groups[PRIOR]
        beyond = inputs[..., at] + scale.input_mean[at] / scale.input_std[at]
        return (STILL + BUSY * beyond.square().mean(-1, keepdim=True)).clamp(max=1.0).sqrt()

    def record(self, buffers: StepBuffers) -> list[wp.Launch]:
        return self.frozen_pose.record(
            buffers.slices, buffers.state_arrays(), [wp.from_torch(getattr(buffers, name)) for name in self.writes]
        )

    def expected_after(self, buffers: StepBuffers, now: Motion) -> tuple[Tensor, Tensor]:
        return buffers.step, buffers.change


def read_pairing(robot: RobotModel, inertia_of: list[int] | None) -> Tensor | None:
    """Whose inertia stands for each link's in the mass matrix, if links are swapped in pairs and the base is not."""
    if inertia_of is None:
        return None
    count = robot.nj + 1
    valid = len(inertia_of) == count and all(type(l) is int and 0 <= l < count for l in inertia_of)
    if not valid or inertia_of[0] or any(inertia_of[l] != own for own, l in enumerate(inertia_of)):
        raise ValueError(f"inertia_of = {inertia_of!r}; valid: pairs of links 1 to {count - 1}, swapped")
    return torch.tensor(inertia_of)
