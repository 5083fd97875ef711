"""Identified inertial parameters, and the links that carry them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from nerd_gym.physics.torch.regressor import PER_LINK
from nerd_gym.robots.links import Links, read_links
from nerd_gym.robots.model import RobotModel


@dataclass
class Inertias:
    """Identified parameters of a robot."""

    robot: RobotModel
    parameters: Tensor  # [P]
    rank: int | None = None  # how many combinations of them the data determined
    residual: float | None = None  # rms of the velocity error one frame ahead, over the rms of the velocity change
    inertia_of: Tensor | None = None  # [L], whose inertia stands for a link's in the mass matrix, if not its own

    def links(self) -> Links:
        """In the form of :func:`nerd_gym.robots.links.read_links`, with nothing of the MJCF's own inertias."""
        links = read_links(self.robot)
        n = len(links["parent"])
        p = self.parameters.numpy()
        for l in range(n):
            mass, h, i = np.split(p[PER_LINK * l : PER_LINK * (l + 1)], (1, 4))
            mass = mass[0]
            com = h / mass
            about = np.array([[i[0], i[3], i[4]], [i[3], i[1], i[5]], [i[4], i[5], i[2]]])
            links["mass"][l], links["com"][l] = mass, com
            links["inertia"][l] = about - mass * (com @ com * np.eye(3) - np.outer(com, com))
        if self.inertia_of is not None:
            links["inertia_of"] = self.inertia_of.numpy()
        links["armature"], links["damping"] = np.split(p[PER_LINK * n :], 2)
        return links
