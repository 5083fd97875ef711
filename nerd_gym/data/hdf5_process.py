"""The process that reads HDF5 files: a script of its own, so that it starts with h5py and numpy alone.

It takes requests as lines of json and answers with lines of json and raw float32 numbers (hdf5.py has the other end).
Only plain arrays and attributes of the file itself are read. The HDF5 library follows a damaged file where it leads,
for ever or into memory that is not there; here it may take a few seconds of CPU time and a bounded amount of memory.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import h5py
import numpy as np

PLAIN_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}  # no plugins
LARGEST_RATIO = 1000  # of numbers to compressed bytes
MOST_ATTRIBUTES, LONGEST_TEXT = 64, 2**20
CPU_SECONDS = 2  # for a request; more for a large array
SLOWEST = 20 * 2**20  # bytes of an array in a second of CPU; compressed ones take about 100 MB/s
MEMORY = 2**30  # bytes beyond what the process starts with
PIECE = 16 * 2**20  # bytes of an array that are sent at once
FAILED = 2**64 - 1  # in place of a piece's size
DAMAGE = (OSError, KeyError, RuntimeError, TypeError, OverflowError, MemoryError, UnicodeError, ValueError)


class Refused(Exception):
    """The file has something that is not read; the text names file and place."""


def attributes(file: h5py.File) -> dict[str, Any]:
    """What a file says of itself: texts and numbers."""
    if len(file.attrs) > MOST_ATTRIBUTES:
        raise Refused(f"{file.filename} has {len(file.attrs)} attributes; at most {MOST_ATTRIBUTES} are read")
    out: dict[str, Any] = {}
    for name in file.attrs:
        kind = file.attrs.get_id(name)
        text = h5py.check_string_dtype(kind.dtype)
        if kind.shape != () or (text is None and (kind.dtype.kind not in "iufb" or kind.dtype.itemsize > 8)):
            raise Refused(f"{file.filename} has an attribute {name!r} that is neither a text nor a number")
        if text is not None and text.length is not None and text.length > LONGEST_TEXT:
            raise Refused(f"{file.filename} has an attribute {name!r} of {text.length} characters")
        value = file.attrs[name]
        value = value.decode() if isinstance(value, bytes) else value
        if isinstance(value, str) and len(value.encode()) > LONGEST_TEXT:
            raise Refused(f"{file.filename} has an attribute {name!r} of {len(value)} characters")
        out[str(name)] = value.item() if isinstance(value, np.generic) else value
    return out


def checked(file: h5py.File, name: str, shape: list[int | None]) -> h5py.Dataset:
    """An array of floats of the file itself, of this shape (None stands for any length) and no larger than the file."""
    where = f"{file.filename} has an array {name!r}"
    if name not in file or not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise Refused(f"{file.filename} has no array {name!r} of its own")
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise Refused(f"{file.filename} has no array {name!r}, but a {type(found).__name__} of that name")
    if found.is_virtual or found.external:
        raise Refused(f"{where} whose numbers are in other files, which are not read")
    if found.dtype.kind != "f" or found.dtype.itemsize > 8:
        raise Refused(f"{where} of type {found.dtype}; it must be float32")
    if (
        found.shape is None
        or len(found.shape) != len(shape)
        or any(s not in (None, n) for s, n in zip(shape, found.shape))
    ):
        words = ", ".join("any" if s is None else str(s) for s in shape)
        raise Refused(f"{where} of shape {found.shape}; it must have [{words}]")
    plist = found.id.get_create_plist()
    filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
    if filters - PLAIN_FILTERS:
        raise Refused(f"{where} with filters {sorted(filters)}; valid: {sorted(PLAIN_FILTERS)}")
    stored = min(found.id.get_storage_size(), os.path.getsize(file.filename))
    if found.nbytes > stored * (LARGEST_RATIO if filters else 1):
        raise Refused(f"{where} of {found.nbytes} bytes, of which the file holds {stored}")
    return found


def pieces(found: h5py.Dataset) -> Iterator[np.ndarray]:
    """The array in float32, some rows at a time: whole chunks, so that each is read once."""
    band = found.chunks[0] if found.chunks else 1
    row = max(1, 4 * math.prod((found.shape or ())[1:]))
    rows = max(1, PIECE // (row * band)) * band
    for start in range(0, len(found), rows):
        values = np.ascontiguousarray(found[start : start + rows], np.float32)
        if not np.isfinite(values).all():
            raise Refused(
                f"{found.file.filename} has an array {str(found.name)[1:]!r} with numbers that are not finite"
            )
        yield values


def send_array(file: h5py.File, request: dict[str, Any], out: BinaryIO) -> None:
    """The shape, then the numbers, each piece after its size; a piece of size 0 is the end."""
    found = checked(file, request["name"], request["shape"])
    limit_cpu(CPU_SECONDS + math.ceil(found.nbytes / SLOWEST))
    send(out, {"shape": found.shape})
    try:
        for piece in pieces(found):
            if piece.nbytes:
                out.write(struct.pack("<Q", piece.nbytes))
                out.write(piece.reshape(-1).view(np.uint8).data)
                out.flush()
        out.write(struct.pack("<Q", 0))
        out.flush()
    except (Refused, *DAMAGE):
        out.write(struct.pack("<Q", FAILED))
        raise


def send(out: BinaryIO, answer: dict[str, Any]) -> None:
    """One line of json."""
    out.write(json.dumps(answer).encode() + b"\n")
    out.flush()


def limit_cpu(seconds: int) -> None:
    """End this process after so much more CPU time, where the system can; the other end of the pipe waits elsewhere."""
    try:
        import resource
    except ImportError:  # Windows
        return
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = math.ceil(used) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def limit_memory() -> None:
    """Bound what this process may take from the system, where that is known."""
    if not sys.platform.startswith("linux"):  # elsewhere the limit of the address space has no effect
        return
    import resource

    with open("/proc/self/statm") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + MEMORY
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def serve(requests: BinaryIO, out: BinaryIO) -> None:
    """Answer requests until there are no more."""
    send(out, {})
    file = None
    for line in requests:
        request = json.loads(line)
        path = request["path"]
        limit_cpu(CPU_SECONDS)
        try:
            if file is None or file.filename != path:
                file = h5py.File(path, "r")
            if "name" in request:
                send_array(file, request, out)
            else:
                send(out, {"attributes": attributes(file)})
        except Refused as error:
            send(out, {"refused": str(error)})
        except DAMAGE as error:
            told = " ".join(str(error).split()) or type(error).__name__
            send(out, {"refused": f"{path} is not a dataset in HDF5, or is damaged: {told}"})


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    limit_memory()
    serve(sys.stdin.buffer, answers)
