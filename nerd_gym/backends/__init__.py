"""Physics backends. A new one is one file here and one row in the table."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..arguments import key_value

if TYPE_CHECKING:
    from ..robots.model import RobotModel
    from .base import Backend


@dataclass(frozen=True)
class Entry:
    """Where a backend lives and what it needs; its module is imported on first use."""

    module: str
    cls: str
    packages: tuple[str, ...]
    summary: str

    def missing(self) -> list[str]:
        """Needed packages that are not installed."""
        return [name for name in self.packages if find_spec(name) is None]


BACKENDS = {
    "warp": Entry("warp", "WarpBackend", ("warp", "newton"), "Featherstone on NVIDIA Warp, penalty contacts"),
    "mujoco": Entry("mujoco", "MujocoBackend", ("mujoco",), "MuJoCo's C engine, threaded batch"),
    "neural": Entry("neural", "NeuralBackend", ("warp", "newton"), "a learned model in place of the solver (NeRD)"),
}


def backend_class(name: str) -> type[Backend]:
    """The class of a backend, or an error that names the valid ones or the missing package."""
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; valid: {', '.join(BACKENDS)}")
    entry = BACKENDS[name]
    if missing := entry.missing():
        raise ImportError(
            f"backend {name!r} needs {', '.join(missing)}, not installed: pip install {' '.join(missing)}"
        )
    return getattr(import_module(f".{entry.module}", __name__), entry.cls)


def make_backend(name: str, robot: RobotModel, num_envs: int, device: Any = "cpu", **options: Any) -> Backend:
    """A batch of `num_envs` robots on the named physics."""
    cls = backend_class(name)
    for option in options:
        if option not in cls.options:
            raise ValueError(f"unknown option {option!r} for backend {name!r}; valid: {', '.join(cls.options)}")
    if num_envs < 1:
        raise ValueError(f"num_envs is {num_envs}; it must be at least 1")
    return cls(robot, num_envs, device, **options)


def parse_backend(text: str) -> tuple[str, dict[str, Any]]:
    """A backend with options as text, `warp:reference=True,substeps=4`."""
    name, _, rest = text.partition(":")
    backend_class(name)
    return name, dict(key_value(part) for part in rest.split(",")) if rest else {}
