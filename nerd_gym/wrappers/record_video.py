"""Film one row of a vector environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from nerd_gym.envs.factory import native
from nerd_gym.utils.video import VideoWriter


class RecordVideo(VectorWrapper):
    """Writes every step of row `row` to an mp4 or gif, from the first reset to :meth:`close`.

    A task whose steps are long has pictures within a step, too.

    The file appears when it is whole: a run that is cut leaves none behind.
    """

    def __init__(self, env: VectorEnv, path: str | Path, row: int = 0):
        super().__init__(env)
        if not 0 <= row < env.num_envs:
            raise ValueError(f"row is {row}; this environment has rows 0 to {env.num_envs - 1}")
        self._row, self._native = row, native(env)
        self._writer = VideoWriter(path, self._native.metadata["render_fps"])
        self._native.watch = lambda: self._writer.add(self._frame())

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        self._writer.add(self._frame())
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self.env.step(actions)
        self._writer.add(self._frame())
        return result

    def close(self, **kwargs: Any) -> None:
        self._native.watch = None
        self._writer.close()
        self.env.close(**kwargs)

    def _frame(self) -> np.ndarray:
        return self._native.renderer.frame(self._native, self._row)
