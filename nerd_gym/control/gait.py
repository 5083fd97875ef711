"""When each foot of a trotting robot stands, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

FEET = ("LF_foot", "RF_foot", "LH_foot", "RH_foot")
SIDES = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))  # of the feet along x and y


@dataclass(frozen=True)
class TrotConfig:
    """Gait, posture and gains."""

    settle: float = 0.4  # s on all feet before the trot
    period: float = 0.4  # s
    duty: float = 0.55  # part of the period that a foot stands; above a half
    offsets: tuple[float, ...] = (0.0, 0.5, 0.5, 0.0)  # of the feet's phases
    height: float = 0.58  # m, of the base
    foot_x: float = 0.36  # m, a foothold at rest from the base's origin
    foot_y: float = 0.25
    foot_radius: float = 0.03  # m, how high the centre of a standing foot is
    lift: float = 0.06  # m
    placement: float = 0.1  # s: m of foothold per m/s that the robot is too fast
    reach: float = 0.25  # m, the furthest foothold from the one at rest
    stiffness: float = 85.0  # N m/rad, of a leg in the air
    damping: float = 3.0  # N m s/rad
    inertia: tuple[float, ...] = (0.2, 0.2, 0.08)  # kg m^2 that HAA, HFE and KFE move in the air, roughly
    singularity: float = 0.05  # m, damping of the Jacobian's inverse

    def footholds(self, device: torch.device | str = "cpu") -> Tensor:
        """[4, 2] at rest, from the base's origin."""
        return torch.tensor(SIDES, device=device) * torch.tensor([self.foot_x, self.foot_y], device=device)


class Gait(NamedTuple):
    """Where the feet are in their cycles, [..., 4] each."""

    phase: Tensor  # from 0 to 1; below the duty a foot stands
    stance: Tensor  # bool
    left: Tensor  # s until the foot lifts off or touches down


def gait(config: TrotConfig, time: Tensor) -> Gait:
    """[...]: seconds since the trot began, negative before, when all feet stand."""
    since = time[..., None].clamp(min=0)
    phase = (since / config.period + since.new_tensor(config.offsets)).remainder(1.0)
    stands = phase < config.duty
    left = config.period * (torch.where(stands, config.duty, 1.0) - phase)
    return Gait(phase, stands | (time[..., None] < 0), left + (since - time[..., None]))
