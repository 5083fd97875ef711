"""Programs that run in a process of their own and cannot hang a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .grid import ROOT


def run(*command: str | Path, timeout: float = 120, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """The output of a command; a failure, or more than `timeout` seconds, fails the test with what it wrote.

    It has a process group, which is ended as a whole: a worker that hangs would outlive its parent.
    """
    words = [str(word) for word in command]
    process = subprocess.Popen(
        words, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"{' '.join(words)} did not end within {timeout} s:\n{output[-3000:]}") from None
    assert process.returncode == 0, f"{' '.join(words)} ended with {process.returncode}:\n{output[-3000:]}"
    return output


def python(*words: str | Path, timeout: float = 120) -> str:
    """The output of this Python with these arguments, in the checkout."""
    return run(sys.executable, *words, timeout=timeout, env={**os.environ, "PYTHONPATH": str(ROOT)})
