"""Make the pictures of README and docs: robots.png, and drift.png with its figures in benchmarks/results.

python docs/make_pictures.py
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import nerd_gym  # noqa: F401  registers the ids
from nerd_gym.demo import label, run_demo
from nerd_gym.registration import ENVS

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"


def robots() -> None:
    """The five robots in a row, each a second into an episode."""
    pictures = []
    for env_id in ENVS:
        env = gymnasium.make(env_id, backend="mujoco", render_mode="rgb_array")
        env.reset(seed=1)
        for k in range(30):
            env.step(np.full(env.action_space.shape, 0.2 * np.sin(k / 5), np.float32))
        frame = env.render()[:, 120:520]
        pictures.append(label(frame, env_id.removeprefix("NeRD/")))
        env.close()
    strip = Image.fromarray(np.concatenate(pictures, 1))
    strip.resize((strip.width // 2, strip.height // 2), Image.LANCZOS).save(HERE / "robots.png", optimize=True)


def drift() -> None:
    """The demo's plot and figures."""
    with tempfile.TemporaryDirectory() as folder:
        run_demo(Path(folder), video=False, num_envs=256)
        shutil.copy(Path(folder) / "drift.png", HERE / "drift.png")
        shutil.copy(Path(folder) / "drift.json", RESULTS / "drift.json")


if __name__ == "__main__":
    robots()
    drift()
