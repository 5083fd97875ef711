"""Contact in torch: how points stand and move over planes, and laws of force as functions of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# Depth, velocity along the normal and slip -> push along the normal and drag, the friction per slip; [B, C] each.
ContactLaw = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
AT_REST = 1e-14  # (m/s)^2, so that the slip has a slope where there is none
SHALLOW = 1e-12  # m, so that a power of the depth has a slope where there is none


class ContactPoints(NamedTuple):
    """C points of B robots over planes."""

    depth: Tensor  # [B, C], negative over the ground
    along: Tensor  # [B, C], velocity along the normal
    slide: Tensor  # [B, C, 3], velocity across it
    normal: Tensor  # [B, 1 or C, 3]
    jacobian: Tensor  # [B, C, nv, 3]

    @property
    def slip(self) -> Tensor:
        """[B, C], the speed across the normal."""
        return torch.sqrt(self.slide.square().sum(-1) + AT_REST)

    def force(self, law: ContactLaw) -> Tensor:
        """[B, C, 3] under a law; none where the depth is not positive."""
        push, drag = law(self.depth.clamp(min=0.0), self.along, self.slip)
        force = push[..., None] * self.normal - drag[..., None] * self.slide
        return torch.where((self.depth > 0)[..., None], force, 0.0)


def penalty(gains: Tensor, huber: bool = False) -> ContactLaw:
    """A spring and damper along the normal, viscous friction capped by Coulomb's: ke, kd, kf, mu [4] or [B, 1, 4].

    With `huber` the smoothed slip s^2 / 2 (s - 1/2 above 1 m/s) stands where Coulomb has the slip s.
    """

    def law(depth: Tensor, along: Tensor, slip: Tensor) -> tuple[Tensor, Tensor]:
        ke, kd, kf, mu = gains.unbind(-1)
        push = ke * depth - kd * along.clamp(max=0.0)
        smooth = torch.where(slip <= 1, 0.5 * slip * slip, slip - 0.5) if huber else slip
        return push, torch.minimum(kf.expand_as(push), mu * push / smooth)

    return law


HUNT_CROSSLEY = ("stiffness", "exponent", "damping", "mu_dynamic", "mu_static", "slip_speed")


def hunt_crossley(gains: Tensor) -> ContactLaw:
    """Hunt and Crossley's normal force, Brown and McPhee's regularised Coulomb friction.

    push = stiffness depth^exponent (1 - damping along), never a pull. Friction is push times
    mu_dynamic tanh(4 z) + (mu_static - mu_dynamic) z / (z^2 / 4 + 3 / 4)^2 with z = slip / slip_speed; its greatest
    value is near z = 1. Gains [6] or [B, 1, 6], in the order of HUNT_CROSSLEY.
    """

    def law(depth: Tensor, along: Tensor, slip: Tensor) -> tuple[Tensor, Tensor]:
        stiffness, exponent, damping, dynamic, static, speed = gains.unbind(-1)
        push = stiffness * depth.clamp(min=SHALLOW) ** exponent * (1 - damping * along).clamp(min=0.0)
        z = slip / speed
        friction = dynamic * torch.tanh(4 * z) + (static - dynamic) * z / (0.25 * z * z + 0.75) ** 2
        return push, push * friction / slip

    return law
