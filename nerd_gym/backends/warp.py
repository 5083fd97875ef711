"""`warp`: a fused Featherstone kernel moves the robot.

Contacts are penalty forces of the candidate points against one plane per environment.
"""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from nerd_gym.physics.warp.distance import DistanceFinder
from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.physics.warp.launch import Launcher, lanes_on
from nerd_gym.physics.warp.tree import Networks, PhysicsParams, make_params, make_tree, shape_of
from nerd_gym.robots.links import published_inertia_pairing, read_links
from nerd_gym.robots.model import FRICTION_LAWS, RobotModel
from nerd_gym.utils.threads import at_least_one
from nerd_gym.utils.warp import init_warp

from .base import Backend


class WarpBackend(Backend):
    """Featherstone on Warp, float32, semi-implicit Euler."""

    name = "warp"
    options = {
        "friction": "friction law, coulomb or huber (default: the robot's)",
        "reference": "True: the published simulator with its mistakes, to reproduce published figures",
        "substeps": "physics steps in a frame (default: the robot's)",
        "threads": "CPU threads (default: all)",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        friction: str | None = None,
        reference: bool = False,
        substeps: int | None = None,
        threads: int | None = None,
    ):
        super().__init__(robot, num_envs, device)
        law = robot.friction_law if friction is None else friction
        if law not in FRICTION_LAWS:
            raise ValueError(f"unknown friction {law!r}; valid: {', '.join(FRICTION_LAWS)}")
        self.reference = reference
        self.substeps = at_least_one("substeps", substeps, robot.substeps)
        init_warp()
        links = read_links(robot)
        if reference:
            links["inertia_of"] = published_inertia_pairing(robot, links)
        self._width = lanes_on(self.device)
        self._kernel = frame_kernel(shape_of(robot, links), self._width, published=reference)
        self._tree = make_tree(links, robot, wp.device_from_torch(self.device))
        self._threads = threads
        self.params = make_params(robot, self.substeps, law)
        self._launcher = self._make_launcher()
        self._finder: list[wp.Launch] | None = None  # of distances; made when they are first asked for
        self._distance = torch.zeros(num_envs, len(robot.candidates.radius), device=self.device)

    def _make_launcher(self) -> Launcher:
        arrays = (self.q, self.qd, self.ground_point, self.ground_normal)
        constants = [self._tree, self.params, self._kernel_networks()]
        return Launcher(self._kernel, self._width, constants, self.robot.nj, *arrays, self._threads)

    def _kernel_networks(self) -> Any:
        """None, here."""
        return Networks()

    def change_params(self, **values: Any) -> None:
        """Set fields of ``params`` (gravity, contact gains, ...) for the steps to come."""
        for name, value in values.items():
            if name not in PhysicsParams.vars:
                raise ValueError(f"unknown parameter {name!r}; valid: {', '.join(PhysicsParams.vars)}")
            setattr(self.params, name, value)
        self._launcher.close()
        self._launcher = self._make_launcher()  # a recorded launch keeps the values that it was recorded with

    def _advance(self, joint_force: Tensor) -> None:
        self._launcher(joint_force)

    def _distances(self) -> Tensor | None:
        if not self.robot.candidates.names:
            return None
        if self._finder is None:
            finder = DistanceFinder(self.robot, self.device)
            state = self.q, self.ground_point, self.ground_normal
            self._finder = finder.record(self._launcher.slices, *state, self._distance)
        self._launcher.slices.run(self._finder)
        return self._distance.clone()

    def close(self) -> None:
        self._launcher.close()
