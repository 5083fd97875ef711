"""A comparison as a film."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import torch

from nerd_gym.envs.factory import manual_reset_env
from nerd_gym.utils.progress import progress
from nerd_gym.utils.video import VideoWriter

from .comparison import Comparison

SECONDS, FPS, ROWS, QUALITY = 10.0, 20, 2, 5  # of a film


def film(c: Comparison, paths: list[Path]) -> None:
    """The first episodes, one backend in blue and the other over it in orange, at the speed of life.

    A gif has half the size and half the pictures of an mp4.
    """
    from nerd_gym.envs.render import overlay

    first, second = c.pair
    rows = min(ROWS, c.episodes)
    env = manual_reset_env(c.env_id, rows, first.spec.backend, **c.options | first.spec.options)
    env.reset(seed=c.seed)  # for the grounds
    everyone = torch.ones(rows, dtype=torch.bool)
    stride = max(1, round(1 / (c.step * FPS)))
    steps = int(max(run.played.lengths[:rows].max() for run in (first, second)))
    frames = range(0, min(steps, int(SECONDS / c.step)), stride)
    with ExitStack() as stack:
        stack.callback(env.close)
        writers = []
        for path in paths:
            coarse = 2 if path.suffix == ".gif" else 1
            writer = stack.enter_context(VideoWriter(path, 1 / (c.step * stride * coarse), QUALITY))
            writers.append((writer, coarse))
        for k, t in enumerate(progress(frames, unit="frame", desc="film")):
            here, there = (run.played.q[min(t, len(run.played.q) - 1), :rows] for run in (first, second))
            env.backend.reset(everyone, here, torch.zeros_like(env.backend.qd))
            text = f"{first.label} blue, {second.label} orange   {(t + 1) * c.step:.2f} s"
            picture = overlay(env, there, rows, text)
            for writer, coarse in writers:
                if k % coarse == 0:
                    writer.add(picture[::coarse, ::coarse])
