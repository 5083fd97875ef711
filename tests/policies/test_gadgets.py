"""Pickles that ask for code: all are refused, and reading them runs, imports and dereferences nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest


def watched(*options: str, before: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    words = [*before, sys.executable, "-m", "tests.support.gadgets", *options]
    return subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_no_gadget_runs_anything():
    """Every eighth name by all ways, and the attack on types in all its variants; the slow test takes every name."""
    told = json.loads(watched("--every", "8").stdout)
    assert told["gadgets"] > 2000 and told["refused"] > 0.98 * told["gadgets"]
    assert told["odd"] == [] and told["events"] == {}
    assert told["canary"][0] == told["canary"][1]


@pytest.mark.slow
def test_no_gadget_runs_anything_whatever_its_name():
    told = json.loads(watched().stdout)
    assert told["gadgets"] > 20_000 and told["odd"] == [] and told["events"] == {}
    assert told["canary"][0] == told["canary"][1]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_no_gadget_touches_memory_that_is_not_ours():
    """Of what valgrind reports while gadgets are read, nothing may be new beside reading a single one."""
    check = ("valgrind", "--quiet", "--undef-value-errors=no", "--log-file=/dev/stderr")

    def errors(*options: str) -> int:
        done = watched(*options, before=check, PYTHONMALLOC="malloc")
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stderr.count("Invalid read") + done.stderr.count("Invalid write")

    assert errors("--every", "40") <= errors("--every", "1000000")
