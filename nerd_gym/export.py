"""Policies as ONNX: the normaliser and the limits of the action inside, facts as metadata."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .files import whole
from .optional import require
from .policies import Memory, Policy

OPSET, IR = 17, 8  # of 2022: old runtimes read them too
TOLERANCE = 1e-5


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
    with whole(path) as part:
        part.write_bytes(data)
    return error


def difference(policy: Policy, data: bytes, count: int = 250, steps: int = 4, seed: int = 0) -> float:
    """Largest difference between the actions of a policy and of its ONNX on random observations."""
    runtime = require("onnxruntime", extra="export")
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    policy = deepcopy(policy).cpu()
    policy.reset()
    names = [node.name for node in session.get_inputs()][1:]  # of the memory's state
    state = {name: np.zeros((policy.memory.rnn.num_layers, count, policy.memory.units), "f4") for name in names}
    worst = 0.0
    for noise in torch.randn(steps, count, policy.obs_size, generator=torch.Generator().manual_seed(seed)):
        obs = policy.mean + 3 * policy.std * noise
        actions, *after = session.run(None, {"obs": obs.numpy(), **state})
        state = dict(zip(names, after))
        worst = max(worst, float((torch.as_tensor(actions) - policy.act(obs)).abs().max()))
    return worst


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
    node("Clip", x, constant("action_min", -1.0), constant("action_max", 1.0), name="actions")
    sizes = (policy.memory.rnn.num_layers, "batch", policy.memory.units) if state else ()
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
