"""Datasets in HDF5 that the library wrote, with other things in them than belong there."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from .mutations import ODD_NUMBERS, TEXTS, Mutation

ARRAYS = ("q", "qd", "force", "ground_point", "ground_normal")
KINDS = ("f8", "f2", ">f4", "i4", "u8", "S4", "c8", "?", [("a", "f4"), ("b", "i8")])


def _changed(data: bytes, change: Callable[[h5py.File], None]) -> bytes:
    file = io.BytesIO(data)
    with h5py.File(file, "r+") as opened:
        change(opened)
    return file.getvalue()


def attribute(data: bytes, rng: random.Random) -> bytes:
    """A fact is missing, of another type, shape or size."""

    def change(file: h5py.File) -> None:
        name = rng.choice([*file.attrs, "new"])
        known = file.attrs.get(name, 0)
        file.attrs.pop(name, None)
        choices: list[Any] = [rng.choice(ODD_NUMBERS), rng.choice(TEXTS), np.bytes_(b"\xff\xfe"), b"x" * 3000, True]
        choices += [
            [known] * 3,
            np.zeros((2, 2)),
            h5py.Empty("f4"),
            1 + 2j,
            np.zeros(3, [("a", "f4")]),
            [],
            "a" * 60000,
        ]
        choices += [np.float32("nan"), np.float16(1), np.uint64(2**64 - 1), np.longdouble(1), f"{known}", -1, 0, 2**31]
        choices += [file.ref, np.array([file.ref], h5py.ref_dtype), "[" * 3000, '{"a": NaN}', "[[1, 2]]", "{}"]
        value = rng.choice(choices)
        if isinstance(value, (int, float)) and abs(value) > 2**63:
            value = str(value)
        if rng.random() < 0.9:
            file.attrs[name] = value

    return _changed(data, change)


def many(data: bytes, rng: random.Random) -> bytes:
    """Attributes, groups or arrays by the hundred."""

    def change(file: h5py.File) -> None:
        count = rng.choice((10, 60, 300))
        for k in range(count):
            if rng.random() < 0.5:
                file.attrs[f"fact{k}"] = rng.choice((k, "text" * 20, float(k)))
            else:
                file.create_group(f"group{k}/below" if k % 2 else f"group{k}")

    return _changed(data, change)


def array(data: bytes, rng: random.Random) -> bytes:
    """An array has another type, shape, layout or filter, or holds what is no number."""

    def change(file: h5py.File) -> None:
        name = rng.choice(ARRAYS)
        small = name in file and isinstance(file[name], h5py.Dataset) and file[name].nbytes < 1e6
        values = np.asarray(file[name][()], "f4") if small else np.zeros((4, 3), "f4")
        file.pop(name, None)
        ways: list[Callable[[], Any]] = [
            lambda: None,
            lambda: file.create_dataset(name, data=values.astype(rng.choice(KINDS[:-1]))),
            lambda: file.create_dataset(name, values.shape, np.dtype(KINDS[-1])),
            lambda: file.create_dataset(name, values.shape, h5py.vlen_dtype("f4")),
            lambda: file.create_dataset(name, values.shape, h5py.string_dtype()),
            lambda: file.create_dataset(name, values.shape, h5py.ref_dtype),
            lambda: file.create_dataset(name, values.shape, h5py.regionref_dtype),
            lambda: file.create_dataset(name, data=values[: rng.randrange(4)]),
            lambda: file.create_dataset(name, data=values[..., :1]),
            lambda: file.create_dataset(name, data=values[None]),
            lambda: file.create_dataset(name, data=1.0),
            lambda: file.create_dataset(name, data=h5py.Empty("f4")),
            lambda: file.create_dataset(name, data=np.where(rng.random() < 0.5, values, np.nan)),
            lambda: file.create_dataset(name, data=_with(values, rng), chunks=tuple(1 for _ in values.shape)),
            lambda: file.create_dataset(name, data=_with(values, rng), chunks=values.shape, maxshape=values.shape),
            lambda: file.create_dataset(name, data=values, chunks=True, **_filters(rng)),
            lambda: file.create_group(name),
            lambda: file.__setitem__(name, np.dtype("f4")),
            lambda: file.create_dataset(name, data=values, fillvalue=np.nan, track_times=True),
            lambda: file.create_dataset(name, (2**40, *values.shape[1:]), "f4", chunks=(1024, *values.shape[1:])),
            lambda: file.create_dataset(name, (2**33, *values.shape[1:]), "f4"),
        ]
        rng.choice(ways)()

    return _changed(data, change)


def _with(values: np.ndarray, rng: random.Random) -> np.ndarray:
    """One number is another."""
    values = values.copy()
    if values.size:
        with np.errstate(over="ignore"):
            values.flat[rng.randrange(values.size)] = np.float32(rng.choice(ODD_NUMBERS))
    return values


def _filters(rng: random.Random) -> dict[str, Any]:
    plain = ({"compression": "gzip"}, {"compression": "lzf"}, {"shuffle": True}, {"fletcher32": True})
    more = ({"scaleoffset": 3}, {"compression": "gzip", "compression_opts": 9, "shuffle": True, "fletcher32": True})
    return rng.choice((*plain, *more))


def elsewhere(data: bytes, rng: random.Random) -> bytes:
    """An array is a link, a view, or bytes of another file."""

    def change(file: h5py.File) -> None:
        name, other = rng.choice(ARRAYS), rng.choice(ARRAYS)
        shape = file[name].shape if name in file else (4, 3)
        file.pop(name, None)
        where = rng.choice(("/dev/zero", "/etc/passwd", "stranger.h5", "../x.h5", "."))
        layout = h5py.VirtualLayout(shape, "f4")
        layout[:] = h5py.VirtualSource(where, other, shape)
        ways: list[Callable[[], Any]] = [
            lambda: file.__setitem__(name, h5py.SoftLink(f"/{rng.choice((other, name, '.', ''))}")),
            lambda: file.__setitem__(name, h5py.ExternalLink(where, other)),
            lambda: file.create_virtual_dataset(name, layout),
            lambda: file.create_dataset(name, shape, "f4", external=[(where, 0, h5py.h5f.UNLIMITED)]),
            lambda: file.__setitem__(name, file[other]) if other in file else None,
            lambda: file.create_group("loop").__setitem__("up", file["/"]),
        ]
        rng.choice(ways)()

    return _changed(data, change)


def packed(data: bytes, rng: random.Random) -> bytes:
    """A large array of one number in a small file, whole or in part."""

    def change(file: h5py.File) -> None:
        name = rng.choice(ARRAYS)
        shape = tuple(file[name].shape[1:]) if name in file and file[name].shape else (3,)
        file.pop(name, None)
        rows = rng.choice((1000, 20_000))
        array = file.create_dataset(name, (rows, *shape), "f4", chunks=(rows // 10, *shape), compression="gzip")
        array[: rng.choice((rows // 10, rows))] = 0.0

    return _changed(data, change)


def rewritten(data: bytes, rng: random.Random) -> bytes:
    """The same in a later version of the format, or after a block of the user's."""
    out = io.BytesIO()
    options = rng.choice(({"libver": "latest"}, {"libver": ("v108", "v110")}, {"userblock_size": 512}))
    with h5py.File(io.BytesIO(data), "r") as old, h5py.File(out, "w", **options, track_order=rng.random() < 0.5) as new:
        new.attrs.update(old.attrs)
        for name in old:
            old.copy(name, new)
    return out.getvalue()


HDF5: list[Mutation] = [attribute, attribute, many, array, array, array, elsewhere, packed, rewritten]
