"""Pickles whose instructions are others: the archive is fine, the program in it is not."""

from __future__ import annotations

import io
import pickle
import pickletools
import random
import struct
import zipfile

from .mutations import Mutation

NAMES = ("os system", "builtins eval", "builtins getattr", "numpy dtype", "torch._utils _rebuild_tensor_v2")
NAMES += ("torch._utils _rebuild_parameter", "collections OrderedDict", "numpy.core.multiarray scalar")
NAMES += ("_codecs encode", "torch FloatStorage", "torch LongStorage", "torch.storage _load_from_bytes")
VALUES = (0, -1, 1, 255, 2**31 - 1, -(2**31), 2**40, 2**63, 1e308, float("nan"), None, True, (), "", "x", b"\0" * 8, {})
SINGLE = [op.code.encode("latin1") for op in pickletools.opcodes if op.arg is None]


def _instructions(program: bytes) -> list[bytes]:
    places = [place for _, _, place in pickletools.genops(program) if place is not None]
    return [program[a:b] for a, b in zip(places, [*places[1:], len(program)])]


def _value(rng: random.Random) -> bytes:
    return pickle.dumps(rng.choice(VALUES), rng.choice((2, 4)))[2:-1]


def _name(rng: random.Random) -> bytes:
    module, name = rng.choice(NAMES).split()
    texts = b"".join(b"\x8c" + struct.pack("<B", len(text)) + text.encode() for text in (module, name))
    ways = (f"c{module}\n{name}\n".encode(), texts + b"\x93", f"(i{module}\n{name}\n".encode())
    return rng.choice(ways)


def _odd(rng: random.Random) -> bytes:
    single = rng.choice(SINGLE)
    memory = rng.choice((b"q", b"h")) + rng.randbytes(1)
    far = rng.choice((b"r", b"j", b"X", b"B", b"\x8a", b"\x8b", b"\x96")) + rng.randbytes(rng.choice((1, 4, 8)))
    long = b"\x8b" + struct.pack("<i", rng.choice((-1, 0, 8, 2**31 - 1))) + b"\xff" * 8
    extension = rng.choice((b"\x82\x01", b"\x83\x01\0", b"\x84\x01\0\0\0"))
    text = rng.choice((b"S'x'\n", b"V\\u0041\n", b"I99999999999999999999\n", b"F1e999\n", b"L1L\n", b"P0\n", b"g0\n"))
    return rng.choice((single, memory, far, long, extension, text, _value(rng), _value(rng), _name(rng)))


def instructions(data: bytes, rng: random.Random) -> bytes:
    """Instructions are replaced, added, doubled, missing or moved."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        files = {name: old.read(name) for name in old.namelist()}
    [name, *_] = [name for name in files if name.endswith("data.pkl")]
    program = _instructions(files[name])
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, other = rng.randrange(len(program)), rng.randrange(len(program))
        way = rng.randrange(6)
        if way == 0:
            program[at] = _odd(rng)
        elif way == 1:
            program.insert(at, _odd(rng))
        elif way == 2:
            del program[at]
        elif way == 3:
            program[at], program[other] = program[other], program[at]
        elif way == 4:
            program.insert(other, program[at])
        else:
            plain = [k for k, code in enumerate(program) if code[:1] in b"KMJX\x8aG\x88\x89N"]
            program[rng.choice(plain)] = _value(rng)
    files[name] = b"".join(program)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for entry, content in files.items():
            new.writestr(entry, content)
    return out.getvalue()


PICKLES: list[Mutation] = [instructions, instructions, instructions]
