"""A law of contact as a network, and how kernels take the weights of such networks.

It sees what does not change when robot and ground are moved or turned together: a contact's depth, the velocity of its
point along the ground's normal and its slip.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nerd_gym.physics.warp.functions import blocks_for


class ContactForceNet(nn.Module):
    """Force of one contact from depth, velocity along the normal and slip; the same for every candidate.

    Gated: whoever calls it counts it where the depth is positive. The push along the normal is a linear part and a
    network. Friction is the push times a coefficient that saturates with slip, cap * z / (1 + z^p)^(1/p), z = grip *
    slip: the network gives the push and the logarithms of grip and cap, so that friction always opposes slip; the
    sharpness p of the bend is learned too.
    """

    inputs = 6
    scales: Tensor

    def __init__(
        self, width: int = 32, depth: float = 0.05, speed: float = 2.0, slow: float = 0.05, force: float = 1e3
    ):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, width), nn.Linear(width, width), nn.Linear(width, 3)
        self.straight = nn.Linear(6, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
        nn.init.constant_(self.straight.weight, 0.1)
        nn.init.zeros_(self.straight.bias)
        self.bend = nn.Parameter(torch.zeros(1))  # p = 1 + exp(bend)
        self.register_buffer("scales", torch.tensor([depth, speed, slow, force]))

    def forward(self, depth: Tensor, along: Tensor, slip: Tensor) -> tuple[Tensor, Tensor]:
        """[...] each -> push along the normal, and drag: friction per slip."""
        deep, fast, slow, force = self.scales.unbind()
        features = (
            depth / deep,
            torch.relu(-along) / fast,
            torch.relu(along) / fast,
            slip / fast,
            slip / (slip + slow),
            0.25 * torch.log1p(slip / slow),
        )
        x = torch.stack(features, -1)
        hidden = nn.functional.silu(self.second(nn.functional.silu(self.first(x))))
        size, grip, cap = self.last(hidden).unbind(-1)
        push = force * torch.relu(self.straight(x)[..., 0] + size)
        grip = torch.exp(grip) / slow
        z, p = grip * slip, 1 + torch.exp(self.bend)
        large = z.clamp(min=1.0)  # so that no power overflows
        return push, push * torch.exp(cap) * grip / (large * (large**-p + (z / large) ** p) ** (1 / p))

    def packed(self) -> Tensor:
        """As the kernel reads it."""
        sharpness = 1 + torch.exp(self.bend.detach())
        head = torch.cat([self.scales, sharpness, torch.zeros_like(self.scales[:3])]).view(-1, 4)
        return torch.cat([head, *map(packed_rows, (self.first, self.second, self.last, self.straight))])


def packed_rows(linear: nn.Linear) -> Tensor:
    """A layer as kernels read it."""
    return pack_rows(linear.weight, linear.bias)


def pack_rows(weight: Tensor, bias: Tensor) -> Tensor:
    """Every row of a layer in blocks [..., 4]: weights, zeros, and last the bias (physics/warp/functions.py)."""
    inputs = weight.shape[1]
    zeros = weight.new_zeros(len(weight), 4 * blocks_for(inputs) - inputs - 1)
    return torch.cat([weight, zeros, bias[:, None]], 1).view(-1, 4).detach()
