"""ONNX files that parse, with other operators, constants and wires than a policy has."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .mutations import ODD_NUMBERS, TEXTS, Mutation

SIZES = (0, 1, -1, 2, 3, 5, 1000, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63))
OPERATORS = tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas()}))
TYPES = tuple(TensorProto.DataType.values())


def _parsed(data: bytes) -> Any:
    return onnx.ModelProto.FromString(data)


def _node(model: Any, rng: random.Random) -> Any:
    return rng.choice(list(model.graph.node))


def _name(model: Any, rng: random.Random) -> str:
    graph = model.graph
    names = [name for node in graph.node for name in (*node.input, *node.output)]
    return rng.choice([*names, *(i.name for i in graph.initializer), *(i.name for i in graph.input), "", "nothing"])


def operator(data: bytes, rng: random.Random) -> bytes:
    """A node computes something else."""
    model = _parsed(data)
    node = _node(model, rng)
    node.op_type = rng.choice((*OPERATORS, *{n.op_type for n in model.graph.node}, *TEXTS))
    if rng.random() < 0.1:
        node.domain = rng.choice(("ai.onnx.ml", "com.microsoft", "x", "ai.onnx"))
    return model.SerializeToString()


def attribute(data: bytes, rng: random.Random) -> bytes:
    """A node's attribute is missing, new or has another value or type."""
    model = _parsed(data)
    node = _node(model, rng)
    names = [a.name for a in node.attribute] + ["axis", "transB", "transA", "alpha", "hidden_size", "direction", "to"]
    names += ["epsilon", "layout", "activations", "clip", "value", "num_outputs", "perm", "keepdims", "allowzero"]
    name = rng.choice(names)
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    number = rng.choice(SIZES)
    values = (number, float(rng.choice((0.0, 1e38, -1.0, float("nan"), float("inf")))), rng.choice(TEXTS), [1] * 30)
    values += ([number, 1], [0.5, float("nan")], ["Tanh", "Sigmoid", "Affine"], np.zeros(3, "f4"), np.zeros(0, "i8"))
    value = rng.choice(values)
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    if rng.random() < 0.9:
        node.attribute.append(helper.make_attribute(name, value))
    return model.SerializeToString()


def wires(data: bytes, rng: random.Random) -> bytes:
    """Nodes read and write other values, stand elsewhere, twice or not at all."""
    model = _parsed(data)
    node, nodes = _node(model, rng), model.graph.node
    way = rng.randrange(5)
    if way == 0 and node.input:
        node.input[rng.randrange(len(node.input))] = _name(model, rng)
    elif way == 1 and node.output:
        node.output[rng.randrange(len(node.output))] = _name(model, rng)
    elif way == 2:
        nodes.append(node)
    elif way == 3:
        nodes.remove(node)
    else:
        node.input.append(_name(model, rng))
    return model.SerializeToString()


def constant(data: bytes, rng: random.Random) -> bytes:
    """A constant's shape, type or numbers are others, or it is said to be in another file."""
    model = _parsed(data)
    tensor = rng.choice(list(model.graph.initializer))
    way = rng.randrange(8)
    if way == 0:
        tensor.dims[:] = [rng.choice(SIZES) for _ in range(rng.randrange(10))]
    elif way == 1:
        tensor.data_type = rng.choice(TYPES)
    elif way == 2:
        tensor.raw_data = rng.choice((b"", tensor.raw_data[:-1], tensor.raw_data * 2, b"\xff" * len(tensor.raw_data)))
    elif way == 3:
        tensor.data_location = TensorProto.EXTERNAL
        places = ("/dev/zero", "/etc/passwd", "../x", "")
        for key, value in (("location", rng.choice(places)), ("offset", "0"), ("length", str(rng.choice(SIZES)))):
            tensor.external_data.add(key=key, value=value)
    elif way == 4:
        tensor.name = rng.choice((*TEXTS, _name(model, rng)))
    elif way == 5:
        values = numpy_helper.to_array(tensor).copy()
        with np.errstate(over="ignore", invalid="ignore"):
            values.flat[rng.randrange(values.size)] = np.float64(rng.choice(ODD_NUMBERS))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    elif way == 6:
        values = numpy_helper.to_array(tensor).astype(rng.choice(("f2", "f8", "i4", "i8", "u1", "?")))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    else:
        model.graph.sparse_initializer.add().values.CopyFrom(tensor)
    return model.SerializeToString()


