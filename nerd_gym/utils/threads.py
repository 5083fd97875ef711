"""How many CPU threads to use."""

from __future__ import annotations

import ctypes
import os
from typing import Any
from weakref import WeakSet

_WITH_THREADS: WeakSet[Any] = WeakSet()


def keep_after_fork(thing: Any) -> None:
    """Never destroy `thing` in a forked child: it would wait for threads that did not come along."""
    _WITH_THREADS.add(thing)


def _keep_all() -> None:
    for thing in list(_WITH_THREADS):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_all)


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
