"""Scaling of what a network takes and gives, and the gate on its output."""

from __future__ import annotations

import torch
from torch import Tensor, nn

INPUT_FLOOR = 0.05  # the least spread an input is given, so that a rare contact does not drown all else
INPUT_LIMIT = 20.0  # standard deviations: a network is not asked about what lies further out
GUARD = 1.5  # predictions stay within so many times the largest change seen in training
BUSY = 4.0  # something happens at a half of the usual forces and speeds,
TOUCHING = 0.25  # and within so much of the larger scale of distances from ground or limits
STILL = 1e-5  # the square of the gate when nothing happens


class Normaliser(nn.Module):
    """Mean and spread of inputs and targets, and how large a target may be."""

    input_mean: Tensor
    input_std: Tensor
    output_mean: Tensor
    output_std: Tensor
    output_limit: Tensor

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        for name, size in (("input", inputs), ("output", outputs)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_std", torch.ones(size))
        self.register_buffer("output_limit", torch.full((outputs,), torch.inf))

    def fit(self, inputs: Tensor, targets: Tensor, centred: bool = True) -> None:
        """From rows of inputs [N, D] and targets [N, O]; not `centred`, no output means no change."""
        for name, values in (("input", inputs), ("output", targets)):
            values = values.double()
            mean, std = values.mean(0), values.std(0)
            if name == "input":
                std = std.clamp_min(INPUT_FLOOR)
            # A target that never changes stays as it is: its spread is only rounding. Others may be tiny.
            constant = std <= 1e-6 * values.abs().amax(0)
            getattr(self, f"{name}_mean").copy_(mean)
            getattr(self, f"{name}_std").copy_(torch.where(constant, 1.0, std))
        if not centred:
            self.output_mean.zero_()
        self.output_limit.zero_()
        self.allow(targets)

    def allow(self, targets: Tensor) -> None:
        """Let predictions be as large as these targets [N, O], and somewhat larger."""
        self.output_limit.copy_(torch.maximum(self.output_limit, GUARD * targets.abs().amax(0)))

    def inputs(self, raw: Tensor) -> Tensor:
        """Normalised [..., D], always finite."""
        scaled = (raw - self.input_mean) / self.input_std
        return torch.nan_to_num(scaled).clamp(-INPUT_LIMIT, INPUT_LIMIT)

    def targets(self, raw: Tensor) -> Tensor:
        """Normalised [..., O]."""
        return (raw - self.output_mean) / self.output_std

    def outputs(self, normalised: Tensor) -> Tensor:
        """What a network's output [..., O] means, kept within what training has shown."""
        raw = torch.addcmul(self.output_mean, normalised, self.output_std)
        return torch.clamp(raw, -self.output_limit, self.output_limit)