def border(data: bytes, rng: random.Random) -> bytes:
    """Inputs and outputs have other types, shapes and names."""
    model = _parsed(data)
    value = rng.choice([*model.graph.input, *model.graph.output])
    kind = value.type.tensor_type
    way = rng.randrange(7)
    if way == 0 and kind.shape.dim:
        rng.choice(list(kind.shape.dim)).dim_value = rng.choice(SIZES)
    elif way == 1 and kind.shape.dim:
        rng.choice(list(kind.shape.dim)).dim_param = rng.choice((*TEXTS, "batch", "other"))
    elif way == 2:
        kind.elem_type = rng.choice(TYPES)
    elif way == 3:
        value.name = _name(model, rng)
    elif way == 4:
        kind.shape.dim.add().dim_value = rng.choice(SIZES)
    elif way == 5:
        rng.choice((model.graph.input, model.graph.output)).append(value)
    else:
        value.type.sequence_type.elem_type.tensor_type.elem_type = 1
    return model.SerializeToString()


def bomb(data: bytes, rng: random.Random) -> bytes:
    """Nodes that make much out of little stand before the end."""
    model = _parsed(data)
    graph = model.graph
    shape = [rng.choice((1, 5, 2**10, 2**31, 2**40)) for _ in range(rng.randrange(1, 4))]
    graph.initializer.append(numpy_helper.from_array(np.array(shape, "i8"), "bomb_shape"))
    graph.initializer.append(numpy_helper.from_array(np.array(2.0, "f4"), "bomb_value"))
    graph.initializer.append(numpy_helper.from_array(np.array(True), "bomb_yes"))
    last = graph.node[-1].input[0]
    body = helper.make_graph([helper.make_node("Identity", ["bomb_yes"], ["again"])], "body", [], [])
    nodes = {
        "ConstantOfShape": (["bomb_shape"], {}),
        "Expand": ([last, "bomb_shape"], {}),
        "Tile": ([last, "bomb_shape"], {}),
        "Reshape": ([last, "bomb_shape"], {}),
        "Range": (["bomb_value", "bomb_value", "bomb_value"], {}),
        "Loop": (["bomb_shape", "bomb_yes"], {"body": body}),
        "If": (["bomb_yes"], {"then_branch": body, "else_branch": body}),
        "Pad": ([last, "bomb_shape"], {}),
        "Concat": ([last] * 500, {"axis": rng.choice((0, 1))}),
        "Pow": ([last, last], {}),
        "Exp": ([last], {}),
        "Log": ([last], {}),
        "Div": ([last, last], {}),
        "Sqrt": ([last], {}),
    }
    kind = rng.choice(list(nodes))
    inputs, attributes = nodes[kind]
    for k in range(rng.choice((1, 1, 30))):
        graph.node.insert(len(graph.node) - 1, helper.make_node(kind, inputs, [f"bomb_{k}"], **attributes))
        inputs = [f"bomb_{k}" if name == last else name for name in inputs]
        last = f"bomb_{k}"
    graph.node[-1].input[0] = last
    return model.SerializeToString()


def around(data: bytes, rng: random.Random) -> bytes:
    """Versions, functions, metadata and what stands beside the graph."""
    model = _parsed(data)
    way = rng.randrange(8)
    if way == 0:
        model.ir_version = rng.choice(SIZES)
    elif way == 1 and model.opset_import:
        model.opset_import[0].version = rng.choice((*SIZES, 7, 9, 11, 13, 18, 21))
    elif way == 2:
        model.opset_import.add(domain=rng.choice(("x", "com.microsoft", "ai.onnx.ml", "")), version=1)
    elif way == 3:
        name = _node(model, rng).op_type
        node = helper.make_node(name, ["a"], ["b"])
        model.functions.append(helper.make_function("", name, ["a"], ["b"], [node], list(model.opset_import)))
    elif way == 4:
        model.metadata_props.add(key=rng.choice(("seed", *TEXTS)), value=rng.choice(("[" * 5000, "NaN", *TEXTS)))
    elif way == 5:
        model.graph.value_info.add(name=_name(model, rng)).type.tensor_type.elem_type = rng.choice(TYPES)
    elif way == 6:
        model.training_info.add()
    else:
        model.graph.ClearField(rng.choice(("node", "input", "output", "initializer")))
    return model.SerializeToString()


ONNX: list[Mutation] = [operator, attribute, wires, constant, border, bomb, around]
