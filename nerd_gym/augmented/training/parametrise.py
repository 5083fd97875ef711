"""Parameters of an engine as an optimiser sees them: free numbers about 0, which keep the values physical.

What must not be negative is the start's value times an exponential (or, where the start is 0, a multiple of a size that
is usual for this robot, cut at 0). Inertias stay positive definite, rotations and axes stay such. Everything else is a
displacement.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from nerd_gym.augmented.models.model import AugmentedModel
from nerd_gym.physics.torch.spatial import skew

POSITIVE = (
    "mass",
    "armature",
    "damping",
    "dry_friction",
    "stiffness",
    "limit_gains",
    "contact_gains",
    "radius",
    "contact_values",
)
FIXED = ("lower", "upper")  # infinite where a joint has no limit
Map = Callable[[Tensor, Tensor, Tensor], Tensor]  # start, its usual size, free numbers -> value


def _positive(start: Tensor, usual: Tensor, free: Tensor) -> Tensor:
    return torch.where(start > 0, start * torch.exp(free), (usual * free).clamp(min=0.0))


def _displaced(start: Tensor, usual: Tensor, free: Tensor) -> Tensor:
    return start + usual * free


def _inertia(start: Tensor, usual: Tensor, free: Tensor) -> Tensor:
    stretch = torch.linalg.matrix_exp(0.25 * (free + free.mT))
    return stretch @ start @ stretch.mT


def _turned(start: Tensor, usual: Tensor, free: Tensor) -> Tensor:
    return start @ torch.linalg.matrix_exp(free - free.mT)


def _turned_axis(start: Tensor, usual: Tensor, free: Tensor) -> Tensor:
    return (torch.linalg.matrix_exp(skew(free)) @ start[..., None])[..., 0]


MAPS: dict[str, Map] = {"inertia": _inertia, "rotation": _turned, "axis": _turned_axis}
MAPS |= dict.fromkeys(POSITIVE, _positive)


class FreeNumbers(nn.Module):
    """The map of one parameter; `mask` [like it] says which of its numbers are free."""

    start: Tensor
    usual: Tensor
    mask: Tensor

    def __init__(self, name: str, start: Tensor, usual: Tensor, mask: Tensor | None = None):
        super().__init__()
        self._map = MAPS.get(name, _displaced)
        self.register_buffer("start", start.clone())
        self.register_buffer("usual", usual.to(start).expand_as(start).clone())
        mask = torch.ones_like(start) if mask is None else mask.to(start)
        self.register_buffer("mask", mask)

    def forward(self, free: Tensor) -> Tensor:
        return self._map(self.start, self.usual, free * self.mask)

    def right_inverse(self, value: Tensor) -> Tensor:
        """The free numbers of the start, which is all that is asked for."""
        return torch.zeros_like(value)


USUAL = {"com": 0.02, "offset": 0.05, "candidate": 0.005, "gravity": 0.2, "rest": 0.1, "contact_values": 0.1}  # SI
# Of a joint's own inertia: per s, per s^2 and per s^2.
OF_INERTIA = {"damping": 0.5, "dry_friction": 0.5, "stiffness": 10.0, "armature": 0.1}


def usual_size(model: AugmentedModel, name: str) -> Tensor:
    """How large a change of a parameter is that matters but does not alter everything."""
    if name not in OF_INERTIA:
        return torch.tensor(USUAL.get(name, 0.1))
    with torch.no_grad():
        engine = model.engine()
        pose = engine.pose(torch.as_tensor(model.robot.mj_model.qpos0.copy())[None])
        H = engine.mass_matrix(pose, engine.inertias(pose))[0] + engine.armature()
    return OF_INERTIA[name] * H.diagonal()[model.robot.joint_qd]


def free_parameters(model: AugmentedModel, masks: dict[str, Tensor] | None = None) -> None:
    """Replace the trainable values of a model by free numbers, until :func:`fixed_parameters`."""
    masks = masks or {}
    sizes = {name: usual_size(model, name) for name in model.values}
    for name in [name for name in model.values if model.values[name].requires_grad]:
        own = FreeNumbers(name, model.values[name], sizes[name], masks.get(name))
        parametrize.register_parametrization(model.values, name, own)
    if model.contact_values is not None:
        own = FreeNumbers(
            "contact_values", model.contact_values, usual_size(model, "contact_values"), masks.get("contact_values")
        )
        parametrize.register_parametrization(model, "contact_values", own)


def fixed_parameters(model: AugmentedModel) -> None:
    """Back to plain values."""
    for module in (model.values, model):
        if parametrize.is_parametrized(module):
            for name in list(module.parametrizations):  # pyright: ignore[reportArgumentType]
                parametrize.remove_parametrizations(module, name)
