"""Policies: an observation normaliser and a network, kept without code.

A policy is a safetensors file (weights) whose metadata holds the facts as json. Checkpoints of rl-games are
read through torch's restricted unpickler with an allow-list: a file that asks for anything else is refused.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .files import load_tensors, save_tensors

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}
# What rl-games puts beside its tensors: numpy scalars. Their module was renamed in numpy 2.
ALLOWED = [
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),
    (np._core.multiarray.scalar, "numpy._core.multiarray.scalar"),
    np.dtype,
    np.dtypes.Float32DType,
    np.dtypes.Float64DType,
    np.dtypes.Int64DType,
]


class UnsafePolicy(ValueError):
    """The file asks for code to be run."""


def read_rl_games(path: str | Path) -> dict[str, Any]:
    """An rl-games checkpoint, through torch's restricted unpickler and the allow-list."""
    try:
        with torch.serialization.safe_globals(ALLOWED):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it asks for {asked[1]}" if asked else "it is no plain checkpoint"
        raise UnsafePolicy(f"{Path(path).name} was refused and nothing of it was run: {why}") from error


class Policy(nn.Module):
    """mean action = MLP(clip((obs - mean) / sqrt(var + 1e-5), -5, 5)), clipped to [-1, 1]."""

    def __init__(self, mean: Tensor, var: Tensor, layers: list[tuple[Tensor, Tensor]], activation: str):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; valid: {', '.join(ACTIVATIONS)}")
        self.activation = activation
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", torch.sqrt(var.float() + 1e-5))
        modules: list[nn.Module] = []
        for weight, bias in layers:
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight.data.copy_(weight)
            linear.bias.data.copy_(bias)
            modules += [linear, ACTIVATIONS[activation]()]
        self.network = nn.Sequential(*modules[:-1])
        self.requires_grad_(False)

    @property
    def obs_size(self) -> int:
        """Length of an observation."""
        return len(self.mean)

    def act(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> deterministic action [N, action_size] in [-1, 1]."""
        if obs.shape[-1] != self.obs_size:
            raise ValueError(f"this policy takes {self.obs_size} observations; it was given {obs.shape[-1]}")
        return self.network(((obs - self.mean) / self.std).clamp(-5, 5)).clamp(-1, 1)

    def save(self, path: str | Path, facts: dict[str, Any] | None = None) -> None:
        """Write weights and facts to a safetensors file, whole or not at all."""
        save_tensors(Path(path), self.state_dict(), {"activation": self.activation, **(facts or {})})

    @classmethod
    def load(cls, path: str | Path, activation: str | None = None) -> Policy:
        """Read a safetensors policy, or an rl-games .pth (whose activation the file does not tell)."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no policy at {path}")
        if path.suffix == ".pth":
            return cls.from_rl_games(path, activation)
        if path.suffix != ".safetensors":
            raise ValueError(f"cannot read policy {path.name!r}; valid endings: .safetensors, .pth")
        tensors, facts = load_tensors(path)
        if "activation" not in facts or "mean" not in tensors:
            raise ValueError(f"{path.name} is not a nerd_gym policy: it has no normaliser or no activation")
        indices = sorted(int(n.split(".")[1]) for n in tensors if n.startswith("network.") and n.endswith("weight"))
        layers = [(tensors[f"network.{i}.weight"], tensors[f"network.{i}.bias"]) for i in indices]
        return cls(tensors["mean"], tensors["std"].square() - 1e-5, layers, facts["activation"])

    @classmethod
    def from_rl_games(cls, path: str | Path, activation: str | None) -> Policy:
        """An rl-games continuous MLP policy."""
        if activation is None:
            raise ValueError(f"an rl-games file does not tell its activation; give one of {', '.join(ACTIVATIONS)}")
        weights = read_rl_games(path)["model"]
        prefix = "a2c_network.actor_mlp."
        indices = sorted({int(name.split(".")[2]) for name in weights if name.startswith(prefix)})
        layers = [(weights[f"{prefix}{i}.weight"], weights[f"{prefix}{i}.bias"]) for i in indices]
        layers.append((weights["a2c_network.mu.weight"], weights["a2c_network.mu.bias"]))
        normaliser = (weights[f"running_mean_std.running_{name}"] for name in ("mean", "var"))
        return cls(*normaliser, layers, activation)
