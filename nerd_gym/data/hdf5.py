"""HDF5 files of strangers: plain arrays and plain attributes of this very file, as large as the file itself at most.

The HDF5 library can loop for ever in a damaged file, or crash. So a process of its own reads (hdf5_process.py), with
limits of time and memory, and sends what it found through a pipe. It costs about 0.2 s to start, and ends with the
block that asked for it.
"""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any, BinaryIO, cast

import numpy as np

SCRIPT = Path(__file__).with_name("hdf5_process.py")
PATIENCE = 60  # seconds without an answer, which a disk may need; a loop ends earlier, by its CPU time
FAILED = 2**64 - 1  # in place of a piece's size


class Hdf5File:
    """A file that a reader has open."""

    def __init__(self, reader: Hdf5Reader, path: Path):
        self.filename, self._reader = str(path), reader

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reader's answer to a request about this file."""
        return self._reader.ask({"path": self.filename, **request})

    def fill(self, values: np.ndarray) -> None:
        """Take the numbers of an array that follow an answer."""
        self._reader.fill(values, self.filename)


class Hdf5Reader:
    """A process that reads HDF5 files; use it in a `with` block, at the end of which it is gone."""

    def __init__(self) -> None:
        if not sys.executable:
            raise RuntimeError("HDF5 files are read in a process of their own; this program has no sys.executable")
        path = os.pathsep.join(part for part in sys.path if part)  # whatever is installed here is installed there
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},  # whose threads take memory
        )
        self._requests, self._answers = cast("BinaryIO", self._process.stdin), cast("BinaryIO", self._process.stdout)

    def __enter__(self) -> Hdf5Reader:
        with self._patience():
            ready = self._answers.readline()
        if not ready:
            self.close()
            raise RuntimeError(f"the process that reads HDF5 files did not start: exit code {self._process.returncode}")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; it only reads, so nothing is lost."""
        self._process.kill()
        self._process.wait()
        self._answers.close()
        with suppress(BrokenPipeError):  # a request that was not taken
            self._requests.close()

    def open(self, path: Path) -> Hdf5File:
        """A file to read."""
        if not path.is_file():
            raise FileNotFoundError(f"no file at {path}")
        return Hdf5File(self, path)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and take the answer; ValueError if the file is refused or ends the reader."""
        with self._patience():
            try:
                self._requests.write(json.dumps(request).encode() + b"\n")
                self._requests.flush()
            except BrokenPipeError:
                raise ValueError(self._why_ended(request["path"])) from None
            line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise ValueError(self._why_ended(request["path"]))
        answer = json.loads(line)
        if "refused" in answer:
            raise ValueError(answer["refused"])
        return answer

    def fill(self, values: np.ndarray, path: str) -> None:
        """Take the numbers of an array, piece by piece."""
        left = values.reshape(-1).view(np.uint8).data
        while True:
            with self._patience():
                head = self._answers.read(8)
                size = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
                if size == FAILED:
                    raise ValueError(json.loads(self._answers.readline())["refused"])
                taken = cast("Any", self._answers).readinto(left[:size]) if 0 < size <= len(left) else 0
            if len(head) < 8 or taken < size:
                raise ValueError(self._why_ended(path))
            if not size:
                break
            left = left[size:]
        if left:
            raise ValueError(f"{path} has an array that ends early")

    @contextmanager
    def _patience(self) -> Iterator[None]:
        timer = Timer(PATIENCE, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _why_ended(self, path: str) -> str:
        self._process.kill()  # if it has not ended, what it sends makes no sense
        code = self._process.wait()
        by = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        words = {"SIGXCPU": "the HDF5 library does not come to an end with it", "SIGKILL": "the reader did not answer"}
        return f"{path} is damaged: {words.get(by, f'the HDF5 library ended by {by}')}"


@contextmanager
def open_hdf5(path: Path) -> Iterator[Hdf5File]:
    """A file to read; what the library finds wrong with it is a ValueError that names it."""
    if not path.is_file():
        raise FileNotFoundError(f"no file at {path}")
    with Hdf5Reader() as reader:
        yield reader.open(path)


def attributes(file: Hdf5File) -> dict[str, Any]:
    """What a file says of itself: texts and numbers."""
    return file.ask({})["attributes"]


def same_plan(file: Hdf5File, facts: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a file, if this plan made it."""
    made = attributes(file)
    for name, value in facts.items():
        if made.get(name) != value:
            raise ValueError(
                f"{file.filename} was made with {name} = {made.get(name)!r}, not {value!r}; "
                "choose another --out or remove it"
            )
    return made


def array_in(file: Hdf5File, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """A float32 array of the file, finite and of this shape; None stands for any length."""
    found = file.ask({"name": name, "shape": shape})["shape"]
    try:
        values = np.empty(found, np.float32)
    except MemoryError as error:
        size = 4 * math.prod(found)
        raise ValueError(f"{file.filename} has an array {name!r} of {size} bytes, more than there is room") from error
    file.fill(values)
    return values
