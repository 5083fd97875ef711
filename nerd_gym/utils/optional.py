"""Packages that only some parts of the suite need."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra brings it."""
    try:
        return import_module(package)
    except ImportError as error:
        name = package.split(".")[0]
        raise ImportError(f"this needs {name}, not installed: pip install 'nerd-gym[{extra}]'") from error


def absent(*packages: str) -> list[str]:
    """Those of the packages that are not installed."""
    return [name for name in packages if find_spec(name) is None]
