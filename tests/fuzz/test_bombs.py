"""Small files that ask for much are refused within a second of CPU time and 200 MB."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable

import h5py
import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from nerd_gym.policies.onnx import onnx_model
from tests.fuzz.harness import fuzz
from tests.fuzz.kinds import KINDS
from tests.support.policies import small_policy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of a process are set as Linux has them")
DEEP = "[" * 100_000 + "]" * 100_000


def tensor_of_one_number() -> bytes:
    """8 GB by a stride of 0."""
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ"
    rest = b"".join(pickle.dumps(x, 2)[2:-1] for x in (0, (2_000_000_000,), (0,), False, {}))
    return archive(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR.", {"0": b"\0\0\x80?"})


def compressed_storage() -> bytes:
    """400 MB of zeros in half a megabyte."""
    storage = (
        b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ" + struct.pack("<i", 10**8) + b"tQ"
    )
    rest = b"".join(pickle.dumps(x, 2)[2:-1] for x in (0, (10**8,), (1,), False, {}))
    program = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR."
    return archive(program, {"0": bytes(4 * 10**8)}, zipfile.ZIP_DEFLATED)


def nested_pickle() -> bytes:
    """Lists in lists, a million deep."""
    return archive(b"\x80\x02" + b"(" * 1_000_000 + b"l" * 1_000_000 + b".")


def archive(program: bytes, storages: dict[str, bytes] | None = None, compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        file.writestr("policy/data.pkl", program)
        for key, data in (storages or {}).items():
            file.writestr(f"policy/data/{key}", data)
    return out.getvalue()


def unwritten() -> bytes:
    """1.2 TB of which the file holds nothing."""

    def write(file: h5py.File) -> None:
        file.create_dataset("q", (25_000_000_000, 6, 2), "f4", chunks=(1024, 6, 2))

    return dataset(write)


def packed() -> bytes:
    """4.8 GB of zeros, a chunk of which is there."""

    def write(file: h5py.File) -> None:
        file.create_dataset("q", (100_000_000, 6, 2), "f4", chunks=(100_000, 6, 2), compression="gzip")[:10] = 0

    return dataset(write)


def dataset(write: Callable[[h5py.File], None]) -> bytes:
    file = io.BytesIO(KINDS["dataset"].seeds()[0])
    with h5py.File(file, "r+") as opened:
        del opened["q"]
        write(opened)
    return file.getvalue()


def onnx_bomb(kind: str, shape: tuple[int, ...]) -> bytes:
    model = onnx_model(small_policy())
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.array(shape, "i8"), "shape"))
    inputs = ["shape"] if kind == "ConstantOfShape" else [graph.node[-1].input[0], "shape"]
    graph.node.insert(len(graph.node) - 1, helper.make_node(kind, inputs, ["bomb"]))
    graph.node[-1].input[0] = "bomb"
    return model.SerializeToString()


def onnx_facts() -> bytes:
    model = onnx_model(small_policy())
    model.metadata_props.add(key="deep", value=DEEP)
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    return model.SerializeToString()


def deep_facts() -> bytes:
    data = KINDS["policy"].seeds()[0]
    size = struct.unpack("<Q", data[:8])[0]
    told = json.loads(data[8 : 8 + size])
    told["__metadata__"]["facts"] = f'{{"activation": "elu", "x": {DEEP}}}'
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def aliases() -> bytes:
    lines = ["a0: &a0 [x, x]", *(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 30))]
    return "\n".join([*lines, "default: *a29"]).encode()


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "stride 0": ("checkpoint", tensor_of_one_number),
    "compressed storage": ("checkpoint", compressed_storage),
    "nested pickle": ("checkpoint", nested_pickle),
    "unwritten set": ("dataset", unwritten),
    "packed set": ("dataset", packed),
    "ConstantOfShape": ("onnx", lambda: onnx_bomb("ConstantOfShape", (2_000_000_000,))),
    "Expand": ("onnx", lambda: onnx_bomb("Expand", (2_000_000_000, 3))),
    "Tile": ("onnx", lambda: onnx_bomb("Tile", (1, 2_000_000_000))),
    "onnx facts": ("onnx", onnx_facts),
    "deep json": ("policy", deep_facts),
    "yaml aliases": ("yaml", aliases),
    "deep yaml": ("yaml", lambda: f"default: {DEEP}".encode()),
    "replicate": (
        "mjcf",
        lambda: b"<mujoco><worldbody><replicate count='2000000000'><geom size='1'/></replicate></worldbody></mujoco>",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(name):
    kind = KINDS[BOMBS[name][0]]
    content = BOMBS[name][1]()
    assert len(content) < 5_000_000
    kind.seeds()  # whatever a kind needs is loaded by now
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        report = fuzz(kind.open, [(name, content)], kind.suffix, memory=200 * 2**20, cpu_seconds=1)
    finally:
        torch.set_num_threads(threads)
    assert report.outcomes == {"refused": 1}, report.bad
