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


# The C library compares eight bytes at once when it loads a module, some of them beyond the end of a path.
LOADER = "{\n  loader\n  Memcheck:Addr8\n  fun:strncmp\n  fun:is_dst\n  ...\n}\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_no_gadget_touches_memory_that_is_not_ours(tmp_path):
    (tmp_path / "loader.supp").write_text(LOADER)
    check = (
        "valgrind",
        "--quiet",
        "--undef-value-errors=no",
        "--error-exitcode=9",
        f"--suppressions={tmp_path}/loader.supp",
    )
    done = watched("--every", "10", before=check, PYTHONMALLOC="malloc")
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout)["gadgets"] > 2000
