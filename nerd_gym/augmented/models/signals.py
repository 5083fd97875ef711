"""What networks read: signals of a moment in the torch engine, group by group, computed when asked for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nerd_gym.physics.torch.engine import Moment
from nerd_gym.physics.torch.impulse import Impulses

from .names import Catalogue


class Signals:
    """Of one moment."""

    def __init__(self, moment: Moment):
        self._moment = moment
        self._groups: dict[str, Tensor] = {}

    def __call__(self, catalogue: Catalogue, names: Sequence[str]) -> Tensor:
        """[B, n]."""
        columns = []
        for name in names:
            group, column = catalogue.signals[name]
            columns.append(self.group(group)[:, column])
        return torch.stack(columns, -1)

    def group(self, name: str) -> Tensor:
        """[B, size of the group]."""
        if name not in self._groups:
            found = self._find(name)
            self._groups |= found
        return self._groups[name]

    def _find(self, name: str) -> dict[str, Tensor]:
        now = self._moment
        robot = now.engine.robot
        if name in ("q", "qd", "command"):
            return {"q": now.q[:, robot.joint_q], "qd": now.qd[:, robot.joint_qd], "command": now.force}
        if name == "time":
            if now.time is None:
                raise ValueError("a wire reads the time, and none was given")
            return {"time": now.time[:, None]}
        if name in ("velocity", "position", "up"):
            return self._links()
        points = now.points
        if points is None:
            raise ValueError(f"a wire reads {name!r} of contacts, and there is no ground")
        if name in ("depth", "along", "slip"):
            return {"depth": points.depth.clamp(min=0.0), "along": points.along, "slip": points.slip}
        if now.contact_law is None or isinstance(now.contact_law, Impulses):
            raise ValueError(f"a wire reads {name!r}, which contacts as impulses do not have before they are solved")
        depth, along, slip = (self.group(key) for key in ("depth", "along", "slip"))
        push, drag = now.contact_law(depth, along, slip)
        inside = points.depth > 0
        return {"push": torch.where(inside, push, 0.0), "drag": torch.where(inside, drag * slip, 0.0)}

    def _links(self) -> dict[str, Tensor]:
        """Velocities and places of the links' centres of mass; those of a free base are from the world's origin."""
        now = self._moment
        rotation, position = now.pose.rotation, now.pose.position
        com = position + (rotation @ now.engine.parameters.com[..., None])[..., 0]
        omega, linear = now.engine.motion(now.pose, now.qd).velocity.split(3, -1)
        at = linear + torch.linalg.cross(omega, com)
        local = [(rotation.mT @ x[..., None])[..., 0] for x in (at, omega)]
        if now.engine.first:
            com = com + now.q[:, None, :3]
        groups = {"velocity": torch.cat(local, -1), "position": com, "up": rotation[..., 2, :]}
        return {key: value.flatten(1) for key, value in groups.items()}
