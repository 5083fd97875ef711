"""Arrays through a pipe between two processes: eight bytes of length, then an npz."""

from __future__ import annotations

import io
from typing import BinaryIO

import numpy as np


def send(pipe: BinaryIO, **arrays: np.ndarray) -> None:
    """Write arrays by name."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    pipe.write(buffer.tell().to_bytes(8, "little") + buffer.getvalue())
    pipe.flush()


def receive(pipe: BinaryIO) -> dict[str, np.ndarray] | None:
    """Read arrays by name; None if the other end is closed."""
    head = pipe.read(8)
    if len(head) < 8:
        return None
    with np.load(io.BytesIO(pipe.read(int.from_bytes(head, "little")))) as file:
        return {name: file[name] for name in file.files}
