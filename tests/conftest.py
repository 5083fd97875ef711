"""One core for each worker of pytest-xdist. What tests share is in tests/support."""

from __future__ import annotations

import os

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    # Threads of several processes that share all cores mostly wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, later
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import nerd_gym  # noqa: F401  chooses how MuJoCo draws, before a test imports that
