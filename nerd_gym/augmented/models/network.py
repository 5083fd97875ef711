"""The network of a wire: a few units from signals to scalars, zero at the start."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

ACTIVATE = {"elu": nn.functional.elu, "tanh": torch.tanh, "silu": nn.functional.silu}


class ScalarNet(nn.Module):
    """[..., n] -> [..., m]. Signals are centred and scaled before, scalars scaled after; the last layer starts at 0."""

    centre: Tensor
    scale: Tensor
    size: Tensor

    def __init__(self, inputs: int, hidden: tuple[int, ...], outputs: int, activation: str):
        super().__init__()
        sizes = (inputs, *hidden, outputs)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        last = self.linears[-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.activation = activation
        self.register_buffer("centre", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.register_buffer("size", torch.ones(outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.centre) / self.scale
        *hidden, last = self.layers
        for layer in hidden:
            x = ACTIVATE[self.activation](layer(x))
        return self.size * last(x)

    @property
    def linears(self) -> list[nn.Linear]:
        """The layers; the columns of the first tell which signals matter."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def folded(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of every layer with centre, scale and size in them: reads signals, gives scalars."""
        pairs = [(layer.weight.detach().double(), layer.bias.detach().double()) for layer in self.linears]
        weight, bias = pairs[0]
        weight = weight / self.scale.double()
        pairs[0] = weight, bias - weight @ self.centre.double()
        weight, bias = pairs[-1]
        pairs[-1] = self.size.double()[:, None] * weight, self.size.double() * bias
        return pairs
