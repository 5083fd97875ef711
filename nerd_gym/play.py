"""Play an environment with an agent, print what happened, film it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import Tensor

from .envs.vector import NerdVectorEnv
from .policies import Policy
from .progress import progress
from .wrappers import RecordEpisodeStatistics, RecordVideo, ReferenceObservation

Agent = Callable[[Tensor], Tensor]


def make_agent(name: str, env: NerdVectorEnv, seed: int, activation: str | None) -> Agent:
    """`zero`, `random`, or the path of a policy."""
    size = env.single_action_space.shape[0]
    generator = torch.Generator().manual_seed(seed)
    if name == "zero":
        return lambda obs: torch.zeros(len(obs), size, device=obs.device)
    if name == "random":
        return lambda obs: (2 * torch.rand(len(obs), size, generator=generator) - 1).to(obs.device)
    if not Path(name).exists():
        raise ValueError(f"unknown agent {name!r}; valid: zero, random, or the path of a policy file")
    return Policy.load(name, activation).to(env.unwrapped.device)


def play(
    env_id: str,
    *,
    backend: str,
    agent: str,
    steps: int | None,
    num_envs: int = 1,
    seed: int = 0,
    video: Path | None = None,
    window: bool = False,
    layout: str = "native",
    activation: str | None = None,
    device: str = "cpu",
    options: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Run `steps` steps (default: one horizon); returns figures about the finished episodes, or those under way."""
    env = gymnasium.make_vec(
        env_id,
        num_envs=num_envs,
        backend=backend,
        array="torch",
        device=device,
        render_mode="human" if window else None,
        **(options or {}),
    )
    native = env.unwrapped
    steps = steps or native.horizon
    env = statistics = RecordEpisodeStatistics(env)
    if video is not None:
        env = RecordVideo(env, video)
    if layout == "reference":
        env = ReferenceObservation(env)
    act = make_agent(agent, env, seed, activation)
    returns, lengths, falls, diverged = [], [], 0, 0
    obs, _ = env.reset(seed=seed)
    try:
        for _ in progress(range(steps), unit="step", desc=f"{env_id} on {backend}"):
            obs, _, terminated, truncated, info = env.step(act(obs))
            if isinstance(act, Policy):
                act.reset(terminated | truncated)
            if window:
                native.render()
            done = info["_episode"]
            returns += info["episode"]["r"][done].tolist()
            lengths += info["episode"]["l"][done].tolist()
            falls += int(terminated.sum())
            diverged += int(info["diverged"].sum())
    finally:
        env.close()
    finished = len(returns)
    if not finished:  # then of the episodes under way
        returns, lengths = (statistics.running[key].tolist() for key in ("r", "l"))
    return {
        "episodes": finished,
        "return": sum(returns) / len(returns),
        "length": sum(lengths) / len(lengths),
        "terminated": falls,
        "diverged": diverged,
    }
