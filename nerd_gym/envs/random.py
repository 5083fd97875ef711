"""Random numbers with one stream per environment, in torch, on any device, and the starts that are drawn from them.

Row i of a batch draws what a single environment with row i's seed would draw, whatever the batch size and
whenever its neighbours reset: each number is a hash of (seed, episode, position).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .task import Task

MASK = 0xFFFFFFFF
GOLDEN = 0x1E3779B9
AHEAD = 32  # numbers that are drawn at a time: a task asks for a few at once, and each hash is twenty passes


def mix(x: Tensor) -> Tensor:
    """A 32-bit integer hash (xor-shift, multiply, twice), held in int64; the factors keep below 2**31."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & MASK
    x = ((x ^ (x >> 15)) * 0x735A2D97) & MASK
    return x ^ (x >> 15)


class EnvRandom:
    """Draws for one reset of every environment. `seeds` and `episodes` are int64 [N]."""

    def __init__(self, seeds: Tensor, episodes: Tensor):
        self.num_envs = len(seeds)
        self.device = seeds.device
        key = mix((seeds & MASK) ^ GOLDEN)
        key = mix(key ^ ((seeds >> 32) & MASK))
        self._key = mix((key + episodes) & MASK)
        self._units = torch.empty(self.num_envs, 0, device=self.device)  # drawn ahead and not yet given away
        self._drawn = 0

    def uniform(self, low: Tensor | float, high: Tensor | float, size: int) -> Tensor:
        """[N, size] between low and high (numbers, or tensors [size] or [N, size])."""
        if size > self._units.shape[1]:
            self._draw(max(AHEAD, size))
        unit, self._units = self._units[:, :size], self._units[:, size:]
        return low + (high - low) * unit

    def _draw(self, count: int) -> None:
        position = torch.arange(self._drawn + 1, self._drawn + count + 1, device=self.device)
        self._drawn += count
        bits = mix(mix(self._key[:, None] ^ (position * GOLDEN & MASK)))
        self._units = torch.cat([self._units, (bits >> 8).float() * 2.0**-24], 1)

    def rotation(self, angle: float) -> Tensor:
        """[N, 4] quaternions of rotations up to `angle` either way about a random axis."""
        axis = torch.nn.functional.normalize(self.centred(1.0, 3), dim=-1)
        half = self.centred(angle, 1) / 2
        return torch.cat([torch.cos(half), torch.sin(half) * axis], -1)

    def centred(self, half_width: Tensor | float, size: int) -> Tensor:
        """[N, size] between minus and plus half_width."""
        return self.uniform(-half_width, half_width, size)


@dataclass
class Starts:
    """Where N episodes start."""

    episode: Tensor  # [N], which of its row
    q: Tensor
    qd: Tensor
    goal: Tensor | None
    ground: tuple[Tensor, Tensor] | None

    def put(self, rows: Tensor, new: Starts) -> None:
        """Take over the starts of some rows [K]."""
        pairs = [(self.episode, new.episode), (self.q, new.q), (self.qd, new.qd)]
        if self.goal is not None and new.goal is not None:
            pairs.append((self.goal, new.goal))
        if self.ground is not None and new.ground is not None:
            pairs += zip(self.ground, new.ground, strict=True)
        for old, value in pairs:
            old.index_copy_(0, rows, value)


def draw_starts(task: Task, seeds: Tensor, episodes: Tensor) -> Starts:
    """The starts of episodes [N], each by its number and its row's seed alone."""
    rng = EnvRandom(seeds, episodes)
    q, qd = task.initial_state(rng)
    goal = task.initial_goal(rng, q).clone() if task.goal_size else None
    ground = task.initial_ground(rng, q)
    return Starts(episodes.clone(), q.clone(), qd.clone(), goal, ground and (ground[0].clone(), ground[1].clone()))
