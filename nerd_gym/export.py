"""Policies as ONNX: the normaliser and the limits of the action inside, facts as metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from .files import whole
from .optional import require
from .policies import Policy

OPSET, IR = 17, 8  # of 2022: old runtimes read them too
TOLERANCE = 1e-5


def export_onnx(policy: Policy, path: str | Path) -> float:
    """Write `obs` [batch, obs_size] -> `actions` [batch, action_size]; the largest difference to the policy.

    The file appears only if onnxruntime computes from it what the policy does.
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


def difference(policy: Policy, data: bytes, count: int = 1000, seed: int = 0) -> float:
    """Largest difference between the actions of a policy and of its ONNX on random observations."""
    runtime = require("onnxruntime", extra="export")
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    noise = torch.randn(count, policy.obs_size, generator=torch.Generator().manual_seed(seed))
    obs = policy.mean.cpu() + 3 * policy.std.cpu() * noise
    (actions,) = session.run(None, {"obs": obs.numpy()})
    return float((torch.as_tensor(actions) - policy.act(obs.to(policy.mean.device)).cpu()).abs().max())


def onnx_model(policy: Policy) -> Any:
    """The policy as an onnx.ModelProto."""
    onnx = require("onnx", extra="export")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    nodes, constants = [], []

    def constant(name: str, value: Any) -> str:
        constants.append(onnx.numpy_helper.from_array(torch.as_tensor(value).float().cpu().numpy(), name))
        return name

    def node(kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        name = name or f"{kind.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    x = node("Sub", "obs", constant("mean", policy.mean))
    x = node("Div", x, constant("std", policy.std))
    if policy.clip is not None:
        x = node("Clip", x, constant("obs_min", -policy.clip), constant("obs_max", policy.clip))
    for k, (weight, bias) in enumerate(policy.layers):
        if k and policy.activation == "silu":
            x = node("Mul", x, node("Sigmoid", x))
        elif k:
            x = node({"tanh": "Tanh", "relu": "Relu", "elu": "Elu"}[policy.activation], x)
        x = node("Gemm", x, constant(f"weight_{k}", weight), constant(f"bias_{k}", bias), transB=1)
    node("Clip", x, constant("action_min", -1.0), constant("action_max", 1.0), name="actions")
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", float32, ["batch", policy.obs_size])],
        [helper.make_tensor_value_info("actions", float32, ["batch", policy.action_size])],
        constants,
    )
    model = helper.make_model(
        graph, producer_name="nerd_gym", ir_version=IR, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    facts = policy.facts | {"activation": policy.activation}
    helper.set_model_props(model, {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()})
    onnx.checker.check_model(model, full_check=True)
    return model
