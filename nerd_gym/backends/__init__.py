"""Physics backends. A new one is one file here and one row in the table."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nerd_gym.utils.arguments import MOST_ENVS, key_value

if TYPE_CHECKING:
    from nerd_gym.robots.model import RobotModel

    from .base import Backend


@dataclass(frozen=True)
class Entry:
    """Where a backend lives and what it needs; its module is imported on first use."""

    module: str  # of the class, absolute: a backend may live in another package
    cls: str
    packages: tuple[str, ...]
    summary: str

    def missing(self) -> list[str]:
        """Needed packages that are not installed."""
        return [name for name in self.packages if find_spec(name) is None]


BACKENDS = {
    "warp": Entry(f"{__name__}.warp", "WarpBackend", ("warp",), "Featherstone on Warp, penalty contacts"),
    "mujoco": Entry(f"{__name__}.mujoco", "MujocoBackend", ("mujoco",), "MuJoCo's C engine, threaded batch"),
    "neural": Entry(f"{__name__}.neural", "NeuralBackend", ("warp",), "a learned model in place of the solver (NeRD)"),
    "hybrid": Entry(
        f"{__name__}.hybrid", "HybridBackend", ("mujoco", "warp"), "MuJoCo with learned collisions (CLASH)"
    ),
    "augmented": Entry(
        f"{__name__}.augmented", "AugmentedBackend", ("warp",), "warp's engine with networks inside (NeuralSim)"
    ),
}
DEFAULT = "warp"


def backend_class(name: str) -> type[Backend]:
    """The class of a backend, or an error that names the valid ones or the missing package."""
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; valid: {', '.join(BACKENDS)}")
    entry = BACKENDS[name]
    if missing := entry.missing():
        raise ImportError(
            f"backend {name!r} needs {', '.join(missing)}, not installed: pip install {' '.join(missing)}"
        )
    return getattr(import_module(entry.module), entry.cls)


def make_backend(name: str, robot: RobotModel, num_envs: int, device: Any = "cpu", **options: Any) -> Backend:
    """A batch of `num_envs` robots on the named physics."""
    cls = backend_class(name)
    for option in options:
        if option not in cls.options:
            raise ValueError(f"unknown option {option!r} for backend {name!r}; valid: {', '.join(cls.options)}")
    if num_envs < 1:
        raise ValueError(f"num_envs is {num_envs}; it must be at least 1")
    if num_envs > MOST_ENVS:
        raise ValueError(f"num_envs is {num_envs}; it must be at most {MOST_ENVS}")
    from nerd_gym.utils.device import torch_device  # torch is imported when a backend is made

    return cls(robot, num_envs, torch_device(device), **options)


def installed_backends() -> tuple[str, ...]:
    """Those whose packages are installed, in the table's order."""
    return tuple(name for name, entry in BACKENDS.items() if not entry.missing())


def backends_for(robot: RobotModel) -> tuple[str, ...]:
    """The installed backends that simulate a robot as it is, without further options."""
    return tuple(name for name in installed_backends() if backend_class(name).simulates(robot))


def parse_backend(text: str) -> tuple[str, dict[str, Any]]:
    """A backend with options as text, `warp:reference=True,substeps=4`."""
    name, _, rest = text.partition(":")
    backend_class(name)
    return name, dict(key_value(part) for part in rest.split(",")) if rest else {}
