"""Reads what torch.save wrote without torch's unpickler, for checkpoints that come from strangers.

A checkpoint is a zip with one pickle and a raw file per storage. A pickle is a program: here a small machine runs the
few instructions that plain checkpoints are made of. All it can make are numbers, text, bytes, tuples, lists, dicts and
tensors; a name that the file asks for is looked up in a table of functions of this module, never imported. Sizes are
bounded by the file's own: a tensor has at most the elements of its storage, and all storages together at most the bytes
of the file.
"""

from __future__ import annotations

import math
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

LARGEST_PICKLE = 16 * 2**20  # bytes; those of rl-games have about 6 kB
MOST_DIMENSIONS = 8
STORAGES = {
    "torch FloatStorage": torch.float32,
    "torch DoubleStorage": torch.float64,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
}
# numpy's codes of plain numbers, and how struct reads them.
NUMBERS = {"f4": "<f", "f8": "<d", "i4": "<i", "i8": "<q", "u4": "<I", "u8": "<Q", "b1": "<?"}


class UnsafePolicy(ValueError):
    """The file asks for code to be run."""


class Name(NamedTuple):
    """Something that the file asks for, "module name"."""

    text: str


class TypeCode(NamedTuple):
    """Of a numpy number."""

    code: str


class Storage(NamedTuple):
    """A raw file of the archive."""

    key: str
    dtype: torch.dtype
    count: int


MARK = object()
# What zipfile, pickletools, struct and the machine below raise for a file that is not what it says.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, OSError, EOFError, RuntimeError)
DAMAGE += (struct.error, zipfile.BadZipFile)


