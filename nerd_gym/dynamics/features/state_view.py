"""A robot's state as a network sees it: from the robot's own frame, in the canonical one of its symmetric views."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nerd_gym.robots.contacts import distinct_candidates
from nerd_gym.robots.features import SLIDE
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion

from .canonical import Canonical, View
from .contacts import PointMotion
from .robot_centric import RobotCentric, RobotPose

JOINTS, OUTSIDE = "joints", "gravity, ground, angular velocity"  # groups of inputs


class StateView:
    """What of a state a network is shown, whatever it is told of contacts and joint limits besides.

    World position and yaw are not shown: they matter only through gravity, contacts and limits.
    """

    def __init__(self, robot: RobotModel, kinematics: Kinematics, robot_centric: RobotCentric, device: torch.device):
        self.robot, self.kinematics, self.robot_centric, self.device = robot, kinematics, robot_centric, device
        m = robot.mj_model
        self.gravity = bool(np.any(m.opt.gravity))
        self.fall = robot.frame_dt * float(np.linalg.norm(m.opt.gravity))  # m/s in a frame
        self.distinct = distinct_candidates(robot)
        unlimited = robot_centric.unlimited.cpu().numpy()
        position, rate = np.ones(robot.nj, bool), np.ones(robot.nj, bool)
        if self._first_joint_is_seen_from_outside():
            dof = m.jnt_dofadr[0]
            position[0] = False
            rate[0] = m.jnt_type[0] != SLIDE or m.dof_damping[dof] != 0
        shown = np.stack([position, position & unlimited, rate, np.ones(robot.nj, bool)])  # the rows of View.joints
        self.canonical = Canonical(robot, int(self.gravity) + int(robot.ground is not None), shown, device)

        def tensor(x) -> Tensor:
            return torch.as_tensor(x, device=device)

        self.shown = tensor(np.flatnonzero(shown))  # entries of View.joints
        limited = np.isfinite(robot.joint_range).all(1)
        self.limited = tensor(np.flatnonzero(limited))
        self.limits = tensor(robot.joint_range[limited].T.astype(np.float32))  # [2, limited]

    def _first_joint_is_seen_from_outside(self) -> bool:
        """Whether gravity and contacts in the first link's frame tell all that the first joint's position means."""
        m = self.robot.mj_model
        roots = [j for j in range(m.njnt) if m.body_weldid[m.body_parentid[m.jnt_bodyid[j]]] == 0]
        return not self.robot.free_base and roots == [0] and m.jnt_stiffness[0] == 0

    @property
    def points(self) -> int:
        """How many contact candidates a network is told of."""
        return len(self.distinct) if self.robot.ground is not None else 0

    def groups(self) -> dict[str, int]:
        """How many inputs :meth:`features` gives, by what they tell."""
        vectors = int(self.gravity) + int(self.robot.ground is not None) + int(self.robot.free_base)
        return {JOINTS: len(self.shown), OUTSIDE: 3 * vectors}

    def __call__(
        self, frame: RobotPose, now: Motion, force: Tensor, normal: Tensor, points: PointMotion | None
    ) -> tuple[View, Tensor | None]:
        """The canonical views of states, and the elements [N] that lead to them; normal [N, 3] is the ground's."""
        robot, frames = self.robot, self.robot_centric
        q = now.q[:, robot.joint_q]
        sine = torch.where(frames.unlimited, torch.sin(q), q)
        cosine = torch.where(frames.unlimited, torch.cos(q), 0.0)
        joints = torch.stack([sine, cosine, now.qd[:, robot.joint_qd], force], 1)
        vectors = [frames.gravity_in(frame)] if self.gravity else []
        none = q[:, :0]
        if robot.ground is not None:
            vectors.append(frame.vector(normal))
        omega = now.qd[:, None, 3:6] if robot.free_base else q.new_zeros(len(q), 0, 3)
        directions = torch.stack(vectors, 1) if vectors else q.new_zeros(len(q), 0, 3)
        return self.canonical(
            View(joints, directions, omega, *(points or (none, none, none[:, None].expand(-1, 3, -1))))
        )

    def features(self, view: View) -> list[Tensor]:
        """Parts [N, ...] of a network's inputs, of canonical views."""
        return [view.joints.flatten(1)[:, self.shown], view.vectors.flatten(1), view.omega.flatten(1)]

    def limit_motion(self, view: View) -> tuple[Tensor, Tensor]:
        """How far joints are from their lower and upper limits [N, 2 L], and how fast that changes."""
        q, rate = (view.joints[:, row, self.limited] for row in (0, 2))
        return torch.cat([q - self.limits[0], self.limits[1] - q], 1), torch.cat([rate, -rate], 1)
