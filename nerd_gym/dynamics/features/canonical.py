"""A canonical choice among the equivalent views of a symmetric robot's state.

A network that only ever sees the canonical view of a state treats all equivalent states alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.symmetry import Element, candidate_permutation, frame_matrix, group


class View(NamedTuple):
    """A state as visible from the robot's frame, with K directions of the world and C candidates."""

    joints: Tensor  # [N, 4, nj]: position (sine if it is an unlimited angle), its cosine or 0, rate, force
    vectors: Tensor  # [N, K, 3]: directions such as gravity
    omega: Tensor  # [N, S, 3] angular velocity of a free base (S is 1), a pseudovector
    distance: Tensor  # [N, C]
    normal_speed: Tensor  # [N, C]
    slip: Tensor  # [N, 3, C]


class Canonical:
    """Chooses for each state the equivalent view that maximises a fixed linear functional.

    shown [4, nj] tells what of the joints a network sees: the rest must not sway the choice unless all else is equal.
    """

    def __init__(self, robot: RobotModel, vectors: int, shown: np.ndarray, device: torch.device | str = "cpu"):
        elements = group(robot)
        self.size = len(elements)
        self.free = robot.free_base
        matrices = [frame_matrix(robot, e) for e in elements]
        flip = [float(np.linalg.det(np.array(e.world))) for e in elements]
        offsets = np.array([e.offset for e in elements])
        angle_sign = np.round(np.cos(offsets), 12)  # sin and cos of an angle plus 0 or pi keep or change their sign
        sign = np.array([e.sign for e in elements])

        def tensor(x, dtype=torch.float32) -> Tensor:
            return torch.as_tensor(np.asarray(x), device=device).to(dtype)

        self._permutation = tensor([e.permutation for e in elements], torch.long)
        self._joint_sign = tensor(np.stack([sign * angle_sign, angle_sign, sign, sign], 1))  # [G, 4, nj]
        self._sign = tensor(sign)
        self._vector = tensor([m.T for m in matrices])  # [G, 3, 3], to multiply rows from the right
        self._pseudo = tensor([f * m.T for f, m in zip(flip, matrices, strict=True)])
        self._candidates = tensor([candidate_permutation(robot, e) for e in elements], torch.long)
        self._inverse = tensor([_inverse(elements, e) for e in elements], torch.long)
        self._functional = self._make_functional(robot, vectors, shown)

    def _make_functional(self, robot: RobotModel, vectors: int, shown: np.ndarray) -> Tensor:
        """[X, G]: the functional of all transformed views as functions of the view that is given."""
        omegas = int(self.free)
        # A view per unit vector of what the functional looks at, transformed by every element.
        size = 4 * robot.nj + 3 * (vectors + omegas)
        device = self._sign.device
        unit = torch.eye(size, device=device)
        joints, rest = unit[:, : 4 * robot.nj], unit[:, 4 * robot.nj :]
        vector, omega = rest[:, : 3 * vectors], rest[:, 3 * vectors :]
        none = unit.new_zeros(size, self._candidates.shape[1])
        shapes = (joints.view(size, 4, -1), vector.view(size, -1, 3), omega.view(size, -1, 3))
        view = View(*shapes, none, none, none[:, None].expand(-1, 3, -1))
        weight = torch.cos(1.0 + torch.arange(size, device=device) ** 1.5)  # anything without a pattern
        scale = np.where(shown, 1.0, 1e-6)
        scale[2] *= 0.1
        scale[3] /= np.maximum(robot.force_limit, 1.0)
        weight[: 4 * robot.nj] *= torch.as_tensor(scale.flatten(), dtype=weight.dtype, device=device)
        columns = []
        for g in range(self.size):
            visible = self._transform(view, torch.full((size,), g, device=device))
            columns.append(torch.cat([x.flatten(1) for x in visible[:3]], 1) @ weight)
        return torch.stack(columns, 1)

    def choose(self, view: View) -> Tensor:
        """[N] the element of each row."""
        visible = torch.cat([view.joints.flatten(1), view.vectors.flatten(1), view.omega.flatten(1)], 1)
        return (visible @ self._functional).argmax(1)

    def __call__(self, view: View) -> tuple[View, Tensor | None]:
        """The canonical views, and the elements [N] that lead to them (None if there is only one)."""
        if self.size == 1:
            return view, None
        element = self.choose(view)
        return self._transform(view, element), element

    def _transform(self, view: View, element: Tensor) -> View:
        where = self._permutation[element]
        joints = view.joints.gather(2, where[:, None].expand_as(view.joints)) * self._joint_sign[element]
        vectors = torch.bmm(view.vectors, self._vector[element])
        omega = torch.bmm(view.omega, self._pseudo[element])
        if not self._candidates.shape[1]:
            return view._replace(joints=joints, vectors=vectors, omega=omega)
        at = self._candidates[element]
        slip = torch.bmm(self._vector[element].mT, view.slip.gather(2, at[:, None].expand_as(view.slip)))
        return View(joints, vectors, omega, view.distance.gather(1, at), view.normal_speed.gather(1, at), slip)

    def motion(self, motion: Tensor, element: Tensor | None) -> Tensor:
        """A change of the state in the robot's frame [N, nv], as the canonical view has it."""
        if element is None:
            return motion
        joints = motion[:, 6:] if self.free else motion
        joints = joints.gather(1, self._permutation[element]) * self._sign[element]
        if not self.free:
            return joints
        linear = torch.bmm(motion[:, None, :3], self._vector[element])[:, 0]
        angular = torch.bmm(motion[:, None, 3:6], self._pseudo[element])[:, 0]
        return torch.cat([linear, angular, joints], 1)

    def motion_back(self, motion: Tensor, element: Tensor | None) -> Tensor:
        """The inverse of :meth:`motion`."""
        return motion if element is None else self.motion(motion, self._inverse[element])

    def tables(self) -> dict[str, Tensor]:
        """The group for a kernel: a row per element but in the functional, matrices to multiply columns by."""
        return {
            "functional": self._functional,
            "permutation": self._permutation,
            "joint_sign": self._joint_sign.flatten(1),
            "sign": self._sign,
            "vector": self._vector.mT,
            "pseudo": self._pseudo.mT,
            "candidates": self._candidates,
            "inverse": self._inverse,
        }


def _inverse(elements: tuple[Element, ...], element: Element) -> int:
    return next(k for k, other in enumerate(elements) if other @ element == elements[0])
