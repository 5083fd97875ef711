"""Starting Warp."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import warp as wp

NO_DRIVER = b"Could not find or load the NVIDIA CUDA driver"  # no news to whoever computes on a CPU


def init_warp() -> None:
    """Start Warp without its banner and its line per module; compiling is announced by load_with_notice."""
    if wp.config.log_level == wp.LOG_INFO:  # the user has not asked for another level
        wp.config.log_level = wp.LOG_WARNING
    _start()


@cache  # stderr is tidied once, not for every backend
def _start() -> None:
    with _without_line(NO_DRIVER):
        wp.init()


@contextmanager
def _without_line(text: bytes) -> Iterator[None]:
    """Leave lines with this text out of what the block writes to stderr, by whatever library."""
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, AttributeError, ValueError):  # there is no stderr to tidy
        yield
        return
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            for line in written:
                if text not in line:
                    os.write(2, line)
