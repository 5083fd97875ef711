"""A Gaussian process on what a law gets wrong, averaged over hyperparameters by their marginal likelihood.

An amplitude of zero is among them: where there is nothing to correct, the correction vanishes. Kernels have the parity
of the output under mirroring, so that a sample tells about its mirror image too.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

AMPLITUDES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)  # of relative residuals
LENGTHS = (0.5, 1.0, 2.0, 4.0)
NOISES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
GRID = torch.tensor(list(itertools.product(AMPLITUDES, LENGTHS, NOISES)))  # [G, 3]
NEGLIGIBLE = 1e-4  # weight of hyperparameters that are left out
MOST_SAMPLES = 2000  # of which a kernel matrix is factored


class ResidualProcess:
    """Means of a Gaussian process at new inputs: ``samples`` [S, D] and ``dual`` [G, S, O], weights included."""

    def __init__(self, samples: Tensor, dual: Tensor, grid: Tensor, input_parity: Tensor, parity: Tensor):
        self.samples, self.dual, self.grid = samples, dual, grid
        self.input_parity, self.parity = input_parity, parity
        # By length, for even outputs and for odd ones, [S, O]: what multiplies a kernel.
        self._terms = [
            (length, sign, dual[grid[:, 1] == length].sum(0) * (parity == sign).to(dual))
            for length, sign in itertools.product(LENGTHS, (1.0, -1.0))
        ]

    @classmethod
    def fit(
        cls, inputs: Tensor, residual: Tensor, input_parity: Tensor, parity: Tensor
    ) -> tuple[ResidualProcess, Tensor]:
        """Of inputs [S, D] and relative residuals [S, O]; also each sample's error [S, O] if it were left out."""
        if len(inputs) > MOST_SAMPLES:
            raise ValueError(f"{len(inputs)} samples; a Gaussian process takes {MOST_SAMPLES} at most")
        x, y = inputs.double(), residual.double()
        grid = GRID.to(x)
        dual = x.new_zeros(len(grid), *y.shape)
        evidence, left_out = x.new_zeros(len(grid), y.shape[1]), x.new_zeros(len(grid), *y.shape)
        for sign, length in itertools.product((1.0, -1.0), LENGTHS):
            columns = (parity == sign).nonzero().flatten()
            rows = (grid[:, 1] == length).nonzero().flatten()
            # One decomposition serves all amplitudes and noises.
            values, vectors = torch.linalg.eigh(kernel(x, x, length, input_parity, sign))
            projected = vectors.T @ y[:, columns]
            amplitude, noise = grid[rows, 0].square()[:, None], grid[rows, 2].square()[:, None]
            variance = amplitude * values.clamp(min=0) + noise  # [R, S]
            scaled = projected / variance[..., None]
            solved = vectors @ scaled  # [R, S, O]
            inverse = (1 / variance) @ vectors.square().T  # diagonals of the inverse covariances
            dual[rows[:, None], :, columns] = (amplitude[..., None] * solved).transpose(1, 2)
            left_out[rows[:, None], :, columns] = (solved / inverse[..., None]).transpose(1, 2)
            misfit = (projected * scaled).sum(1)
            evidence[rows[:, None], columns] = -0.5 * misfit - 0.5 * variance.log().sum(1, keepdim=True)
        weight = evidence.softmax(0)
        used = (weight > NEGLIGIBLE).any(1) & (grid[:, 0] > 0)
        process = cls(inputs, (dual * weight[:, None])[used].to(inputs), grid[used].to(inputs), input_parity, parity)
        return process, (left_out * weight[:, None]).sum(0).to(inputs)

    def __call__(self, inputs: Tensor) -> Tensor:
        """[N, D] to [N, O]."""
        out = inputs.new_zeros(len(inputs), self.dual.shape[-1])
        for length, sign, dual in self._terms:
            out = out + kernel(inputs, self.samples, length, self.input_parity, sign) @ dual
        return out

    def to(self, device: torch.device) -> ResidualProcess:
        return ResidualProcess(*(getattr(self, name).to(device) for name in self.names))

    names = ("samples", "dual", "grid", "input_parity", "parity")


def kernel(a: Tensor, b: Tensor, length: float | Tensor, input_parity: Tensor, sign: float) -> Tensor:
    """[N, D] and [M, D] to [N, M]: squared exponential, even (sign 1) or odd (-1) under mirroring."""
    flipped = b * input_parity.to(b)

    def bell(other: Tensor) -> Tensor:
        squared = (a[:, None] - other[None]).square().sum(-1)
        return (-0.5 * squared / length**2).exp()

    return 0.5 * (bell(b) + sign * bell(flipped))
