"""Policies as ONNX, written and read: the normaliser and the limits of the action inside, facts as metadata."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nerd_gym.utils.files import atomic_write, plain_json
from nerd_gym.utils.optional import require

from .onnx_check import check_onnx
from .policy import MOST_INPUTS, Memory, Policy

OPSET, IR = 17, 8  # of 2022: old runtimes read them too
TOLERANCE = 1e-5
MOST_UNITS = 2**16  # of a memory


def export_onnx(policy: Policy, path: str | Path) -> float:
    """Write `obs` [batch, obs_size] -> `actions` [batch, action_size]; the largest difference to the policy.

    A memory adds `h`, and `c` of an LSTM, [depth, batch, units], zeros at the start of an episode, and `h_out` and
    `c_out`, which the next step takes. The file appears only if onnxruntime computes from it what the policy does.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ValueError(f"cannot export to {path.name!r}; valid ending: .onnx")
    data = onnx_model(policy).SerializeToString()
    error = difference(policy, data)
    if not error <= TOLERANCE:
        raise ValueError(f"{path.name} was not written: onnxruntime's actions are off by {error:.1e}")
    with atomic_write(path) as part:
        part.write_bytes(data)
    return error


def difference(policy: Policy, data: bytes, count: int = 250, steps: int = 4, seed: int = 0) -> float:
    """Largest difference between the actions of a policy and of its ONNX on random observations."""
    policy, other = deepcopy(policy).cpu(), OnnxPolicy(data)
    policy.reset()
    worst = 0.0
    for noise in torch.randn(steps, count, policy.obs_size, generator=torch.Generator().manual_seed(seed)):
        obs = policy.mean + 3 * policy.std * noise
        worst = max(worst, float((other.act(obs) - policy.act(obs)).abs().max()))
    return worst


class OnnxPolicy:
    """A policy in onnxruntime: the first input takes observations, the first output gives actions.

    Any other input is a memory's state, [depth, batch, units], zeros at the start; the output of its name with _out
    is what the next step takes.

    Args:
        data: of an ONNX file.
        name: how errors call it.
    """

    def __init__(self, data: bytes, name: str = "this ONNX"):
        try:
            self._start(data, name)
        except UnicodeError as error:  # of a name in the file, whenever it is first asked for
            raise ValueError(f"{name} is not an ONNX policy, or is damaged: {error}") from error

    def _start(self, data: bytes, name: str) -> None:
        runtime = require("onnxruntime", extra="export")
        check_onnx(data, name)
        try:
            self._session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's have no common class
            raise ValueError(f"{name} is not an ONNX policy, or is damaged: {error}") from error
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if not inputs or not outputs:
            raise ValueError(
                f"{name} has {len(inputs)} inputs and {len(outputs)} outputs; a policy has one each at least"
            )
        obs, *state = inputs
        shapes = [list(node.shape) for node in (obs, outputs[0])]
        if any(len(shape) != 2 or isinstance(shape[0], int) or not isinstance(shape[1], int) for shape in shapes):
            raise ValueError(f"{name} maps {shapes[0]} to {shapes[1]}; valid: [batch, size], the batch of any size")
        missing = [node.name for node in state if f"{node.name}_out" not in {out.name for out in outputs}]
        if missing:
            raise ValueError(f"{name} has inputs {', '.join(missing)} without outputs of their name and _out")
        self.obs_size, self.action_size = (shape[1] for shape in shapes)
        self.facts = {key: _fact(text, name) for key, text in self._session.get_modelmeta().custom_metadata_map.items()}
        if not 0 < self.obs_size <= MOST_INPUTS:
            raise ValueError(f"{name} takes observations of {self.obs_size} numbers; valid: 1 to {MOST_INPUTS}")
        for node in state:
            if len(node.shape) != 3 or not all(type(d) is int and 0 < d <= MOST_UNITS for d in node.shape[::2]):
                raise ValueError(
                    f"{name} has a memory {node.name!r} of shape {node.shape}; valid: [depth, batch, units]"
                )
        self._name, self._obs = name, obs.name
        self._sizes = {node.name: (node.shape[0], node.shape[2]) for node in state}
        self._wanted = [outputs[0].name, *(f"{name}_out" for name in self._sizes)]
        self._state: dict[str, np.ndarray] = {}
        self._try()

    @classmethod
    def load(cls, path: str | Path) -> OnnxPolicy:
        """From a file."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no policy at {path}")
        return cls(path.read_bytes(), path.name)

    def act(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> action [N, action_size]."""
        if not self._state:
            self._state = {name: np.zeros((d, len(obs), units), "f4") for name, (d, units) in self._sizes.items()}
        given = {self._obs: obs.float().cpu().numpy(), **self._state}
        action, *after = self._session.run(self._wanted, given)
        if not np.isfinite(action).all():
            raise ValueError(f"{self._name} gives an action that is not finite")
        self._state = dict(zip(self._sizes, after))
        return torch.as_tensor(action, device=obs.device)

    def _try(self) -> None:
        """Two steps of two robots, since some operators find only then that their inputs do not fit."""
        try:
            for obs in torch.zeros(2, 2, self.obs_size):
                found = self.act(obs)
        except Exception as error:  # onnxruntime's have no common class
            raise ValueError(f"{self._name} is not an ONNX policy, or is damaged: {error}") from error
        if found.shape != (2, self.action_size) or found.dtype != torch.float32:
            told = f"{list(found.shape)} of {found.dtype}"
            raise ValueError(
                f"{self._name} gives actions {told} for two robots; valid: [2, {self.action_size}] of float32"
            )
        self.reset()

    def reset(self, rows: Tensor | None = None) -> None:
        """Forget what was seen: everything, or of the episodes of a mask [N]."""
        if rows is None:
            self._state = {}
            return
        for name, state in self._state.items():
            self._state[name] = np.where(rows.cpu().numpy()[:, None], np.float32(0), state)


