"""NerdEnv: a plain Gymnasium environment, the numpy view of a batch of one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode

from .vector import RENDER_MODES, NerdVectorEnv


class NerdEnv(gymnasium.Env, EzPickle):
    """One robot. The arguments are :class:`NerdVectorEnv`'s; the horizon is gymnasium.make's TimeLimit.

    ``info`` holds ``reward_terms``, a dict of numbers, ``diverged`` and what the backend adds.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 60}

    def __init__(
        self,
        env_id: str,
        *,
        backend: str | None = None,
        physics: str | None = None,
        render_mode: str | None = None,
        **options: Any,
    ):
        EzPickle.__init__(self, env_id, backend=backend, physics=physics, render_mode=render_mode, **options)
        for fixed in ("num_envs", "array", "autoreset_mode"):
            if fixed in options:
                raise ValueError(f"option {fixed!r} is for gymnasium.make_vec; gymnasium.make is one robot in numpy")
        self.batch = NerdVectorEnv(
            env_id,
            1,
            backend=backend,
            physics=physics,
            array="torch",
            autoreset_mode=AutoresetMode.DISABLED,
            render_mode=render_mode,
            **options,
        )
        self.task, self.backend = self.batch.task, self.batch.backend
        self.render_mode = render_mode
        if render_mode == "human":
            self.batch.watch = self.render
        self.metadata = {key: self.batch.metadata[key] for key in ("render_modes", "render_fps")}
        self.observation_space = self.batch.single_observation_space
        self.action_space = self.batch.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        obs, info = self.batch.reset(seed=seed, options=options)
        if self.render_mode == "human":
            self.render()
        return _first(obs), _first(info)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        action = np.asarray(action, np.float32)
        if action.shape != self.action_space.shape:
            raise ValueError(f"action has shape {action.shape}; it must have {self.action_space.shape}")
        with torch.inference_mode():  # everything leaves as numpy: no tensor of this step can need a gradient
            obs, reward, terminated, truncated, info = self.batch.step(action[None])
        if self.render_mode == "human":
            self.render()
        terms = dict(zip(self.batch.reward_terms, info["reward_terms"].squeeze(0).tolist(), strict=True))
        rest = {key: value.item() for key, value in info.items() if key != "reward_terms"}
        info = {"reward_terms": terms, **rest}
        return _first(obs), reward.item(), terminated.item(), truncated.item(), info

    def render(self) -> np.ndarray | None:
        frames = self.batch.render()
        return frames[0] if frames else None

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`NerdVectorEnv.snapshot`."""
        return self.batch.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> np.ndarray:
        """See :meth:`NerdVectorEnv.restore`."""
        return _first(self.batch.restore(snapshot))

    def close(self) -> None:
        self.batch.close()


def _first(value: Any) -> Any:
    """Row 0 as numpy or a plain number."""
    if isinstance(value, dict):
        return {key: _first(item) for key, item in value.items()}
    return value.squeeze(0).cpu().numpy() if value.ndim > 1 else value.item()
