"""Files as a careless program or an attacker would make them: bytes changed at random, and structures that lie."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

NUMBERS = (0, 1, -1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, -(2**63), 2**64, 1e308, -1e308, 5e-324)
ODD_NUMBERS = (*NUMBERS, float("nan"), float("inf"), -float("inf"))
TEXTS = ("", "\0", "../../x", "$HOME $x_1$", "%s%n", "a" * 5000, "\u202e\ud7ff", "1e999", "nan", "{", "\n\n")
DEEP = "@deep@"
Mutation = Callable[[bytes, random.Random], bytes]


def mutated(seeds: list[bytes], structured: list[Mutation], count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """So many files, half of them made byte by byte; the same ones for the same seed."""
    rng = random.Random(seed)
    for k in range(count):
        content, steps = rng.choice(seeds), []
        for _ in range(rng.choice((1, 1, 2, 4))):
            mutation = rng.choice(structured if structured and k % 2 else BYTEWISE)
            steps.append(mutation.__name__)
            try:
                content = mutation(content, rng)
            except Exception:  # of any kind that a format's library has, for a file that an earlier step damaged
                content = flip(content, rng)
                break  # a damaged file is not for libraries in this process
        yield f"{seed}/{k} {'+'.join(steps)}", content


# Byte by byte.


def flip(data: bytes, rng: random.Random) -> bytes:
    """Some bytes are others."""
    out = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 3, 16))):
        out[rng.randrange(len(out))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(out)


def head(data: bytes, rng: random.Random) -> bytes:
    """The same near the start, where formats keep their sizes."""
    cut = min(len(data), rng.choice((16, 64, 512)))
    return flip(data[:cut], rng) + data[cut:]


def cut(data: bytes, rng: random.Random) -> bytes:
    """The end is missing."""
    return data[: rng.randrange(len(data) + 1)]


def remove(data: bytes, rng: random.Random) -> bytes:
    """A piece is missing."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 4, 64, 1024)) :]


def repeat(data: bytes, rng: random.Random) -> bytes:
    """A piece stands there twice."""
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 8, 64, 1024))
    return data[:at] + data[at : at + size] * rng.choice((2, 3, 50)) + data[at + size :]


def insert(data: bytes, rng: random.Random) -> bytes:
    """Something stands between."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 4, 64))) + data[at:]


def integers(data: bytes, rng: random.Random) -> bytes:
    """Eight bytes that may be a size are a strange one."""
    at = rng.randrange(max(1, len(data) - 8))
    return data[:at] + struct.pack("<q", rng.choice((0, -1, 1, 2**31, 2**40, 2**62, len(data)))) + data[at + 8 :]


BYTEWISE: list[Mutation] = [flip, head, cut, remove, repeat, insert, integers]

# Values inside json and the like.


def odd_value(value: Any, rng: random.Random) -> Any:
    """Something else where a value stood."""
    choices = (rng.choice(ODD_NUMBERS), rng.choice(TEXTS), None, True, [], {}, [value], {"x": value}, DEEP, [0] * 2000)
    return rng.choice(choices)


def json_text(value: Any) -> str:
    """Json, with a nest too deep for most readers where :data:`DEEP` stands."""
    return json.dumps(value).replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000)


def change_inside(value: Any, rng: random.Random) -> Any:
    """One place in a nest of dicts and lists is changed, added or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        action = rng.random()
        if action < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if action < 0.25:
            return value | {rng.choice(TEXTS) or "x": odd_value(value[key], rng)}
        return value | {key: change_inside(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], change_inside(value[at], rng), *value[at + 1 :]]
    return odd_value(value, rng)


# Safetensors.


def header(data: bytes, rng: random.Random) -> bytes:
    """Types, shapes and places of tensors lie."""
    size = struct.unpack("<Q", data[:8])[0]
    told = json.loads(data[8 : 8 + size])
    return _with_header({"__metadata__": told.pop("__metadata__", {}), **change_inside(told, rng)}, data[8 + size :])


