"""Pickles that ask for code, by every instruction that can; `python -m tests.support.gadgets` reads them under watch.

The watch is an audit hook, which sees imports, compiled code, opened files and processes, and a canary: an object whose
address the crafted types name, and whose reference count must stay.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pickle
import struct
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

MODULES = ("torch._utils", "collections", "numpy.core.multiarray", "numpy._core.multiarray", "_codecs", "numpy")
MODULES += ("torch", "torch.storage", "builtins", "os", "subprocess", "codecs", "pickle", "operator", "functools")
ALLOWED = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"}
ALLOWED |= {"numpy.core.multiarray scalar", "numpy._core.multiarray scalar", "numpy dtype", "_codecs encode"}
PLAIN = (int, float, bool, str, bytes, tuple, list, dict, type(None))


def names() -> list[str]:
    """Every callable of the modules that a checkpoint may name, of some others, and what is below their names."""
    out = []
    for module in MODULES:
        for name, _ in inspect.getmembers(importlib.import_module(module), callable):
            out.append(f"{module} {name}")
    out += [
        f"{name}.{below}" for name in sorted(ALLOWED) for below in ("__class__", "__init__", "fromkeys", "__call__")
    ]
    return [*out, "posix system", "nt system", "collections OrderedDict.__reduce__", "__main__ x", "torch FloatStorage"]


def programs(name: str, argument: str) -> Iterator[tuple[str, bytes]]:
    """A callable called with a text, by each way that pickles have."""
    module, _, attribute = name.partition(" ")
    glob = f"c{module}\n{attribute}\n".encode()
    texts = b"".join(b"\x8c" + struct.pack("<B", len(text)) + text.encode() for text in (module, attribute))
    text = b"X" + struct.pack("<I", len(argument)) + argument.encode()
    yield "GLOBAL", b"\x80\x02" + glob + b"."
    yield "REDUCE", b"\x80\x02" + glob + b"(" + text + b"tR."
    yield "STACK_GLOBAL", b"\x80\x04" + texts + b"\x93(" + text + b"tR."
    yield "INST", b"\x80\x02(" + text + f"i{module}\n{attribute}\n.".encode()
    yield "OBJ", b"\x80\x02(" + glob + text + b"o."
    yield "NEWOBJ", b"\x80\x02" + glob + b"(" + text + b"t\x81."
    yield "NEWOBJ_EX", b"\x80\x04" + glob + b"(" + text + b"t}\x92."
    yield "BUILD", b"\x80\x02" + glob + b"}" + text + b"Nsb."


def extensions() -> Iterator[tuple[str, bytes]]:
    """Codes of the extension registry."""
    yield "EXT1", b"\x80\x02\x82\x01."
    yield "EXT2", b"\x80\x02\x83\x01\0."
    yield "EXT4", b"\x80\x02\x84\x01\0\0\0."


def dtype_attacks(address: int) -> Iterator[tuple[str, bytes]]:
    """Types with a state of the file's choosing that names an address, for a number with any type code."""
    data = struct.pack("<Q", address).decode("latin1")
    states: list[object] = [
        (3, "|", None, ("x",), {"x": (address, 0)}, 2**40, 1, 63),
        (4, "<", (address, (1,)), None, None, 8, 8, 0, {"a": address}),
        (address,) * 8,
        (3, "<", None, None, None, address, -1, 63),
        {"names": (address,), "fields": {address: (address, 8)}},
        address,
        None,
    ]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        for code in ("f8", "O", "O8", "V8", "S8", "U2", "|O", "i8", "M8[ns]", "f8,O"):
            for k, state in enumerate(states):
                kind = b"cnumpy\ndtype\n" + pickle.dumps((code, False, True), 2)[2:-1] + b"R"
                kind += pickle.dumps(state, 2)[2:-1] + b"b"
                text = b"c_codecs\nencode\n" + pickle.dumps((data, "latin1"), 2)[2:-1] + b"R"
                yield f"dtype {code} {k}", b"\x80\x02c" + f"{module}\nscalar\n(".encode() + kind + text + b"tR."


def plain(value: object) -> bool:
    """Whether a value is one of those that checkpoints may hold."""
    if isinstance(value, dict):
        return all(plain(part) for pair in value.items() for part in pair)
    if type(value) in (list, tuple):
        return all(map(plain, value))
    return type(value) in PLAIN


def main() -> None:
    from nerd_gym.policies.torch_file import read_torch_file

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take one name of so many")
    args = parser.parse_args()
    canary, events, told = object(), Counter(), Counter()
    watching = [False]

    def hook(event: str, arguments: tuple) -> None:
        if watching[0]:
            events[event if event != "open" else f"open {arguments[0]}"] += 1

    "".encode("cp437")  # which zipfile imports when it first meets it
    sys.addaudithook(hook)
    odd = []
    with tempfile.TemporaryDirectory() as folder:
        path, touched = Path(folder) / "gadget.pth", Path(folder) / "touched"
        gadgets = [
            (f"{way} {name}", p) for name in names()[:: args.every] for way, p in programs(name, f"touch {touched}")
        ]
        gadgets += [*extensions(), *dtype_attacks(id(canary))]
        before = sys.getrefcount(canary)
        for way, program in gadgets:
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("policy/data.pkl", program)
            watching[0] = True
            try:
                value = read_torch_file(path)
                watching[0] = False
                # A name alone is a word of the reader's own, and a type code too.
                told["plain"] += 1
                if not plain(value) and type(value).__module__ != "nerd_gym.policies.torch_file":
                    odd.append(f"{way} made a {type(value).__name__}")
            except ValueError:
                watching[0] = False
                told["refused"] += 1
            if touched.exists():
                odd.append(f"{way} was run")
        after = sys.getrefcount(canary)
        events.pop(f"open {path}", None)
    print(json.dumps({"gadgets": len(gadgets), **told, "odd": odd, "events": events, "canary": [before, after]}))


if __name__ == "__main__":
    main()
