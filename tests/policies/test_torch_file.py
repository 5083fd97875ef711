"""Checkpoints of strangers: plain ones are read as torch reads them, and no file makes us call what it names."""

from __future__ import annotations

import builtins
import codecs
import collections
import inspect
import io
import os
import pickle
import struct
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from nerd_gym.policies.torch_file import UnsafePolicy, read_torch_file


def archive(path: Path, program: bytes, storages: dict[str, bytes] | None = None, **options) -> Path:
    """A checkpoint with this pickle."""
    with zipfile.ZipFile(path, "w", **options) as file:
        file.writestr("policy/data.pkl", program)
        file.writestr("policy/byteorder", b"little")
        for key, data in (storages or {}).items():
            file.writestr(f"policy/data/{key}", data)
    return path


def call(name: str, *arguments: object) -> bytes:
    """A pickle that calls "module name" with plain arguments."""
    module, _, attribute = name.partition(" ")
    inside = b"".join(pickle.dumps(argument, 2)[2:-1] for argument in arguments)
    return b"\x80\x02c" + f"{module}\n{attribute}\n".encode() + b"(" + inside + b"tR."


def test_a_plain_checkpoint_is_read_as_torch_reads_it(tmp_path):
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(4, 6, generator=generator)
    kinds = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
    model = collections.OrderedDict(
        whole=shared, part=shared[1:3, ::2], turned=shared.t(), empty=torch.zeros(0, 3), number=torch.tensor(2.5)
    )
    model |= {str(kind): torch.arange(5).to(kind) for kind in kinds}
    checkpoint = {"model": model, "frame": 7, "epoch": None, "names": ["a", ("b", True)], 3: 1e-300}
    torch.save(checkpoint, tmp_path / "plain.pth")
    ours = read_torch_file(tmp_path / "plain.pth")
    assert {k: v for k, v in ours.items() if k != "model"} == {k: v for k, v in checkpoint.items() if k != "model"}
    assert list(ours["model"]) == list(model)
    for name, tensor in model.items():
        assert ours["model"][name].dtype == tensor.dtype and torch.equal(ours["model"][name], tensor)
    ours["model"]["part"].zero_()
    assert torch.equal(ours["model"]["whole"], shared)  # every tensor has memory of its own


@pytest.mark.parametrize("number", [np.float32(1.5), np.float64(-2.25), np.int64(-(2**40)), np.bool_(True)])
def test_numbers_of_numpy_become_plain_ones(number, tmp_path):
    torch.save({"frame": number}, tmp_path / "number.pth")
    ours = read_torch_file(tmp_path / "number.pth")["frame"]
    assert type(ours) in (float, int, bool) and ours == number


MODULES = (builtins, os, subprocess, collections, codecs, torch, torch._utils, np, pickle, io)
NAMED = [
    f"{module.__name__} {name}"
    for module in MODULES
    for name, value in inspect.getmembers(module, callable)
    if f"{module.__name__} {name}" not in ("collections OrderedDict", "torch._utils _rebuild_tensor_v2")
]
NAMED += ["posix system", "nt system", "numpy._core.multiarray _reconstruct", "numpy.core.multiarray _reconstruct"]
NAMED += ["builtins getattr.__class__", "collections OrderedDict.fromkeys", "torch.storage _load_from_bytes"]


def test_no_callable_that_a_file_names_is_called(tmp_path):
    canary = tmp_path / "canary"
    refused = 0
    for name in NAMED:
        if name in ("torch._utils _rebuild_parameter", "numpy dtype"):
            continue  # ours, which make nothing but a tensor and a type code
        path = archive(tmp_path / "gadget.pth", call(name, f"touch {canary}"))
        with pytest.raises(
            UnsafePolicy, match=r"gadget\.pth was refused and nothing of it was run: it (asks for|calls) "
        ):
            read_torch_file(path)
        refused += 1
    assert refused > 1000 and not canary.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02cposix\nsystem\n.",  # only named
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",  # named from the stack
        b"\x80\x02(S'id'\nios\nsystem\n.",  # INST
        b"\x80\x02(cposix\nsystem\nS'id'\no.",  # OBJ
        b"\x80\x02cposix\nsystem\n)\x81.",  # NEWOBJ
        b"\x80\x02ccollections\nOrderedDict\n)\x81.",  # NEWOBJ of an allowed name
        b"\x80\x04ccollections\nOrderedDict\n)}\x92.",  # NEWOBJ_EX
        b"\x80\x02\x82\x01.",  # an extension registry's code
        b"\x80\x02P12\n.",  # a persistent id as text
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",  # a bytearray of 2**63 bytes
    ],
)
def test_other_ways_to_call_are_refused(program, tmp_path):
    with pytest.raises(ValueError, match=r"gadget\.pth"):
        read_torch_file(archive(tmp_path / "gadget.pth", program))


