"""Searches: they propose points in the box [-1, 1]^D and are told how good each was; larger is better."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from nerd_gym.utils.optional import require

LEAST = 4  # candidates, below which CMA-ES has no second parent


class Search(ABC):
    """A distribution of points that narrows around good ones.

    Args:
        size: D.
        candidates: points in an iteration, C.
        sigma: standard deviation at the start, about the middle of the box.
        seed: of everything random here.
    """

    name: ClassVar[str]

    def __init__(self, size: int, candidates: int, sigma: float, seed: int):
        self.size, self.candidates, self.sigma = size, candidates, sigma
        self.generator = torch.Generator().manual_seed(seed)

    @abstractmethod
    def ask(self) -> Tensor:
        """The next points [C, D] in [-1, 1], on the CPU."""

    @abstractmethod
    def tell(self, points: Tensor, values: Tensor) -> None:
        """What :meth:`ask` gave, and the finite values [C] of it."""


class RandomShooting(Search):
    """Uniform points that learn nothing, what the others are to be compared with."""

    name = "random"

    def ask(self) -> Tensor:
        return 2 * torch.rand(self.candidates, self.size, generator=self.generator) - 1

    def tell(self, points: Tensor, values: Tensor) -> None:
        """Nothing is learned."""


class Cem(Search):
    """The cross-entropy method: an independent Gaussian per coordinate is fitted to the best tenth.

    The best points go on into the next iteration (as in iCEM, Pinneri et al. 2020), so that its best is never worse,
    and the deviation keeps a floor, so that it does not stop short.
    """

    name = "cem"
    share, kept, smoothing, floor = 0.1, 0.3, 0.1, 0.02  # elites of C, of which go on; old part of the new Gaussian

    def __init__(self, size: int, candidates: int, sigma: float, seed: int):
        super().__init__(size, candidates, sigma, seed)
        self.mean, self.std = torch.zeros(size), torch.full((size,), sigma)
        self.elites = torch.empty(0, size)

    def ask(self) -> Tensor:
        old = self.elites[: round(self.kept * len(self.elites))]
        fresh = torch.randn(self.candidates - len(old), self.size, generator=self.generator)
        return torch.cat([old, (self.mean + self.std * fresh).clamp(-1, 1)])

    def tell(self, points: Tensor, values: Tensor) -> None:
        count = max(round(self.share * len(points)), 2)
        self.elites = points[values.argsort(descending=True, stable=True)[:count]]
        mean, std = self.elites.mean(0), self.elites.std(0).clamp(min=self.floor)
        self.mean = self.smoothing * self.mean + (1 - self.smoothing) * mean
        self.std = self.smoothing * self.std + (1 - self.smoothing) * std


class CmaEs(Search):
    """CMA-ES of the package `cmaes`: a full covariance matrix, adapted from ranks.

    Points outside the box are moved to its edge and told from there. Left outside, the deviation of long plans grows
    without end, because nothing out there changes the action.
    """

    name = "cma"

    def __init__(self, size: int, candidates: int, sigma: float, seed: int):
        super().__init__(size, candidates, sigma, seed)
        cmaes = require("cmaes", extra="plan")
        box = np.tile([-1.0, 1.0], (size, 1))
        self._search = cmaes.CMA(
            np.zeros(size), sigma, bounds=box, n_max_resampling=0, seed=seed, population_size=candidates
        )

    def ask(self) -> Tensor:
        return torch.from_numpy(np.stack([self._search.ask() for _ in range(self.candidates)]))

    def tell(self, points: Tensor, values: Tensor) -> None:
        self._search.tell(list(zip(points.numpy(), (-values.double()).tolist(), strict=True)))


METHODS: dict[str, type[Search]] = {kind.name: kind for kind in (CmaEs, Cem, RandomShooting)}