def _fact(text: str, name: str) -> Any:
    """As :func:`onnx_model` wrote it: text as it is, anything else as json."""
    try:
        return plain_json(text)
    except json.JSONDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} has facts that cannot be read: {error}") from error


def onnx_model(policy: Policy) -> Any:
    """The policy as an onnx.ModelProto."""
    onnx = require("onnx", extra="export")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    nodes, constants = [], []

    def constant(name: str, value: Any) -> str:
        tensor = torch.as_tensor(value)
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        constants.append(onnx.numpy_helper.from_array(tensor.cpu().numpy(), name))
        return name

    def node(kind: str, *inputs: str, name: str | None = None, outputs: list[str] | None = None, **more: Any) -> str:
        name = name or f"{kind.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, outputs or [name], name, **more))
        return name

    def value(name: str, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(name, float32, shape)

    x = node("Sub", "obs", constant("mean", policy.mean))
    x = node("Div", x, constant("std", policy.std))
    if policy.clip is not None:
        x = node("Clip", x, constant("obs_min", -policy.clip), constant("obs_max", policy.clip))
    state = [] if policy.memory is None else ["h", "c"] if isinstance(policy.memory.rnn, nn.LSTM) else ["h"]
    if policy.memory is not None:
        out = _recurrent(policy.memory, x, state, node, constant)
        x = node("Concat", out, x, axis=-1) if policy.concat else out
    for k, (weight, bias) in enumerate(policy.layers):
        if k and policy.activation == "silu":
            x = node("Mul", x, node("Sigmoid", x))
        elif k:
            x = node({"tanh": "Tanh", "relu": "Relu", "elu": "Elu"}[policy.activation], x)
        x = node("Gemm", x, constant(f"weight_{k}", weight), constant(f"bias_{k}", bias), transB=1)
    if policy.output == "tanh":
        node("Tanh", x, name="actions")
    else:
        node("Clip", x, constant("action_min", -1.0), constant("action_max", 1.0), name="actions")
    sizes = () if policy.memory is None else (policy.memory.rnn.num_layers, "batch", policy.memory.units)
    inputs = [value("obs", "batch", policy.obs_size), *(value(name, *sizes) for name in state)]
    outputs = [value("actions", "batch", policy.action_size), *(value(f"{name}_out", *sizes) for name in state)]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    model = helper.make_model(
        graph, producer_name="nerd_gym", ir_version=IR, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    facts = policy.facts | {"activation": policy.activation}
    helper.set_model_props(model, {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()})
    onnx.checker.check_model(model, full_check=True)
    return model


def _recurrent(memory: Memory, x: str, state: list[str], node: Callable, constant: Callable) -> str:
    """Nodes of a recurrent layer on `x`; they read `state` and write it to names with _out."""
    rnn, kind = memory.rnn, type(memory.rnn).__name__
    # Torch has the gates i f g o and r z n, ONNX i o f g and z r n.
    order = [0, 3, 1, 2] if kind == "LSTM" else [1, 0, 2]
    options = {} if kind == "LSTM" else {"linear_before_reset": 1}

    def gates(name: str, layer: int) -> Tensor:
        parts = getattr(rnn, f"{name}_l{layer}").chunk(len(order))
        return torch.cat([parts[k] for k in order])

    first = constant("first_axis", torch.tensor([0]))
    depth = range(rnn.num_layers)
    for name in state:
        node("Split", name, axis=0, name=f"{name}_split", outputs=[f"{name}_{k}" for k in depth])
    x = node("Unsqueeze", x, first)
    for k in depth:
        weight = constant(f"{kind}_w_{k}", gates("weight_ih", k)[None])
        hidden = constant(f"{kind}_r_{k}", gates("weight_hh", k)[None])
        bias = constant(f"{kind}_b_{k}", torch.cat([gates("bias_ih", k), gates("bias_hh", k)])[None])
        before, after = [f"{name}_{k}" for name in state], [f"{name}_{k}_out" for name in state]
        sizes = {"hidden_size": rnn.hidden_size, **options}
        node(kind, x, weight, hidden, bias, "", *before, name=f"{kind}_{k}", outputs=["", *after], **sizes)
        x = after[0]  # a sequence of one step is its last output
    for name in state:
        node("Concat", *(f"{name}_{k}_out" for k in depth), axis=0, name=f"{name}_out")
    x = node("Squeeze", x, first)
    if isinstance(memory.norm, nn.Identity):
        return x
    scale, shift = constant("norm_weight", memory.norm.weight), constant("norm_bias", memory.norm.bias)
    return node("LayerNormalization", x, scale, shift, axis=-1, epsilon=memory.norm.eps)
