"""`nerd-gym export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass
class Export:
    """Write a policy as ONNX, its normaliser and facts inside, checked against torch before the file appears."""

    policy: tyro.conf.Positional[Path]
    """A policy (.safetensors, or an rl-games .pth)."""
    onnx: Path
    """The file to write."""
    activation: str | None = None
    """Activation of an rl-games .pth, which the file does not tell: tanh, relu, elu or silu."""

    def run(self) -> None:
        from nerd_gym.policies.onnx import export_onnx
        from nerd_gym.policies.policy import Policy
        from nerd_gym.utils.files import check_output

        check_output(self.onnx)
        error = export_onnx(Policy.load(self.policy, self.activation), self.onnx)
        print(f"onnxruntime's actions differ from torch's by at most {error:.1e}")
        print(f"written: {self.onnx}")
