"""Opens files in processes of their own, each with a limit of memory and time, and tells what became of them.

The parent has imported everything; a child is a fork of it that opens one file and ends. So a crash, a hang or an
allocation of gigabytes is seen and harms nobody.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

MEMORY = 2**30  # bytes beyond what the parent has
SECONDS = 10
ACCEPTED, REFUSED, UNNAMED, ERROR = 0, 3, 4, 5  # exit codes of a child
WORDS = {ACCEPTED: "accepted", REFUSED: "refused", UNNAMED: "refused without the file's name", ERROR: "other error"}


@dataclass
class Report:
    """What became of the files of one kind."""

    outcomes: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)  # what must not happen, with the mutation that did it

    def add(self, outcome: str, about: str, told: str) -> None:
        """Count a file."""
        self.outcomes[outcome] += 1
        if outcome not in ("accepted", "refused"):
            self.bad.append(f"{outcome}: {about}: {told}")


def fuzz(
    open_file: Callable[[Path], None],
    files: Iterable[tuple[str, bytes]],
    suffix: str,
    memory: int = MEMORY,
    cpu_seconds: int | None = None,
) -> Report:
    """Open every file (a word on how it was made, content) in its own process.

    `open_file` returns if the file is fine as far as it can tell, having used what it holds, and raises ValueError,
    naming the file, if it is not. A child may take so many bytes beyond what the parent has, and so much CPU time.
    """
    report = Report()
    gc.collect()
    gc.freeze()  # a child that marked the parent's objects would copy the pages that they are in
    try:
        with tempfile.TemporaryDirectory() as folder:
            path, told = Path(folder) / f"stranger{suffix}", Path(folder) / "told.txt"
            for about, content in files:
                path.write_bytes(content)
                told.write_text("")
                report.add(_outcome(_fork(open_file, path, told, memory, cpu_seconds)), about, told.read_text()[-2000:])
    finally:
        gc.unfreeze()
    return report


def _fork(open_file: Callable[[Path], None], path: Path, told: Path, memory: int, cpu_seconds: int | None) -> int:
    """Wait status of a child that opens the file."""
    child = os.fork()
    if child:
        return _wait(child)
    code = ERROR
    try:
        os.chdir(path.parent)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cpu_seconds is not None:  # the child's own: a fork begins with none
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        open_file(path)
        code = ACCEPTED
    except ValueError as error:
        code = REFUSED if path.name in str(error) else UNNAMED
        told.write_text(f"{type(error).__name__}: {error}", errors="replace")
    except BaseException:
        told.write_text(traceback.format_exc(), errors="replace")
    finally:
        os._exit(code)  # nothing of the parent's is to be run twice


def _wait(child: int) -> int:
    handle = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([handle], [], [], SECONDS)
    finally:
        os.close(handle)
    if not ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return status if ready else -1


def _outcome(status: int) -> str:
    if status == -1:
        return f"hang of {SECONDS} s"
    if os.WIFSIGNALED(status):
        return f"crash by {signal.Signals(os.WTERMSIG(status)).name}"
    return WORDS.get(os.WEXITSTATUS(status), f"exit code {os.WEXITSTATUS(status)}")
