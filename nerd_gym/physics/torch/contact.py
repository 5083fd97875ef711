"""Laws of contact in torch, as functions of one point's depth, velocity along the normal and slip."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Depth, velocity along the normal and slip -> push along the normal and drag, the friction per slip; [B, C] each.
ContactLaw = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


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