def facts(data: bytes, rng: random.Random) -> bytes:
    """What the file tells of itself is changed."""
    size = struct.unpack("<Q", data[:8])[0]
    told = json.loads(data[8 : 8 + size])
    own = change_inside(json.loads(told["__metadata__"]["facts"]), rng)
    told["__metadata__"]["facts"] = json_text(own) if rng.random() < 0.9 else rng.choice(("[" * 5000, "NaN", "", "{"))
    return _with_header(told, data[8 + size :])


def weights(data: bytes, rng: random.Random) -> bytes:
    """Numbers that are none, and tensors that are missing or have another's place."""
    size = struct.unpack("<Q", data[:8])[0]
    told, body = json.loads(data[8 : 8 + size]), bytearray(data[8 + size :])
    at = 4 * rng.randrange(max(1, len(body) // 4))
    body[at : at + 4] = struct.pack("<f", rng.choice((float("nan"), float("inf"), -float("inf"), 1e38, 0.0)))
    names = [name for name in told if name != "__metadata__"]
    if names and rng.random() < 0.3:
        told[rng.choice(names)] = told[rng.choice(names)]
    return _with_header(told, bytes(body))


def _with_header(told: dict[str, Any], body: bytes) -> bytes:
    text = json_text(told).encode()
    return struct.pack("<Q", len(text)) + text + body


SAFETENSORS: list[Mutation] = [header, facts, weights]

# Checkpoints of torch.


def pickle_bytes(data: bytes, rng: random.Random) -> bytes:
    """The pickle alone is mutated, in an archive that is fine."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        files = {name: old.read(name) for name in old.namelist()}
    [name, *_] = [name for name in files if name.endswith("data.pkl")]  # ValueError if an earlier step removed it
    swaps = [
        (b"FloatStorage", b"DoubleStorage"),
        (b"torch._utils\n_rebuild_tensor_v2", b"os\nsystem"),
        (b"K\x01", b"M\xff\xff"),
    ]
    if rng.random() < 0.3:
        files[name] = files[name].replace(*rng.choice(swaps))
    else:
        files[name] = rng.choice(BYTEWISE)(files[name], rng)
    return _archive(files, rng)


def archive_entries(data: bytes, rng: random.Random) -> bytes:
    """Storages are missing, cut, doubled or compressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        files = {name: old.read(name) for name in old.namelist()}
    name = rng.choice(list(files))
    files[name] = rng.choice((b"", files[name][:-1], files[name] * 2, b"\xff" * len(files[name])))
    if rng.random() < 0.3:
        del files[rng.choice(list(files))]
    return _archive(files, rng)


def _archive(files: dict[str, bytes], rng: random.Random) -> bytes:
    out = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if rng.random() < 0.1 else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", kind) as new:
        for name, content in files.items():
            new.writestr(name, content)
    return out.getvalue()


CHECKPOINTS: list[Mutation] = [pickle_bytes, archive_entries]

# Text: MJCF and yaml.


def number_in_text(data: bytes, rng: random.Random) -> bytes:
    """One number is another."""
    text = data.decode("utf-8", "replace")
    found = list(re.finditer(r"-?\d+(\.\d+)?(e-?\d+)?", text))
    match = rng.choice(found)
    return (text[: match.start()] + str(rng.choice(ODD_NUMBERS)) + text[match.end() :]).encode("utf-8", "replace")


def word_in_text(data: bytes, rng: random.Random) -> bytes:
    """One word is another."""
    text = data.decode("utf-8", "replace")
    match = rng.choice(list(re.finditer(r"\w+", text)))
    other = rng.choice((*TEXTS, *re.findall(r"\w+", text)))
    return (text[: match.start()] + other + text[match.end() :]).encode("utf-8", "replace")


def line_in_text(data: bytes, rng: random.Random) -> bytes:
    """Lines are missing, doubled or elsewhere."""
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    line = lines[at]
    if rng.random() < 0.5:
        del lines[at]
    lines[to:to] = [line] * rng.choice((0, 1, 2, 30))
    return "".join(lines).encode("utf-8", "replace")


TEXT: list[Mutation] = [number_in_text, word_in_text, line_in_text]
