"""Policies: an observation normaliser and a network, kept without code.

A policy is a safetensors file (weights) whose metadata holds the facts as json. Trained objects of RL libraries are
converted (conversions.py). Checkpoints of rl-games are read without an unpickler (torch_file.py): a file that asks for
code is refused.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from nerd_gym.dynamics.models.checkpoint import current_kind
from nerd_gym.utils.files import check_facts, check_numbers, load_tensors, save_tensors, strip_prefix

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
OUTPUTS = ("clip", "tanh")  # how the last layer's output becomes an action
Layers = list[tuple[Tensor, Tensor]]  # weight [out, in] and bias [out]
MOST_INPUTS, LARGEST_OBSERVATION, LARGEST_BOUND = 100_000, 1e6, 1e30


class Memory(nn.Module):
    """A recurrent layer as rl-games has it: LSTM or GRU, then a layer norm if `tensors` have one.

    Args:
        tensors: ``rnn.*`` and ``norm.*``, named as torch names them; their shapes tell kind and sizes.
    """

    def __init__(self, tensors: dict[str, Tensor]):
        super().__init__()
        depth = sum(name.startswith("rnn.weight_hh_l") for name in tensors)
        first = [tensors.get(f"rnn.weight_{part}_l0") for part in ("hh", "ih")]
        if any(weight is None or weight.ndim != 2 or not weight.numel() for weight in first):
            raise ValueError(f"no recurrent layer in {', '.join(tensors) or 'nothing'}")
        (rows, self.units), inputs = tensors["rnn.weight_hh_l0"].shape, tensors["rnn.weight_ih_l0"].shape[1]
        kind = {4: nn.LSTM, 3: nn.GRU}.get(rows // self.units)
        if kind is None:
            raise ValueError(f"a recurrent layer of {rows // self.units} gates is unknown; valid: 4 (LSTM), 3 (GRU)")
        self.rnn = kind(inputs, self.units, depth, device="meta").to_empty(device="cpu")
        self.norm = nn.LayerNorm(self.units) if "norm.weight" in tensors else nn.Identity()
        try:
            self.load_state_dict(tensors)
        except RuntimeError as error:
            raise ValueError(f"not a {kind.__name__} of {depth} layers as rl-games has it: {error}") from error

    def forward(self, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """[N, inputs] and the state, None at the start -> [N, units] and the next state, each [depth, N, units]."""
        single = isinstance(self.rnn, nn.GRU)
        out, after = self.rnn(x[None], state[0] if state and single else state)
        return self.norm(out[0]), (after,) if single else after


class Policy(nn.Module):
    """action = clip(MLP(clip((obs - mean) / std, -c, c)), -1, 1), always the same for the same observation.

    With output "tanh", tanh stands in place of the outer clip: the mode of a squashed Gaussian, as SAC has it.

    With a memory, a recurrent layer stands before the MLP, which sees its output, and the normalised observation
    beside it if the first layer has room for both. Then the action depends on the observations since :meth:`reset`.

    Args:
        mean, std: [obs_size] of the normaliser; zeros and ones for none.
        layers: weight and bias of each linear layer.
        activation: one of ``ACTIVATIONS``, between the layers.
        clip: c; None for no limit.
        facts: what is known of the policy (environment, library, steps, seed, ...), kept with it in files.
        memory: tensors of a :class:`Memory`; None for none.
        output: one of ``OUTPUTS``.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Tensor,
        std: Tensor,
        layers: Layers,
        activation: str,
        clip: float | None = 5.0,
        facts: dict[str, Any] | None = None,
        memory: dict[str, Tensor] | None = None,
        output: str = "clip",
    ):
        super().__init__()
        if output not in OUTPUTS:
            raise ValueError(f"unknown output {output!r}; valid: {', '.join(OUTPUTS)}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; valid: {', '.join(ACTIVATIONS)}")
        if mean.dim() != 1 or std.dim() != 1 or not 0 < len(mean) <= MOST_INPUTS:
            raise ValueError(f"mean has shape {tuple(mean.shape)} and std {tuple(std.shape)}; both must be [obs_size]")
        if clip is not None and not 0 < clip <= LARGEST_BOUND:
            raise ValueError(f"clip is {clip}; it must be above 0 and at most {LARGEST_BOUND:g}, or None")
        self.memory = Memory(memory) if memory else None
        shapes = [tuple(weight.shape) for weight, _ in layers]
        inputs = {len(mean)} if self.memory is None else {self.memory.units, self.memory.units + len(mean)}
        flat = all(len(weight) == 2 and bias.shape == weight[:1] for weight, (_, bias) in zip(shapes, layers))
        follow = flat and all(a[0] == b[1] for a, b in pairwise(shapes))
        if not shapes or not follow or shapes[0][1] not in inputs:
            raise ValueError(f"layers {shapes} do not follow one another from {' or '.join(map(str, sorted(inputs)))}")
        if len(std) != len(mean) or (self.memory and self.memory.rnn.input_size != len(mean)):
            raise ValueError(f"mean has {len(mean)} entries; std or memory has another number of them")
        self.activation, self.clip, self.output = activation, None if clip is None else float(clip), output
        self.facts = dict(facts or {})
        # Whether the network sees the observation beside what the memory says.
        self.concat = self.memory is not None and shapes[0][1] > self.memory.units
        self.register_buffer("mean", mean.detach().cpu().float().clone())
        self.register_buffer("std", std.detach().cpu().float().clone())
        modules: list[nn.Module] = []
        for weight, bias in layers:
            # Draws no random numbers.
            linear = cast("nn.Linear", skip_init(nn.Linear, weight.shape[1], weight.shape[0]))
            linear.weight.data.copy_(weight)
            linear.bias.data.copy_(bias)
            modules += [linear, ACTIVATIONS[activation]()]
        self.network = nn.Sequential(*modules[:-1])
        self.requires_grad_(False)
        self._state: tuple[Tensor, ...] | None = None  # of the memory

    @property
    def obs_size(self) -> int:
        """Length of an observation."""
        return len(self.mean)

    @property
    def action_size(self) -> int:
        """Length of an action."""
        return len(self.layers[-1][1])

    @property
    def layers(self) -> Layers:
        """Weight and bias of each linear layer."""
        return [(layer.weight, layer.bias) for layer in self.network if isinstance(layer, nn.Linear)]

    def act(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> deterministic action [N, action_size] in [-1, 1]."""
        if obs.shape[-1] != self.obs_size:
            raise ValueError(f"this policy takes {self.obs_size} observations; it was given {obs.shape[-1]}")
        seen = self.normalise(obs)
        out = self.network(seen if self.memory is None else self._remember(self.memory, seen))
        return out.tanh() if self.output == "tanh" else out.clamp(-1, 1)

    forward = act

    def reset(self, rows: Tensor | None = None) -> None:
        """Forget what was seen: everything, or of the episodes of a mask [N]. Without a memory, nothing happens."""
        if rows is None:
            self._state = None
        elif self._state is not None:
            self._state = tuple(torch.where(rows[:, None], 0.0, state) for state in self._state)

    def _remember(self, memory: Memory, seen: Tensor) -> Tensor:
        if self._state is not None and self._state[0].shape[1] != len(seen):
            raise ValueError(f"this policy remembers {self._state[0].shape[1]} rows, not {len(seen)}; reset() forgets")
        out, self._state = memory(seen, self._state)
        return torch.cat([out, seen], -1) if self.concat else out

    def check_bounded(self) -> None:
        """Refuse weights with which some observation would give an action that is no number.

        From the normaliser's limit on, every layer's largest output is bounded by the sums of its weights' sizes.
        """
        if not bool((self.std > 0).all()) or (self.clip is not None and not self.clip > 0):
            raise ValueError("its normaliser divides by zero, or clips to nothing")
        size = (LARGEST_OBSERVATION + self.mean.double().abs()) / self.std.double()
        size = size if self.clip is None else size.clamp(max=float(self.clip))
        if self.memory is not None:  # gates and states are within 1; a norm scales and shifts them
            norm = self.memory.norm
            inside = torch.ones(self.memory.units, dtype=torch.float64)
            if isinstance(norm, nn.LayerNorm):
                inside = len(inside) ** 0.5 * norm.weight.double().abs() + norm.bias.double().abs()
            size = torch.cat([inside, size]) if self.concat else inside
        for weight, bias in self.layers:
            size = weight.double().abs() @ size + bias.double().abs()
            if not bool((size < LARGEST_BOUND).all()):
                raise ValueError("its weights are so large that actions may be no numbers")

    def normalise(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> what the network sees of it."""
        obs = (obs - self.mean) / self.std
        return obs if self.clip is None else obs.clamp(-self.clip, self.clip)

    def save(self, path: str | Path, facts: dict[str, Any] | None = None) -> None:
        """Write weights and facts, its own and more, to a safetensors file, whole or not at all."""
        structure = {"activation": self.activation, "clip": self.clip}
        structure |= {} if self.output == "clip" else {"output": self.output}  # as files of before have it
        save_tensors(Path(path), self.state_dict(), self.facts | (facts or {}) | structure)

    @classmethod
    def load(cls, path: str | Path, activation: str | None = None) -> Policy:
        """Read a safetensors policy, or an rl-games .pth (whose activation the file does not tell)."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no policy at {path}")
        if activation is not None and activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; valid: {', '.join(ACTIVATIONS)}")
        if path.suffix == ".pth":
            return cls.from_rl_games(path, activation)
        if path.suffix != ".safetensors":
            raise ValueError(f"cannot read policy {path.name!r}; valid endings: .safetensors, .pth")
        tensors, facts = load_tensors(path)
        if "activation" not in facts or not {"mean", "std"} <= tensors.keys():
            raise ValueError(f"{path.name} is not a nerd_gym policy: it has no normaliser or no activation")
        check_facts(path.name, facts, {"activation": (str,)})
        check_facts(path.name, facts, {"clip": (float, int), "output": (str,)}, needed=False)
        check_facts(path.name, facts, {"env": (str,), "options": (dict,)}, needed=False)
        check_numbers(path.name, tensors)
        if isinstance(facts.get("dynamics"), dict) and "kind" in facts["dynamics"]:
            facts["dynamics"]["kind"] = current_kind(facts["dynamics"]["kind"])
        own, clip = facts.pop("activation"), facts.pop("clip", 5.0)
        output = facts.pop("output", None) or "clip"
        try:
            layers, memory = numbered_layers(tensors, "network."), strip_prefix(tensors, "memory.")
            policy = cls(tensors["mean"], tensors["std"], layers, own, clip, facts, memory, output)
            policy.check_bounded()
        except (ValueError, RuntimeError, TypeError, LookupError, ArithmeticError) as error:
            raise ValueError(f"{path.name} is not a whole policy: {error}") from error
        return policy

    @classmethod
    def from_rl_games(
        cls, source: str | Path | Any, activation: str | None = None, facts: dict[str, Any] | None = None
    ) -> Policy:
        """A continuous policy of rl-games, MLP or recurrent: an agent or player, or a .pth with its activation told."""
        from . import conversions

        if isinstance(source, (str, Path)):
            return conversions.from_rl_games_file(source, activation, facts)
        return conversions.from_rl_games(source, facts)

    @classmethod
    def from_sb3(cls, model: Any, normaliser: Any = None, facts: dict[str, Any] | None = None) -> Policy:
        """An actor of Stable-Baselines3 (PPO, A2C, SAC), with its VecNormalize: the model's own if none is given."""
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
    missing = [name for i in indices if (name := f"{prefix}{i}.bias") not in tensors]
    if missing:
        raise ValueError(f"not a policy: it has no {', '.join(missing)}")
    return [(tensors[f"{prefix}{i}.weight"], tensors[f"{prefix}{i}.bias"]) for i in indices]
