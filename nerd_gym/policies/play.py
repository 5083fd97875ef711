"""Play an environment with an agent, print what happened, film it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium

from nerd_gym.envs.factory import native
from nerd_gym.utils.arguments import check_counts, check_seed
from nerd_gym.utils.device import torch_device
from nerd_gym.utils.progress import progress
from nerd_gym.utils.video import check_film
from nerd_gym.wrappers import RecordEpisodeStatistics, RecordVideo
from nerd_gym.wrappers.reference_observation import in_layout

from .agents import load_agent


def play(
    env_id: str,
    *,
    backend: str | None = None,
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
    check_counts(steps=steps, num_envs=num_envs)
    check_seed(seed)
    if video is not None:
        check_film(video)
    env = gymnasium.make_vec(
        env_id,
        num_envs=num_envs,
        backend=backend,
        array="torch",
        device=torch_device(device),
        render_mode="human" if window else None,
        **(options or {}),
    )
    inner = native(env)
    steps = steps or inner.horizon
    if steps is None:
        raise ValueError(f"{env_id} has no horizon; say how many steps to play")
    env = statistics = RecordEpisodeStatistics(env)
    env = in_layout(env, layout)
    player = load_agent(agent, env, activation, seed)
    if video is not None:
        env = RecordVideo(env, video)
    returns, lengths, falls, diverged = [], [], 0, 0
    obs, _ = env.reset(seed=seed)
    try:
        for _ in progress(range(steps), unit="step", desc=f"{env_id} on {inner.backend.name}"):
            obs, _, terminated, truncated, info = env.step(player.act(obs))
            player.reset(terminated | truncated)
            if window:
                inner.render()
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
