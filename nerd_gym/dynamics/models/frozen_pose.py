"""The few-poses computation of a frame: inertias and the contact law come from data."""

from __future__ import annotations

import torch
import warp as wp
from torch import Tensor

from nerd_gym.physics.warp.constraint_params import (
    ConstraintLaw,
    make_constraint_params,
    no_constraint_params,
    set_constraint_law,
)
from nerd_gym.physics.warp.frozen_pose import frozen_pose_kernel
from nerd_gym.physics.warp.launch import WIDEST, Slices
from nerd_gym.physics.warp.tree import make_params, make_tree, shape_of
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion
from nerd_gym.utils.warp import init_warp

from .inertias import Inertias

POSE_UPDATES = 2  # per frame; the substeps between two updates are taken at a frozen pose
PENALTY, CONSTRAINT = "penalty", "constraint"
LAW_TENSORS = {PENALTY: "prior.gains", CONSTRAINT: "prior.constraint"}  # in a model's file
LAW_SIZES = {PENALTY: 4, CONSTRAINT: len(ConstraintLaw._fields)}  # numbers that a contact law has


class FrozenPose:
    """A robot at few poses per frame: parameters [P] as identification gives them, and the gains of its contact law.

    Four gains are those of the penalty law (ke, kd, kf, mu), seven those of MuJoCo's constraints
    (:class:`ConstraintLaw`), which are the joint limits' law too. ``pose_updates`` is how often the pose is updated in
    a frame, ``width`` the number of robots that a thread computes (default: the device's). ``inertia_of`` [L] says
    whose inertia stands for each link's in the mass matrix, if not its own.
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
        inertia_of: Tensor | None = None,
    ):
        init_warp()
        self.robot, self.device, self.threads = robot, torch.device(device), threads
        self.contact_law = next(name for name, size in LAW_SIZES.items() if size == len(gains))
        constraint = self.contact_law == CONSTRAINT
        on = wp.device_from_torch(self.device)
        links = Inertias(robot, parameters.double().cpu(), inertia_of=inertia_of).links()
        tree = make_tree(links, robot, on)
        self._physics = make_params(robot, robot.substeps)
        self._constraints = make_constraint_params(robot, links, on) if constraint else no_constraint_params(on)
        self._width = width or (WIDEST if self.device.type == "cpu" else 1)
        paired = inertia_of is not None
        self._kernel = frozen_pose_kernel(shape_of(robot, links), self._width, constraint, paired)
        self._constants = [tree, self._physics, self._constraints, pose_updates]
        self.set_gains(*map(float, gains))

    def set_gains(self, *gains: float) -> None:
        """Of contacts, for launches to come."""
        if self.contact_law == CONSTRAINT:
            set_constraint_law(self._constraints, ConstraintLaw(*gains))
        else:
            self._physics.ke, self._physics.kd, self._physics.kf, self._physics.mu = gains

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
