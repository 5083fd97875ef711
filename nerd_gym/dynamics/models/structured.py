"""`structured`: kinematics from the MJCF, everything else of the motion learned; for robots with a fixed base.

Inertial parameters, armature and damping come from data by identification (dynamics/identify). Where the robot has a
ground, a network gives the force of a contact; where the teacher has joint forces that the MJCF does not describe,
another gives them. The whole runs in the same fused kernel as the analytical backend.
"""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from nerd_gym.physics.torch.contact_net import ContactForceNet
from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.physics.warp.launch import Launcher, lanes_on
from nerd_gym.physics.warp.tree import Networks, make_params, make_tree, shape_of
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion
from nerd_gym.utils.files import strip_prefix
from nerd_gym.utils.warp import init_warp

from .base import DynamicsModel, History
from .force_networks import JointForceNet
from .inertias import Inertias


class StructuredModel(DynamicsModel):
    """Learned parameters and networks in the fused kernel."""

    kind = "structured"

    def _open(self, tensors: dict[str, Tensor]) -> None:
        robot, facts = self.robot, self.facts
        init_warp()
        device = wp.device_from_torch(self.device)
        self.inertias = Inertias(robot, tensors["parameters"])
        self.contact_net, self.joint_force_net = force_networks_from(robot, tensors)
        self.substeps = facts["substeps"]
        links = self.inertias.links()
        networks, widths = Networks(), []
        for name, network in (("contact", self.contact_net), ("torque", self.joint_force_net)):
            widths.append(0 if network is None else network.first.out_features)
            if network is not None:
                packed = network.packed().float().numpy()
                setattr(networks, name, wp.array(packed, dtype=wp.vec4, device=device))
        shape = shape_of(robot, links)
        shape = shape if self.contact_net is not None else shape._replace(contacts=0)
        self._lanes = lanes_on(self.device)
        self._kernel = frame_kernel(shape, self._lanes, *widths)
        self._constants = [make_tree(links, robot, device), make_params(robot, facts["substeps"]), networks]
        self._running: tuple[tuple[Tensor, ...], Launcher] | None = None  # state and ground of a batch, and its frame

    def predict(self, state: Motion, joint_force: Tensor, contacts: Contacts, history: History | None = None) -> Motion:
        given = (state.q, state.qd, contacts.ground_point, contacts.ground_normal)
        batch, launcher = self._batch_like(given)
        for mine, theirs in zip(batch, given, strict=True):
            mine.copy_(theirs)
        launcher(joint_force)
        return Motion(batch[0].clone(), batch[1].clone())

    def _batch_like(self, given: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[tuple[Tensor, ...], Launcher]:
        """Tensors of these shapes that stay where they are, and what moves them on by a frame."""
        if self._running is None or len(self._running[0][0]) != len(given[0]):
            self.close()
            with torch.inference_mode(False):  # or nobody could write to them outside that mode later
                q, qd, point, normal = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in given)
                launcher = Launcher(
                    self._kernel, self._lanes, self._constants, self.robot.nj, q, qd, point, normal, self.threads
                )
            self._running = (q, qd, point, normal), launcher
        return self._running

    def close(self) -> None:
        if self._running is not None:
            self._running[1].close()
            self._running = None


def force_networks_from(
    robot: RobotModel, tensors: dict[str, Tensor]
) -> tuple[ContactForceNet | None, JointForceNet | None]:
    """The networks among a model's tensors."""
    networks: list[Any] = []
    for name, make in (
        ("contact", lambda width: ContactForceNet(width)),
        ("torque", lambda width: JointForceNet(robot, width)),
    ):
        own = strip_prefix(tensors, f"{name}.")
        network = make(own["first.weight"].shape[0]).to(own["first.weight"].dtype) if own else None
        if network is not None:
            network.load_state_dict(own)
            network.requires_grad_(False)
        networks.append(network)
    return networks[0], networks[1]
