"""nerd_gym: Gymnasium environments with swappable physics.

    import gymnasium, nerd_gym

    env = gymnasium.make("NeRD/Ant-v0", backend="warp")
    envs = gymnasium.make_vec("NeRD/Ant-v0", num_envs=1024, backend="mujoco", array="torch")

Importing the package registers the ids and imports neither torch nor a physics engine.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from .registration import register_envs

if TYPE_CHECKING:
    from .backends import make_backend
    from .envs.single import NerdEnv
    from .envs.vector import NerdVectorEnv
    from .robots.model import RobotModel

__version__ = "0.2.0"

# MuJoCo chooses its graphics when it is first imported; without a screen only EGL can draw.
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

_LAZY = {
    "RobotModel": "robots.model",
    "NerdVectorEnv": "envs.vector",
    "NerdEnv": "envs.single",
    "make_backend": "backends",
}
__all__ = ["NerdEnv", "NerdVectorEnv", "RobotModel", "__version__", "make_backend"]


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


register_envs()
