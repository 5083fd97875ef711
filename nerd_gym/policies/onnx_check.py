"""What an ONNX file of a stranger may contain: the layers of a policy, and nothing that makes much out of little."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nerd_gym.utils.optional import require

MOST_NODES = 1000
LARGEST_VALUE = 2**22  # numbers in a value on the way, for one row of a batch
# Linear layers, activations, recurrent layers, norms, and what moves numbers about without adding to them.
ALLOWED = frozenset(
    [
        "Abs",
        "Add",
        "AveragePool",
        "BatchNormalization",
        "Cast",
        "Clip",
        "Concat",
        "Constant",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Flatten",
        "Gelu",
        "Gemm",
        "GRU",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LayerNormalization",
        "LeakyRelu",
        "Log",
        "LSTM",
        "MatMul",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Pow",
        "ReduceMean",
        "Relu",
        "Reshape",
        "RNN",
        "Selu",
        "Sigmoid",
        "Slice",
        "Softmax",
        "Softplus",
        "Softsign",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tanh",
        "Transpose",
        "Unsqueeze",
    ]
)


def check_onnx(data: bytes, name: str) -> None:
    """Raise a ValueError that says what is wrong with an ONNX file, if it is not the plain network of a policy."""
    onnx = require("onnx", extra="export")
    try:
        model = onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf's errors have no common class over its versions
        raise ValueError(f"{name} is not an ONNX file, or is damaged: {error}") from error
    graph = model.graph
    if model.functions or model.training_info or graph.sparse_initializer:
        raise ValueError(f"{name} has functions, training or sparse weights; a policy has none")
    odd = sorted({opset.domain for opset in model.opset_import} - {"", "ai.onnx"})
    if odd:
        raise ValueError(f"{name} needs operators of {odd[0]!r}; valid: those of ONNX itself")
    if len(graph.node) > MOST_NODES:
        raise ValueError(f"{name} has {len(graph.node)} nodes; at most {MOST_NODES} are read")
    for tensor in graph.initializer:
        _check_tensor(onnx, tensor, name)
    for node in graph.node:
        if node.op_type not in ALLOWED or node.domain not in ("", "ai.onnx"):
            raise ValueError(f"{name} has a node {node.op_type!r}; valid: {', '.join(sorted(ALLOWED))}")
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs or attribute.HasField("sparse_tensor"):
                raise ValueError(f"{name} has a node {node.op_type!r} with a graph or sparse numbers inside")
            for tensor in [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]:
                _check_tensor(onnx, tensor, name)
    _check_shapes(onnx, model, name)


def _check_tensor(onnx: Any, tensor: Any, name: str) -> None:
    """Constants are in the file, as large as they say, and finite."""
    if tensor.data_location != onnx.TensorProto.DEFAULT or tensor.external_data:
        raise ValueError(f"{name} keeps {tensor.name!r} in another file, which is not read")
    dims = list(tensor.dims)
    fields = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    present = max(len(getattr(tensor, field)) for field in fields)
    if any(d < 0 for d in dims) or len(dims) > 8 or math.prod(dims) > present:
        raise ValueError(f"{name} has a constant {tensor.name!r} of shape {dims} with {present} numbers or bytes")
    try:
        values = onnx.numpy_helper.to_array(tensor)
    except Exception as error:  # of many kinds, for many ways to be wrong
        raise ValueError(f"{name} has a constant {tensor.name!r} that cannot be read: {error}") from error
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{name} has a constant {tensor.name!r} that is not finite")


def _check_shapes(onnx: Any, model: Any, name: str) -> None:
    """No value may be large, whatever the operators make of their inputs."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:  # of many kinds, for many ways to be wrong
        raise ValueError(f"{name} has shapes that do not fit together: {error}") from error
    graph = inferred.graph
    known = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    for wanted in {output for node in graph.node for output in node.output if output}:
        value = known.get(wanted)
        if value is None or not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise ValueError(f"{name} does not tell how large {wanted!r} becomes")
        dims = [d.dim_value if d.HasField("dim_value") else 1 for d in value.type.tensor_type.shape.dim]
        if math.prod(dims) > LARGEST_VALUE:
            raise ValueError(f"{name} makes a value {wanted!r} of shape {dims}; at most {LARGEST_VALUE} numbers fit")
