"""A network that knows nothing but the measured samples: what adapting a distilled one is compared with, and one more
law where samples are many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .identify import Samples
from .laws import ImpactLaw

STEPS, RATE, DECAY = 1000, 3e-3, 0.01


class ScratchLaw(ImpactLaw):
    """The inputs of another law's residuals to its velocities, mirrored exactly; no parameters to identify."""

    def __init__(self, frame: ImpactLaw, width: int = 64):
        super().__init__()
        self.kind, self.width = "scratch", width
        self._frame = (frame,)  # in a tuple: its weights are not this law's
        self.columns, self.unknowns, self.velocities = frame.columns, (), frame.velocities
        self.outcome = frame.outcome[: frame.velocities]
        count = len(frame.input_parity)
        self.layers = nn.Sequential(
            nn.Linear(count, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, self.velocities)
        )
        self.register_buffer("parity", frame.parity[: self.velocities].clone(), persistent=False)
        self.register_buffer("input_parity", frame.input_parity.clone(), persistent=False)

    def relative(self, pre: Tensor, values: Tensor) -> Tensor:
        inputs = self.inputs(pre)
        straight, mirror = self.layers(torch.stack([inputs, inputs * self.input_parity]))
        return (0.5 * (straight + self.parity * mirror)).expand(len(values), -1, -1)

    def scale(self, pre: Tensor) -> Tensor:
        return self._frame[0].scale(pre)[:, : self.velocities]

    def inputs(self, pre: Tensor) -> Tensor:
        return self._frame[0].inputs(pre)

    def to_frame(self, pre: Tensor, post: Tensor) -> Tensor:
        return self._frame[0].to_frame(pre, post)

    def from_frame(self, pre: Tensor, outcome: Tensor) -> Tensor:
        return self._frame[0].from_frame(pre, outcome)


def train_scratch(frame: ImpactLaw, pre: Tensor, post: Tensor, seed: int = 0, steps: int = STEPS) -> ScratchLaw:
    """AdamW on all samples with a relative loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        law = ScratchLaw(frame).to(pre.device)
    samples = Samples.of(law, pre, post)
    none = pre.new_zeros(1, 0)
    optimiser = torch.optim.AdamW(law.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        error = (law.relative(pre, none)[0] - samples.relative) / samples.size
        (error.square().sum(-1) + 1e-6).sqrt().mean().backward()
        optimiser.step()
        schedule.step()
    return law