def read_torch_file(path: str | Path) -> Any:
    """What a checkpoint holds; UnsafePolicy if it asks for code, ValueError if it is damaged or not a checkpoint."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with path.open("rb") as file:
            if file.read(1) == pickle.PROTO and not zipfile.is_zipfile(file):
                raise UnsafePolicy("it is a bare pickle, no plain checkpoint")
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive, path.stat().st_size).read()
    except UnsafePolicy as error:
        raise UnsafePolicy(f"{path.name} was refused and nothing of it was run: {error}") from error
    except DAMAGE as error:
        raise ValueError(f"{path.name} is not a checkpoint, or is damaged: {type(error).__name__}: {error}") from error


class _Reader:
    """Runs the pickle of one archive."""

    def __init__(self, archive: zipfile.ZipFile, size: int):
        self._archive, self._left = archive, size
        pickles = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"it has {len(pickles)} files data.pkl; a checkpoint has one")
        self._pickle, self._folder = pickles[0], pickles[0].removesuffix("data.pkl")
        self._tensors: dict[str, Tensor] = {}
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._calls: dict[str, Callable[..., Any]] = {
            "collections OrderedDict": lambda: {},
            "torch._utils _rebuild_tensor_v2": self._tensor,
            "torch._utils _rebuild_parameter": lambda tensor, *_: tensor,
            "numpy.core.multiarray scalar": _number,
            "numpy._core.multiarray scalar": _number,
            "numpy dtype": lambda code, *_: TypeCode(_text(code)),
            "_codecs encode": lambda text, encoding: _text(text).encode(_one_of(encoding, ("latin1",))),
        }

    def read(self) -> Any:
        """The pickled object."""
        order = f"{self._folder}byteorder"
        if order in self._archive.namelist() and self._bytes(order, 16) != b"little":
            raise ValueError("its numbers are not little-endian")
        for op, argument, _ in pickletools.genops(self._bytes(self._pickle, LARGEST_PICKLE)):
            if op.name == "STOP":
                [result] = self._stack
                return result
            step = getattr(self, f"_op_{op.name.lower()}", None)
            if step is None and op.name not in PLAIN:
                raise UnsafePolicy(f"its pickle has the instruction {op.name}")
            if step is None:
                self._stack.append(PLAIN[op.name](argument))
            else:
                step(argument)
        raise ValueError("its pickle has no end")

    def _bytes(self, name: str, most: int) -> bytes:
        info = self._archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{name} is compressed; torch.save does not compress")
        if info.file_size > min(most, self._left):
            raise ValueError(f"{name} says that it has {info.file_size} bytes; at most {min(most, self._left)} fit")
        self._left -= info.file_size
        return self._archive.read(info)

    # Instructions that do more than put a constant on the stack.

    def _op_proto(self, _: Any) -> None:
        """The version, which decides nothing here."""

    _op_frame = _op_proto

    def _op_mark(self, _: Any) -> None:
        self._stack.append(MARK)

    def _since_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not MARK:  # an IndexError below the bottom
            at -= 1
            if at < 0:
                raise ValueError("its pickle closes a group that was not opened")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise ValueError("its pickle takes more than it has made")
        items = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        if any(item is MARK for item in items):
            raise ValueError("its pickle takes a group apart")
        return items

    def _op_tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def _op_tuple1(self, _: Any) -> None:
        self._stack.append(tuple(self._pop(1)))

    def _op_tuple2(self, _: Any) -> None:
        self._stack.append(tuple(self._pop(2)))

    def _op_tuple3(self, _: Any) -> None:
        self._stack.append(tuple(self._pop(3)))

    def _op_memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _op_binput(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    _op_long_binput = _op_binput

    def _op_binget(self, index: int) -> None:
        self._stack.append(self._memo[index])

    _op_long_binget = _op_binget

    def _op_setitem(self, _: Any) -> None:
        self._put(self._pop(2))

    def _op_setitems(self, _: Any) -> None:
        self._put(self._since_mark())

    def _put(self, items: list[Any]) -> None:
        target = _kind(self._stack[-1], dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def _op_append(self, _: Any) -> None:
        [item] = self._pop(1)
        _kind(self._stack[-1], list).append(item)

    def _op_appends(self, _: Any) -> None:
        items = self._since_mark()
        _kind(self._stack[-1], list).extend(items)

    def _op_global(self, text: str) -> None:
        self._stack.append(self._named(text))

    def _op_stack_global(self, _: Any) -> None:
        module, name = map(_text, self._pop(2))
        self._stack.append(self._named(f"{module} {name}"))

    def _named(self, text: str) -> Name:
        if text not in self._calls and text not in STORAGES:
            raise UnsafePolicy(f"it asks for {text.replace(' ', '.')}")
        return Name(text)

    def _op_reduce(self, _: Any) -> None:
        name, arguments = self._pop(2)
        text = _kind(name, Name).text
        if text not in self._calls:
            raise UnsafePolicy(f"it calls {text.replace(' ', '.')}")
        self._stack.append(self._calls[text](*_kind(arguments, tuple)))

    def _op_build(self, _: Any) -> None:
        """State of dicts (torch's version numbers) and of type codes: neither is needed, so that nothing is set."""
        self._pop(1)
        if not isinstance(self._stack[-1], (dict, TypeCode)):
            raise UnsafePolicy(f"it sets the state of a {type(self._stack[-1]).__name__}")

    def _op_binpersid(self, _: Any) -> None:
        [told] = self._pop(1)
        word, kind, key, _place, count = _kind(told, tuple)
        if word != "storage" or _kind(kind, Name).text not in STORAGES:
            raise ValueError("its pickle names something that is no storage")
        self._stack.append(Storage(_text(key), STORAGES[kind.text], _kind(count, int)))

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
        storage = _kind(storage, Storage)
        flat = self._flat(storage)
        numbers = [_kind(offset, int), *_kind(size, tuple), *_kind(stride, tuple)]
        if len(size) != len(stride) or len(size) > MOST_DIMENSIONS:
            raise ValueError(f"a tensor has size {size} and stride {stride}")
        if any(type(x) is not int or x < 0 for x in numbers):
            raise ValueError(f"a tensor has offset {offset}, size {size} and stride {stride}")
        count = math.prod(size)
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if count else offset
        if count > flat.numel() or last >= max(1, flat.numel()):
            raise ValueError(f"a tensor of size {size}, stride {stride} does not fit a storage of {flat.numel()}")
        return flat.as_strided(size, stride, offset).clone() if count else flat.new_empty(size)

    def _flat(self, storage: Storage) -> Tensor:
        if storage.key not in self._tensors:
            data = self._bytes(f"{self._folder}data/{storage.key}", self._left)
            if len(data) != storage.count * storage.dtype.itemsize:
                raise ValueError(f"storage {storage.key} has {len(data)} bytes, not {storage.count} {storage.dtype}")
            empty = torch.empty(0, dtype=storage.dtype)
            self._tensors[storage.key] = torch.frombuffer(bytearray(data), dtype=storage.dtype) if data else empty
        tensor = self._tensors[storage.key]
        if tensor.dtype != storage.dtype:
            raise ValueError(f"storage {storage.key} is both {tensor.dtype} and {storage.dtype}")
        return tensor


# Instructions that put a constant on the stack.
PLAIN: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "BININT": int,
    "BININT1": int,
    "BININT2": int,
    "LONG1": int,
    "BINFLOAT": float,
    "BINUNICODE": str,
    "SHORT_BINUNICODE": str,
    "BINBYTES": bytes,
    "SHORT_BINBYTES": bytes,
    "EMPTY_DICT": lambda _: {},
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
}


def _number(kind: Any, data: Any) -> float | int | bool:
    """A numpy scalar as a plain number."""
    code = _kind(kind, TypeCode).code.lstrip("<=|")
    if code not in NUMBERS:
        raise ValueError(f"a number of type {code!r} is unknown; valid: {', '.join(NUMBERS)}")
    return struct.unpack(NUMBERS[code], _kind(data, bytes))[0]


def _kind(value: Any, kind: type) -> Any:
    """The value, if it is of exactly this type."""
    if type(value) is not kind:
        raise ValueError(f"its pickle has a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _text(value: Any) -> str:
    return _kind(value, str)


def _key(value: Any) -> str | int:
    if type(value) not in (str, int):
        raise ValueError(f"its pickle has a dict with a key of type {type(value).__name__}; valid: str, int")
    return value


def _one_of(value: Any, valid: tuple[str, ...]) -> str:
    if value not in valid:
        raise ValueError(f"its pickle has {value!r}; valid: {', '.join(valid)}")
    return value
