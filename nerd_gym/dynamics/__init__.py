"""Learning a robot's dynamics from an analytical backend."""

from __future__ import annotations

from typing import Any

__all__ = ["SolverNeRD"]


def __getattr__(name: str) -> Any:
    # Importing the solver starts Newton and Warp, so it waits until someone asks for it.
    if name == "SolverNeRD":
        from .newton_solver import SolverNeRD

        return SolverNeRD
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
