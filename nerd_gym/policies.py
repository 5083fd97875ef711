"""Policies: an observation normaliser and a network, kept without code.

A policy is a safetensors file (weights) whose metadata holds the facts as json. Trained objects of RL libraries are
converted (conversions.py). Checkpoints of rl-games are read through torch's restricted unpickler with an allow-list: a
file that asks for anything else is refused.
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

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
Layers = list[tuple[Tensor, Tensor]]  # weight [out, in] and bias [out]
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
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"{Path(path).name} is not a checkpoint, or is damaged: {error}") from error


class Policy(nn.Module):
    """action = clip(MLP(clip((obs - mean) / std, -c, c)), -1, 1), always the same for the same observation.

    Args:
        mean, std: [obs_size] of the normaliser; zeros and ones for none.
        layers: weight and bias of each linear layer.
        activation: one of ``ACTIVATIONS``, between the layers.
        clip: c; None for no limit.
        facts: what is known of the policy (environment, library, steps, seed, ...), kept with it in files.
    """

    def __init__(
        self,
        mean: Tensor,
        std: Tensor,
        layers: Layers,
        activation: str,
        clip: float | None = 5.0,
        facts: dict[str, Any] | None = None,
    ):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; valid: {', '.join(ACTIVATIONS)}")
        sizes = [len(mean), *(len(bias) for _, bias in layers)]
        expected = list(zip(sizes[1:], sizes))
        if not layers or [tuple(weight.shape) for weight, _ in layers] != expected or len(std) != len(mean):
            raise ValueError(f"layers {[tuple(w.shape) for w, _ in layers]} do not follow one another from {len(mean)}")
        self.activation, self.clip, self.facts = activation, clip, dict(facts or {})
        self.register_buffer("mean", mean.detach().cpu().float().clone())
        self.register_buffer("std", std.detach().cpu().float().clone())
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

    @property
    def action_size(self) -> int:
        """Length of an action."""
        return self.network[-1].out_features

    @property
    def layers(self) -> Layers:
        """Weight and bias of each linear layer."""
        return [(layer.weight, layer.bias) for layer in self.network if isinstance(layer, nn.Linear)]

    def act(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> deterministic action [N, action_size] in [-1, 1]."""
        if obs.shape[-1] != self.obs_size:
            raise ValueError(f"this policy takes {self.obs_size} observations; it was given {obs.shape[-1]}")
        return self.network(self.normalise(obs)).clamp(-1, 1)

    def normalise(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> what the network sees of it."""
        obs = (obs - self.mean) / self.std
        return obs if self.clip is None else obs.clamp(-self.clip, self.clip)

    def save(self, path: str | Path, facts: dict[str, Any] | None = None) -> None:
        """Write weights and facts, its own and more, to a safetensors file, whole or not at all."""
        structure = {"activation": self.activation, "clip": self.clip}
        save_tensors(Path(path), self.state_dict(), self.facts | (facts or {}) | structure)

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
        if "activation" not in facts or not {"mean", "std"} <= tensors.keys():
            raise ValueError(f"{path.name} is not a nerd_gym policy: it has no normaliser or no activation")
        layers = numbered_layers(tensors, "network.")
        activation, clip = facts.pop("activation"), facts.pop("clip", 5.0)
        return cls(tensors["mean"], tensors["std"], layers, activation, clip, facts)

    @classmethod
    def from_rl_games(
        cls, source: str | Path | Any, activation: str | None = None, facts: dict[str, Any] | None = None
    ) -> Policy:
        """A continuous MLP policy of rl-games: an agent or player, or a .pth, with its activation told."""
        from . import conversions

        if isinstance(source, (str, Path)):
            return conversions.from_rl_games_file(source, activation, facts)
        return conversions.from_rl_games(source, facts)

    @classmethod
    def from_sb3(cls, model: Any, normaliser: Any = None, facts: dict[str, Any] | None = None) -> Policy:
        """An actor of Stable-Baselines3 (PPO, A2C), with its VecNormalize: the model's own if none is given."""
        from .conversions import from_sb3

        return from_sb3(model, normaliser, facts)

    @classmethod
    def from_rsl_rl(cls, source: Any, facts: dict[str, Any] | None = None) -> Policy:
        """The actor of an rsl_rl runner, or an actor."""
        from .conversions import from_rsl_rl

        return from_rsl_rl(source, facts)

    @classmethod
    def from_skrl(cls, agent: Any, facts: dict[str, Any] | None = None) -> Policy:
        """The Gaussian policy of a skrl agent, with its observation preprocessor."""
        from .conversions import from_skrl

        return from_skrl(agent, facts)


def numbered_layers(tensors: dict[str, Tensor], prefix: str) -> Layers:
    """The linear layers of a Sequential among named tensors."""
    pattern = re.compile(re.escape(prefix) + r"(\d+)\.weight")
    indices = sorted(int(match[1]) for match in map(pattern.fullmatch, tensors) if match)
    return [(tensors[f"{prefix}{i}.weight"], tensors[f"{prefix}{i}.bias"]) for i in indices]
