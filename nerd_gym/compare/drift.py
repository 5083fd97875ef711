"""How far backends drift apart under the same actions from the same start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nerd_gym.envs.factory import endless_env
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.robots.state import state_error


@dataclass
class Drift:
    """Errors per frame and environment, [T, N] each; a fixed base has joints alone."""

    env_id: str
    backends: tuple[str, str]
    errors: dict[str, Tensor]

    def at(self, frame: int) -> dict[str, float]:
        """The median over the environments after `frame` frames."""
        return {name: float(error[frame - 1].median()) for name, error in self.errors.items()}


def smooth_actions(env: NerdVectorEnv, frames: int, seed: int, scale: float = 0.5, hold: int = 8) -> Tensor:
    """[frames, N, action_size]: random actions that stay the same for `hold` steps."""
    generator = torch.Generator().manual_seed(seed)
    shape = (-(-frames // hold), env.num_envs, env.task.action_size)
    actions = scale * (2 * torch.rand(shape, generator=generator) - 1)
    return actions.repeat_interleave(hold, 0)[:frames].to(env.device)


def measure_drift(
    env_id: str,
    backends: tuple[str, ...],
    frames: int = 100,
    num_envs: int = 64,
    seed: int = 0,
    on_step: Callable[[int, list[NerdVectorEnv]], None] | None = None,
    **options,
) -> list[Drift]:
    """Step all backends with the same actions, nobody being reset on the way: the drift of each from the first."""
    envs = [endless_env(env_id, num_envs, backend, **options) for backend in backends]
    for env in envs:
        env.reset(seed=seed)
    actions = smooth_actions(envs[0], frames, seed)
    rows: list[dict[str, list[Tensor]]] = [{} for _ in envs[1:]]
    for step in range(frames):
        for env in envs:
            env.step(actions[step])
        for row, env in zip(rows, envs[1:], strict=True):
            for name, error in state_error(env.task.robot, envs[0].backend.q, env.backend.q).items():
                row.setdefault(name, []).append(error)
        if on_step is not None:
            on_step(step, envs)
    for env in envs:
        env.close()
    return [
        Drift(env_id, (backends[0], other), {name: torch.stack(errors) for name, errors in row.items()})
        for other, row in zip(backends[1:], rows, strict=True)
    ]
