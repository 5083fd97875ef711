"""The networks: a plain multilayer perceptron and a causal transformer with a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HEAD = 64  # width of the transformer's last hidden layer, as in the paper


class Mlp(nn.Sequential):
    """`depth` SiLU layers of `width`, then a linear one; [..., inputs] -> [..., outputs]."""

    def __init__(self, inputs: int, outputs: int, width: int, depth: int):
        sizes = [inputs] + [width] * depth
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.SiLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], outputs))


class RingCache:
    """Keys and values of the last `window` tokens of N rows.

    All rows write to the same slot of the ring; `length` [N] says how many earlier tokens of a row count.
    """

    def __init__(self, network: CausalTransformer, rows: int, device: torch.device | str):
        layers, heads, window = len(network.blocks), network.heads, network.window
        shape = (layers, rows, heads, window, network.width // heads)
        self.keys = torch.zeros(shape, device=device)
        self.values = torch.zeros(shape, device=device)
        self.length = torch.zeros(rows, dtype=torch.long, device=device)
        self.slot = 0

    def forget(self, mask: Tensor) -> None:
        """Empty the masked rows [N]."""
        self.length = torch.where(mask, 0, self.length)

    def snapshot(self) -> dict[str, Any]:
        """A copy."""
        tensors = {name: getattr(self, name).clone() for name in ("keys", "values", "length")}
        return tensors | {"slot": self.slot}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go back to a copy."""
        self.keys.copy_(snapshot["keys"])
        self.values.copy_(snapshot["values"])
        self.length = snapshot["length"].clone()
        self.slot = snapshot["slot"]

    @staticmethod
    def select_rows(snapshot: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        """A copy for a cache of len(rows) rows, whose row i is row rows[i] of this one."""
        ring = {name: snapshot[name][:, rows] for name in ("keys", "values")}
        return ring | {"length": snapshot["length"][rows], "slot": snapshot["slot"]}


class Block(nn.Module):
    """Attention and a GELU layer of four times the width, each after a layer norm and around a short cut."""

    def __init__(self, width: int, heads: int, window: int):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width, bias=False)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.project_1 = nn.Linear(width, width, bias=False)
        self.norm_2 = nn.LayerNorm(width, bias=False)
        self.expand = nn.Linear(width, 4 * width, bias=False)
        self.project_2 = nn.Linear(4 * width, width, bias=False)
        self.distance_bias = nn.Parameter(torch.zeros(heads, window))  # by how many frames back a token lies

    def queries_keys_values(self, x: Tensor) -> Tensor:
        """[B, T, width] -> [3, B, heads, T, width / heads]."""
        b, t, width = x.shape
        return self.attention(self.norm_1(x)).view(b, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add what attention [B, heads, T, width / heads] found, then the second half of the block."""
        x = x + self.project_1(attended.transpose(1, 2).flatten(2))
        return x + self.project_2(F.gelu(self.expand(self.norm_2(x))))


class CausalTransformer(nn.Module):
    """A nanoGPT-style network in which a token attends to itself and the `window` - 1 before it.

    Positions are known by a learned bias per layer, head and distance, so that a token's keys and values do not
    depend on where a window begins: one step with a cache gives what the whole sequence gives.
    """

    _age: Tensor

    def __init__(self, inputs: int, outputs: int, layers: int = 6, heads: int = 12, width: int = 192, window: int = 10):
        super().__init__()
        self.heads, self.width, self.window = heads, width, window
        self.embed = nn.Linear(inputs, width, bias=False)
        # torch does not tell what is in a ModuleList.
        self.blocks = cast("Sequence[Block]", nn.ModuleList(Block(width, heads, window) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Sequential(nn.Linear(width, HEAD), nn.ReLU(), nn.Linear(HEAD, outputs))
        self._initialise(layers)
        slots = torch.arange(window)
        # [window, window]: how far back each slot lies while a given slot is being written.
        self.register_buffer("_age", torch.remainder(slots[:, None] - slots, window), persistent=False)
        self._band: dict[int, tuple[Tensor, Tensor]] = {}

    def _initialise(self, layers: int) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2 or name.endswith("distance_bias"):
                continue  # norms are one, biases by distance zero
            scale = 0.02 / (2 * layers) ** 0.5 if "project" in name else 0.02
            nn.init.normal_(parameter, std=scale)
        for layer in self.head:
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T, inputs] -> [B, T, outputs], every token from itself and those before it."""
        distance, outside = self._banded(tokens.shape[1], tokens.device)
        x = self.embed(tokens)
        for block in self.blocks:
            mask = block.distance_bias[:, distance].masked_fill(outside, -torch.inf)  # [heads, T, T]
            q, k, v = block.queries_keys_values(x)
            x = block.finish(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask[None]))
        return self.head(self.norm(x))

    def step(self, token: Tensor, cache: RingCache) -> Tensor:
        """The next token [B, inputs] of every row -> [B, outputs]; the cache takes it in."""
        age = self._age[cache.slot]
        closed = torch.where(age <= cache.length[:, None], 0.0, -torch.inf)[:, None, None]  # [B, 1, 1, window]
        x = self.embed(token)[:, None]
        for layer, block in enumerate(self.blocks):
            q, k, v = block.queries_keys_values(x)
            keys, values = cache.keys[layer], cache.values[layer]
            keys[:, :, cache.slot] = k[:, :, 0]
            values[:, :, cache.slot] = v[:, :, 0]
            mask = closed + block.distance_bias[:, None, age]
            x = block.finish(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask))
        cache.slot = (cache.slot + 1) % self.window
        cache.length = (cache.length + 1).clamp_max(self.window - 1)
        return self.head(self.norm(x))[:, 0]

    def _banded(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """[T, T] each: how far back a key lies, and whether that is outside the window."""
        if count not in self._band or self._band[count][0].device != device:
            at = torch.arange(count, device=device)
            back = at[:, None] - at
            self._band[count] = back.clamp(0, self.window - 1), (back < 0) | (back >= self.window)
        return self._band[count]
