"""CLASH: the outcome of a collision from a network, distilled from MuJoCo and adapted with a few measured samples."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models.model import CollisionModel

_LAZY = {"CollisionModel": "models.model"}
__all__ = ["CollisionModel"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
