"""What an impact law is, and the laws of a strike: a network with physical parameters that can be identified.

A law gives the outcome of collisions from what was measured before them and from parameters that nobody measured. The
first outputs are velocities in the impact frame; *relative* ones are divided by a scale, so that slow and fast
collisions weigh alike. Under mirroring, inputs and outputs keep or change their sign (`parity`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nerd_gym.collision.scenes.columns import OUTCOME, STRIKE, ranges

from .surrogate import PARITY, OutcomeNet, outcome_scale


@dataclass(frozen=True)
class Parameter:
    """A number that samples may tell, with what is believed of it before: normal, in its logarithm if `log`."""

    name: str
    low: float
    high: float
    mean: float
    sd: float
    log: bool = False

    def coordinate(self, value: float) -> float:
        return math.log(value) if self.log else value


class ImpactLaw(nn.Module, ABC):
    """Outcomes of collisions by a formula or a network."""

    kind: str
    columns: tuple[str, ...]  # that are measured before a collision
    outcome: tuple[str, ...]
    unknowns: tuple[Parameter, ...]
    sigma: float = 0.04  # relative error that the law is believed to have, noise included
    velocities: int  # how many outputs, from the first, are velocities
    parity: Tensor  # [O]
    input_parity: Tensor  # [D], of `inputs`

    @abstractmethod
    def relative(self, pre: Tensor, values: Tensor) -> Tensor:
        """Strikes [N, C] and parameters [K, P] to outcomes over `scale`, [K, N, O]."""

    @abstractmethod
    def scale(self, pre: Tensor) -> Tensor:
        """[N, O]."""

    @abstractmethod
    def inputs(self, pre: Tensor) -> Tensor:
        """[N, D]: in which a residual is smooth over a distance of about one."""

    @abstractmethod
    def to_frame(self, pre: Tensor, post: Tensor) -> Tensor:
        """Measured outcomes in this law's frame and order, [N, velocities]."""

    @abstractmethod
    def from_frame(self, pre: Tensor, outcome: Tensor) -> Tensor:
        """Outcomes of this law, [N, O], as they are measured."""

    def nominal(self) -> Tensor:
        """[1, P]: the parameters that are believed before any sample."""
        return torch.tensor([[p.mean for p in self.unknowns]])


# Spreads of what is believed before any sample, in units of the parameter (of its logarithm for the last two).
PRIOR = {
    "mu_striker": Parameter("mu_striker", 0.05, 0.8, 0.4, 0.25),
    "mu_table": Parameter("mu_table", 0.1, 0.8, 0.4, 0.25),
    "zeta_striker": Parameter("zeta_striker", 0.1, 1.2, 0.5, 0.35),
    "zeta_table": Parameter("zeta_table", 0.3, 1.5, 0.9, 0.4),
    "time_constant": Parameter("time_constant", 0.002, 0.012, 0.004, 0.5, log=True),
    "torsion": Parameter("torsion", 0.0005, 0.04, 0.004, 0.8, log=True),
    "elliptic": Parameter("elliptic", 0.0, 1.0, 0.4, 0.4),
    "speed_slope": Parameter("speed_slope", -0.9, 0.9, 0.0, 0.3),
}
MIDDLE_SPEED = 0.5  # m/s, at which a damping ratio that depends on speed has its nominal value


class StrikeLaw(ImpactLaw):
    """A distilled network; parameters are its columns beyond the strike itself.

    With `speed_slope` the damping ratio of the striker's contact is ``zeta (1 + slope (speed - 0.5 m/s))``: a
    restitution that depends on speed, which MuJoCo's contacts do not have.
    """

    columns, outcome, velocities = STRIKE, OUTCOME, 3
    lengths: Tensor

    def __init__(self, net: OutcomeNet, speed_slope: bool = False):
        super().__init__()
        self.net, self.speed_slope = net, speed_slope
        self.kind = ("wide" if net.config.wide else "base") + ("+speed" if speed_slope else "")
        bounds = ranges(net.shape, net.config.wide)
        own = [PRIOR[name] for name in net.config.columns[len(STRIKE) :]]
        self.unknowns = tuple(Parameter(p.name, *bounds[p.name], p.mean, p.sd, p.log) for p in own)
        if speed_slope:
            self.unknowns += (PRIOR["speed_slope"],)
        self.register_buffer("parity", PARITY.clone(), persistent=False)
        self.register_buffer("input_parity", torch.tensor([1.0, -1.0, -1.0]), persistent=False)
        lengths = torch.tensor([0.8, 0.6 / math.radians(60) * net.shape.reach, 0.3])
        self.register_buffer("lengths", lengths, persistent=False)

    def relative(self, pre: Tensor, values: Tensor) -> Tensor:
        k, n = len(values), len(pre)
        strike, own = pre.expand(k, n, -1), values[:, None].expand(k, n, -1)
        if self.speed_slope:
            own, slope = own[..., :-1], own[..., -1]
            bent = (own[..., 2] * (1 + slope * (strike[..., 0] - MIDDLE_SPEED)))[..., None]
            own = torch.cat([own[..., :2], bent, own[..., 3:]], -1)
        return self.net.relative(torch.cat([strike, own], -1).flatten(0, 1)).unflatten(0, (k, n))

    def scale(self, pre: Tensor) -> Tensor:
        return outcome_scale(pre[:, 0])

    def inputs(self, pre: Tensor) -> Tensor:
        return torch.cat([pre[:, :1].log(), pre[:, 1:3]], -1) / self.lengths

    def to_frame(self, pre: Tensor, post: Tensor) -> Tensor:
        return post[:, : self.velocities]

    def from_frame(self, pre: Tensor, outcome: Tensor) -> Tensor:
        return outcome
