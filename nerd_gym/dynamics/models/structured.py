"""`structured`: kinematics from the MJCF, everything else of the motion learned; for robots with a fixed base.

Inertial parameters, armature and damping come from data by identification (identify.py). Where the robot has a ground,
a network gives the force of a contact; where the teacher knows forces that nobody described, another gives them
(laws.py). The whole runs in the same fused kernel as the analytical backend.
"""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.physics.warp.launch import Launcher
from nerd_gym.physics.warp.tree import Networks, make_physics, make_tree
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion
from nerd_gym.utils.files import under
from nerd_gym.utils.warp import init_warp

from .base import DynamicsModel, History
from .force_networks import ContactLaw, TorqueLaw
from .inertias import Inertias


class StructuredModel(DynamicsModel):
    """Learned parameters and networks in the fused kernel."""

    kind = "structured"

    def _open(self, tensors: dict[str, Tensor]) -> None:
        robot, facts = self.robot, self.facts
        init_warp()
        device = wp.device_from_torch(self.device)
        self.inertias = Inertias(robot, tensors["parameters"])
        self.contact_law, self.torque_law = laws_from(robot, tensors)
        self.substeps = facts["substeps"]
        links = self.inertias.links()
        networks, widths = Networks(), []
        for name, law in (("contact", self.contact_law), ("torque", self.torque_law)):
            widths.append(0 if law is None else law.first.out_features)
            if law is not None:
                packed = law.packed().float().numpy()
                setattr(networks, name, wp.array(packed, dtype=wp.float32, device=device))
        contacts = len(robot.candidates.radius) if self.contact_law is not None else 0
        self._kernel = frame_kernel(len(links["parent"]), robot.nv, contacts, robot.free_base, *widths)
        self._constants = [make_tree(links, robot, device), make_physics(robot, facts["substeps"]), networks]
        self._batch: tuple[Tensor, ...] | None = None
        self._launcher: Launcher | None = None

    def predict(self, state: Motion, joint_force: Tensor, contacts: Contacts, history: History | None = None) -> Motion:
        given = (*state, contacts.ground_point, contacts.ground_normal)
        if self._batch is None or len(self._batch[0]) != len(state.q):
            self.close()
            with torch.inference_mode(False):  # or nobody could write to them outside that mode later
                self._batch = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in given)
                self._launcher = Launcher(self._kernel, self._constants, self.robot.nj, *self._batch, self.threads)
        for mine, theirs in zip(self._batch, given, strict=True):
            mine.copy_(theirs)
        self._launcher(joint_force)
        return Motion(self._batch[0].clone(), self._batch[1].clone())

    def close(self) -> None:
        if self._launcher is not None:
            self._launcher.close()


def laws_from(robot: RobotModel, tensors: dict[str, Tensor]) -> tuple[ContactLaw | None, TorqueLaw | None]:
    """The networks among a model's tensors."""
    laws: list[Any] = []
    for name, make in (("contact", lambda width: ContactLaw(width)), ("torque", lambda width: TorqueLaw(robot, width))):
        own = under(tensors, f"{name}.")
        law = make(own["first.weight"].shape[0]).to(own["first.weight"].dtype) if own else None
        if law is not None:
            law.load_state_dict(own)
            law.requires_grad_(False)
        laws.append(law)
    return laws[0], laws[1]
