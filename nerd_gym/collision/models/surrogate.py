"""A network that gives the outcome of a strike, distilled from MuJoCo.

`features` is our recipe; `plain` is the published one, which sees the columns themselves. Both give the outcome over
the striker's speed. The outcome of a mirrored strike is mirrored exactly: a network is evaluated on both and averaged.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nerd_gym.collision.scenes.columns import COLUMNS, OUTCOME, WIDE
from nerd_gym.collision.scenes.shapes import Shape, shape_named

LEVER = 0.05  # m, by which an angular velocity counts in an error; the semicylinder's radius
DURATION = 0.01  # s, about the mean of collisions
# An outcome over its scale is about one: velocities over speed, displacements over the way in a mean collision.
PARITY = torch.tensor([1.0, -1, -1, 1, -1, -1, 1])  # of OUTCOME under mirroring
RECIPES = ("features", "plain")
LARGEST = 1024  # of width; depth is 8 at most


@dataclass(frozen=True)
class NetConfig:
    """What a network is made of."""

    shape: str
    recipe: str = "features"
    wide: bool = False  # whether it knows the columns of perturbed simulators as well
    width: int = 128
    depth: int = 2  # hidden layers: three layers of weights, as in the paper

    def __post_init__(self):
        shape_named(self.shape)
        if self.recipe not in RECIPES:
            raise ValueError(f"unknown recipe {self.recipe!r}; valid: {', '.join(RECIPES)}")
        for name, most in (("width", LARGEST), ("depth", 8)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise ValueError(f"{name} is {value!r}; it must be a whole number from 1 to {most}")

    @property
    def columns(self) -> tuple[str, ...]:
        return WIDE if self.wide else COLUMNS

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class OutcomeNet(nn.Module):
    """Columns of a strike [N, C] to OUTCOME [N, 7]."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: NetConfig):
        super().__init__()
        self.config, self.shape = config, shape_named(config.shape)
        size = len(self._encode(torch.ones(1, len(config.columns)))[0])
        activation = nn.GELU if config.recipe == "features" else nn.ReLU
        layers: list[nn.Module] = []
        for k in range(config.depth):
            layers += [nn.Linear(size if k == 0 else config.width, config.width), activation()]
        self.layers = nn.Sequential(*layers, nn.Linear(config.width, len(OUTCOME)))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.register_buffer("parity", PARITY.clone(), persistent=False)

    def normalise_to(self, pre: Tensor) -> None:
        """Take mean and spread of the inputs from the training data, mirrored too."""
        inputs = self._encode(torch.cat([pre, mirrored(pre)]))
        self.mean.copy_(inputs.mean(0))
        self.std.copy_(inputs.std(0).clamp(min=1e-6))

    def relative(self, pre: Tensor) -> Tensor:
        """[N, 7]: the outcome over `outcome_scale`."""
        both = self._encode(torch.stack([pre, mirrored(pre)]))
        straight, mirror = self.layers((both - self.mean) / self.std)
        return 0.5 * (straight + self.parity * mirror)

    def forward(self, pre: Tensor) -> Tensor:
        """[N, 7]: OUTCOME in SI units."""
        return self.relative(pre) * outcome_scale(pre[..., 0])

    def _encode(self, pre: Tensor) -> Tensor:
        if self.config.recipe == "plain":
            return pre
        return encode(self.shape, pre)


def encode(shape: Shape, pre: Tensor) -> Tensor:
    """[..., C] to [..., F]: quantities in which the outcome is smoother than in the columns."""
    speed, point, direction, mu, mu_table, zeta, zeta_table = pre[..., :7].unbind(-1)
    place = (point.sin(), point.cos()) if shape.radius else (point / shape.reach, (point / shape.reach).square())
    features = [speed.log(), speed, *place, direction.sin(), direction.tan(), mu, mu.log(), mu_table, mu_table.log()]
    features += [zeta, zeta.log(), zeta_table, zeta_table.log(), mu_table / speed]
    if pre.shape[-1] > 7:
        time_constant, torsion, elliptic = pre[..., 7:].unbind(-1)
        features += [time_constant.log(), time_constant / 0.004, torsion.log(), torsion / 0.01, elliptic]
    return torch.stack(features, -1)


def mirrored(pre: Tensor) -> Tensor:
    """The same strikes in a mirror: point and direction change sign."""
    out = pre.clone()
    out[..., 1:3] = -pre[..., 1:3]
    return out


def outcome_scale(speed: Tensor) -> Tensor:
    """[N] to [N, 7]: what an outcome is divided by to be about one."""
    way = speed * DURATION
    return torch.stack([speed, speed, speed / LEVER, way, way, way / LEVER, torch.full_like(speed, DURATION)], -1)


def relative_error(predicted: Tensor, true: Tensor) -> Tensor:
    """[N]: length of the error of (vn, vt, lever x omega) over the length of the true one."""
    weight = predicted.new_tensor([1.0, 1.0, LEVER])
    return ((predicted[..., :3] - true[..., :3]) * weight).norm(dim=-1) / (true[..., :3] * weight).norm(dim=-1)


def outcome_loss(net: OutcomeNet, pre: Tensor, post: Tensor) -> Tensor:
    """Mean relative error of velocities, and a tenth of that of displacements and durations."""
    scale = outcome_scale(pre[..., 0])
    predicted, true = net.relative(pre), post / scale
    loss = predicted.new_zeros(())
    for part, weight in ((slice(0, 3), 1.0), (slice(3, 6), 0.1), (slice(6, 7), 0.1)):
        error = (predicted[..., part] - true[..., part]).square().sum(-1) / true[..., part].square().sum(-1)
        loss = loss + weight * (error + 1e-6).sqrt().mean()
    return loss


def share_within(error: Tensor, limits: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3)) -> dict[str, float]:
    """By threshold, the part of the samples whose relative error is at most that."""
    return {f"{limit:g}": float((error <= limit).float().mean()) for limit in limits}
