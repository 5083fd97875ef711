"""The few-poses computation of a frame as a prior: inertias and contact gains come from data."""

from __future__ import annotations

import torch
import warp as wp
from torch import Tensor

from nerd_gym.physics.warp.frozen_pose import frozen_pose_kernel, make_dof_paths, shape_of
from nerd_gym.physics.warp.launch import WIDEST, Slices
from nerd_gym.physics.warp.tree import make_params, make_tree
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion
from nerd_gym.utils.warp import init_warp

from .inertias import Inertias

POSE_UPDATES = 2  # per frame; the substeps between two updates are taken at a frozen pose


class FrozenPosePrior:
    """The prior of a robot: parameters [P] as identification gives them, gains [4] of its contacts (ke, kd, kf, mu).

    ``pose_updates`` is how often the pose is updated in a frame, ``width`` the number of robots that a thread computes
    (default: the device's).
    """

    def __init__(
        self,
        robot: RobotModel,
        parameters: Tensor,
        gains: Tensor,
        device: torch.device | str = "cpu",
        threads: int | None = None,
        pose_updates: int = POSE_UPDATES,
        width: int | None = None,
    ):
        init_warp()
        self.robot, self.device, self.threads = robot, torch.device(device), threads
        on = wp.device_from_torch(self.device)
        tree = make_tree(Inertias(robot, parameters.double().cpu()).links(), robot, on)
        shape = shape_of(tree)
        self._physics = make_params(robot, robot.substeps)
        self._width = width or (WIDEST if self.device.type == "cpu" else 1)
        self._kernel = frozen_pose_kernel(shape, self._width)
        self._constants = [tree, self._physics, make_dof_paths(shape, on), pose_updates]
        self.set_gains(*map(float, gains))

    def set_gains(self, ke: float, kd: float, kf: float, mu: float) -> None:
        """Of contacts, for launches to come."""
        self._physics.ke, self._physics.kd, self._physics.kf, self._physics.mu = ke, kd, kf, mu

    def record(self, slices: Slices, state: list[wp.array], out: list[wp.array]) -> list[wp.Launch]:
        """Launches over arrays that stay: q, qd, force, ground point and normal; what :meth:`__call__` gives."""
        return slices.record(self._kernel, [*state, *self._constants, *out], self._width)

    def __call__(self, now: Motion, force: Tensor, ground: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Step and change of velocity [N, nv] of a frame, in the base's axes at its start; distances ahead [N, C]."""
        with torch.inference_mode(False):
            given = [x.detach().clone(memory_format=torch.contiguous_format) for x in (*now, force, *ground)]
            sizes = self.robot.nv, self.robot.nv, len(self.robot.candidates.radius)
            out = [given[0].new_zeros(len(force), size) for size in sizes]
            slices = Slices(len(force), self.device, self.threads)
            state = [*map(wp.from_torch, given[:3]), *(wp.from_torch(x, dtype=wp.vec3) for x in given[3:])]
            slices.run(self.record(slices, state, [*map(wp.from_torch, out)]))
            slices.close()
        step, change, ahead = out
        return step, change, ahead
