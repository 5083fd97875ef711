"""NeRD: learning a robot's dynamics from another backend's motion."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models.checkpoint import load_model
    from .newton_solver import SolverNeRD

# Importing the solver starts Newton and Warp, so it waits until someone asks for it.
_LAZY = {"SolverNeRD": "newton_solver", "load_model": "models.checkpoint"}
__all__ = ["SolverNeRD", "load_model"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