def dtype_attack(state: object, code: str = "f8", data: bytes = b"\0" * 8) -> bytes:
    """A numpy scalar whose dtype is given a state by the file."""
    text = pickle.dumps((code, False, True), 2)[2:-1]
    scalar = b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n" + text + b"R" + pickle.dumps(state, 2)[2:-1] + b"b"
    encoded = b"c_codecs\nencode\n(" + pickle.dumps(data.decode("latin1"), 2)[2:-1] + b"X\x06\0\0\0latin1tR"
    return b"\x80\x02}X\x05\0\0\0frame" + scalar + encoded + b"tRs."


@pytest.mark.parametrize(
    "state",
    [
        (3, "<", None, None, None, -1, -1, 0),  # the plain one
        (3, "|", None, ("x",), {"x": (0, 0)}, 2**40, 1, 63),  # fields that point anywhere
        (4, "<", (0x41414141, (1,)), None, None, 8, 8, 0, {"a": 1}),
        tuple(range(9)),
        "state",
        {"names": ("a",), "fields": None},
        None,
    ],
)
def test_the_state_of_a_type_is_never_set(state, tmp_path):
    path = archive(tmp_path / "dtype.pth", dtype_attack(state, data=struct.pack("<d", 3.5)))
    assert read_torch_file(path) == {"frame": 3.5}


@pytest.mark.parametrize(
    "code", ["O", "O8", "V8", "S8", "U2", "f2", "c16", "m8", "M8[ns]", "f8,f8", "(2,)f8", ">f8", ""]
)
def test_only_plain_numbers_have_a_type_code(code, tmp_path):
    with pytest.raises(ValueError, match=r"dtype\.pth.*unknown; valid: f4, f8"):
        read_torch_file(archive(tmp_path / "dtype.pth", dtype_attack(None, code)))


def tensor(storage: int, offset: int, size: tuple, stride: tuple, count: int | None = None) -> bytes:
    """A pickle of one tensor over storage "0" of so many floats."""
    persistent = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu"
    persistent += pickle.dumps(storage if count is None else count, 2)[2:-1] + b"tQ"
    rest = b"".join(pickle.dumps(x, 2)[2:-1] for x in (offset, size, stride, False, {}))
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + persistent + rest + b"tR."


@pytest.mark.parametrize(
    ("offset", "size", "stride", "count"),
    [
        (0, (2_000_000_000,), (0,), None),  # 8 GB out of one number
        (0, (5,), (1,), None),  # beyond the end
        (4, (1,), (1,), None),
        (-1, (1,), (1,), None),
        (0, (-1,), (1,), None),
        (0, (2,), (-1,), None),
        (0, (1,) * 9, (1,) * 9, None),
        (0, (1,), (1, 1), None),
        (0, (1.0,), (1,), None),
        (0, (1,), (1,), 2**40),  # a storage that says it is larger than it is
        (0, (1,), (1,), 3),
        (2**63, (1,), (1,), None),
    ],
)
def test_a_tensor_stays_within_its_storage(offset, size, stride, count, tmp_path):
    data = np.arange(4, dtype="<f4").tobytes()
    with pytest.raises(ValueError, match=r"tensor\.pth is not a checkpoint, or is damaged"):
        read_torch_file(archive(tmp_path / "tensor.pth", tensor(4, offset, size, stride, count), {"0": data}))
    good = read_torch_file(archive(tmp_path / "tensor.pth", tensor(4, 1, (2,), (2,)), {"0": data}))
    assert good.tolist() == [1.0, 3.0]


def test_archives_that_are_larger_inside_than_outside_are_refused(tmp_path):
    program = tensor(25_000_000, 0, (1,), (1,))
    path = archive(
        tmp_path / "bomb.pth", program, {"0": b"\0" * 100_000_000}, compression=zipfile.ZIP_DEFLATED, compresslevel=9
    )
    assert path.stat().st_size < 1_000_000
    with pytest.raises(ValueError, match=r"bomb\.pth.*compressed"):
        read_torch_file(path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"GIF89a" * 100])
def test_what_is_no_archive_is_named(data, tmp_path):
    (tmp_path / "other.pth").write_bytes(data)
    with pytest.raises(ValueError, match=r"other\.pth is not a checkpoint"):
        read_torch_file(tmp_path / "other.pth")
