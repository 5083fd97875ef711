"""How many CPU threads to use."""

from __future__ import annotations

import os


def at_least_one(what: str, value: int | None, default: int) -> int:
    """A count that an option gives, or its default."""
    if value is None:
        return default
    if int(value) < 1:
        raise ValueError(f"{what} is {value}; it must be at least 1")
    return int(value)


def cpu_threads(threads: int | None) -> int:
    """How many threads to use: as many as asked for, or one per core that this process may run on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return at_least_one("threads", threads, cores)
