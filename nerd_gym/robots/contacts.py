"""Where a robot's candidate points stand over its ground."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from .kinematics import Kinematics
from .model import RobotModel


class Contacts:
    """The candidate points of N robots, C each, over one plane each; computed when first asked for."""

    def __init__(self, finder: ContactFinder, q: Tensor, ground_point: Tensor, ground_normal: Tensor, poses=None):
        self._finder, self._q, self._poses = finder, q, poses
        self.ground_point, self.ground_normal = ground_point, ground_normal  # [N, 3] each

    @cached_property
    def poses(self) -> Tensor:
        """World poses [N, F, 4, 4] of the robot's frames."""
        return self._finder.kinematics.poses(self._q) if self._poses is None else self._poses

    @cached_property
    def centre(self) -> Tensor:
        """[N, C, 3]: of the sphere that the candidate is."""
        return self._finder.kinematics.points(self.poses, self._finder.candidates)

    @cached_property
    def distance(self) -> Tensor:
        """[N, C] of the surface, negative inside the ground. Whoever has found it already may set it."""
        over = (self.centre - self.ground_point[:, None]) * self.ground_normal[:, None]
        return over.sum(-1) - self._finder.radius

    @cached_property
    def point(self) -> Tensor:
        """[N, C, 3] on the robot's surface, where a force would act."""
        return self.centre - self._finder.radius[:, None] * self.ground_normal[:, None]

    @property
    def normal(self) -> Tensor:
        """[N, C, 3] of the ground."""
        return self.ground_normal[:, None].expand_as(self.centre)


class ContactFinder:
    """Finds the contacts of a robot at any state over any plane."""

    def __init__(self, robot: RobotModel, kinematics: Kinematics):
        self.kinematics = kinematics
        self.candidates = kinematics.fixed_points(robot.candidates.body, robot.candidates.position)
        dtype = self.candidates[1].dtype
        self.radius = torch.as_tensor(robot.candidates.radius, dtype=dtype, device=self.candidates[0].device)

    def __call__(self, q: Tensor, ground_point: Tensor, ground_normal: Tensor, poses: Tensor | None = None) -> Contacts:
        """q [N, nq], plane by point and normal [N, 3] each; poses of q if they are known."""
        return Contacts(self, q, ground_point, ground_normal, poses)
