"""The forces of a law of contact on a batch of robots, substep by substep, by the kernels of physics/warp."""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from nerd_gym.physics.warp.constraint_forces import constraint_force_kernel
from nerd_gym.physics.warp.constraint_params import ConstraintLaw, make_constraint_params, set_constraint_law
from nerd_gym.physics.warp.launch import WIDEST, Slices
from nerd_gym.physics.warp.local_forces import local_force_kernel
from nerd_gym.physics.warp.tree import Networks, make_params, make_tree, shape_of
from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.warp import init_warp

from .contact_model import CONSTRAINT, NATIVE, PENALTY, ContactModel

CPU = torch.device("cpu")


class ContactForces:
    """Fill in ``q``, ``qd`` and, for constraints, ``joint_force``; call; read ``force`` [N, nv].

    ``point`` and ``normal`` [N, 3] are the ground's; ``reached`` [N] grows to how far out contacts were, where the data
    of the law end at 1. Everything is on the CPU, where MuJoCo is.
    """

    def __init__(self, robot: RobotModel, model: ContactModel, rows: int, substeps: int, threads: int | None = None):
        init_warp()
        cpu = wp.device_from_torch(CPU)
        links = read_links(robot)
        shape = shape_of(robot, links)
        self.law, self._physics = model.law, make_params(robot, substeps)

        def zeros(*size: int) -> Tensor:
            return torch.zeros(rows, *size)

        self.q, self.qd, self.joint_force = zeros(robot.nq), zeros(robot.nv), zeros(robot.nj)
        self.point, self.normal = zeros(3), zeros(3)
        self.force, self.reached = zeros(robot.nv), zeros()
        # What constraints keep: forces of pyramid edges and of limits.
        self.pressed, self.stopped = zeros(4 * shape.contacts), zeros(len(shape.parents))
        tree, span = make_tree(links, robot, cpu), wp.vec2(*model.span)
        state = [*map(wp.from_torch, (self.q, self.qd))]
        ground = [wp.from_torch(x, dtype=wp.vec3) for x in (self.point, self.normal)]
        out = [wp.from_torch(self.force), wp.from_torch(self.reached)]
        if self.law == CONSTRAINT:
            self._constraints = make_constraint_params(robot, links, cpu)
            kernel = constraint_force_kernel(shape, WIDEST)
            kept = [*map(wp.from_torch, (self.pressed, self.stopped))]
            joints = [wp.from_torch(self.joint_force)]
            self._inputs = [*state, *joints, *ground, tree, self._physics, self._constraints, span, *kept, *out]
        else:
            networks, width = Networks(), 0
            if model.network is not None:
                packed = model.network.packed().float().numpy()
                networks.contact, width = wp.array(packed, dtype=wp.vec4, device=cpu), len(model.network.first.bias)
            kernel = local_force_kernel(shape, WIDEST, width, limits=model.limits != NATIVE)
            self._inputs = [*state, *ground, tree, self._physics, networks, span, *out]
        self._kernel, self._slices = kernel, Slices(rows, CPU, threads)
        self.set_gains(*model.gains)

    def set_gains(self, *gains: float) -> None:
        """Of the law, for substeps to come."""
        if self.law == CONSTRAINT:
            set_constraint_law(self._constraints, ConstraintLaw(*gains))
        elif self.law == PENALTY:
            self._physics.ke, self._physics.kd, self._physics.kf, self._physics.mu = gains
        self._launches = self._slices.record(self._kernel, self._inputs, WIDEST)

    def __call__(self) -> None:
        """``force`` at the state."""
        self._slices.run(self._launches)

    def settle(self, q: Tensor, qd: Tensor, joint_force: Tensor, times: int) -> None:
        """Solve constraints again and again at a state, so that their forces start from where they will end."""
        self.q.copy_(q)
        self.qd.copy_(qd)
        self.joint_force.copy_(joint_force)
        for _ in range(times if self.law == CONSTRAINT else 0):
            self()

    def forget(self, mask: Tensor) -> None:
        """Rows [N] bool start anew: constraints keep nothing of them."""
        for kept in (self.pressed, self.stopped):
            kept.masked_fill_(mask[:, None], 0.0)

    def snapshot(self) -> dict[str, Tensor]:
        """What is kept from substep to substep."""
        return {name: getattr(self, name).clone() for name in ("pressed", "stopped")}

    def restore(self, snapshot: dict[str, Tensor], rows: Any = slice(None)) -> None:
        """Put it back, of all rows or of these."""
        for name, value in snapshot.items():
            getattr(self, name)[rows] = value[rows]

    def close(self) -> None:
        """Give back the threads."""
        self._slices.close()
