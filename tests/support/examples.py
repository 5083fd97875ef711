"""The programs in examples/, as modules."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from .grid import ROOT


def example(name: str) -> ModuleType:
    """The module examples/NAME.py."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up the types of their fields
    spec.loader.exec_module(module)
    return module
