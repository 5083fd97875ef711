"""What was recorded of the published simulator.

Excerpts of the recorded sets are read from ``tests/data/recorded`` if they are there, or else cut from the folder that
NERD_GYM_REFERENCE names. The whole sets and the published policies are in that folder alone.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from benchmarks.recorded_states import Recorded

from .grid import ROOT

REFERENCE = Path(os.environ.get("NERD_GYM_REFERENCE", ROOT.parent / "shared" / "reference"))
EXCERPTS = ROOT / "tests" / "data" / "recorded"


@cache
def excerpt(name: str) -> Recorded:
    """The first frames of a set's first rows; a test without them is skipped."""
    path = EXCERPTS / f"{name}.npz"
    return Recorded.of_file(path) if path.exists() else whole_set(name).excerpt()


@cache
def whole_set(name: str) -> Recorded:
    """A set of the folder; a test without it is skipped."""
    if not REFERENCE.is_dir():
        pytest.skip("recorded sets are not part of the project; NERD_GYM_REFERENCE names their folder")
    return Recorded.of_folder(REFERENCE, name)


def published_policy(name: str) -> Path:
    """A published checkpoint; a test without it is skipped."""
    path = REFERENCE / "policies" / f"{name}.pth"
    if not path.exists():
        pytest.skip("published policies are not part of the project; NERD_GYM_REFERENCE names their folder")
    return path
