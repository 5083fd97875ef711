"""Where a robot's candidate points stand over its ground."""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from functools import cached_property

import numpy as np
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


def distinct_candidates(robot: RobotModel) -> np.ndarray:
    """Indices of candidates, without those that always coincide with another as large or larger.

    A limb's end at a joint belongs to two links and is listed for both; a network needs to see it once.
    """
    count = len(robot.candidates.body)
    if not count:
        return np.zeros(0, int)
    places = candidate_places(robot, random_joints(robot, 4, seed=0))  # [4, C, 3]
    order = sorted(range(count), key=lambda c: (-robot.candidates.radius[c], c))
    kept: list[int] = []
    for c in order:
        if all(np.abs(places[:, c] - places[:, k]).max() > 1e-6 for k in kept):
            kept.append(c)
    return np.array(sorted(kept))


def random_joints(robot: RobotModel, count: int, seed: int) -> np.ndarray:
    """[count, nq] states with the base where the MJCF has it and the joints anywhere."""
    q = np.tile(robot.mj_model.qpos0, (count, 1))
    q[:, robot.joint_q] = np.random.default_rng(seed).uniform(-2.0, 2.0, (count, robot.nj))
    return q


def candidate_places(robot: RobotModel, q: np.ndarray) -> np.ndarray:
    """World positions [N, C, 3] of all candidates' centres, in double precision."""
    kinematics = Kinematics(robot, dtype=torch.float64)
    points = kinematics.fixed_points(robot.candidates.body, robot.candidates.position)
    return kinematics.points(kinematics.poses(torch.as_tensor(q)), points).numpy()


def ground_of_model(robot: RobotModel) -> tuple[np.ndarray, np.ndarray]:
    """Point and normal of the ground plane as the MJCF has it."""
    import mujoco

    data = mujoco.MjData(robot.mj_model)
    mujoco.mj_kinematics(robot.mj_model, data)
    return data.geom_xpos[robot.ground].copy(), data.geom_xmat[robot.ground].reshape(3, 3)[:, 2].copy()
