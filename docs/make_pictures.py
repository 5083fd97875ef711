"""Make the pictures of README and docs: robots.png, and drift.png with its figures in benchmarks/results.

python docs/make_pictures.py
"""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import nerd_gym  # noqa: F401  registers the ids
from nerd_gym.drift import ANALYTICAL, MEASURES, Drift, backends_of, measure_drift
from nerd_gym.files import whole
from nerd_gym.progress import progress
from nerd_gym.registration import PACKAGED
from nerd_gym.video import label

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
FRAMES = (10, 50, 100)


def robots() -> None:
    """The five robots in a row, each a second into an episode."""
    pictures = []
    for env_id in PACKAGED:
        env = gymnasium.make(env_id, backend="mujoco", render_mode="rgb_array")
        env.reset(seed=1)
        for k in range(30):
            env.step(np.full(env.action_space.shape, 0.2 * np.sin(k / 5), np.float32))
        frame = env.render()[:, 120:520]
        pictures.append(label(frame, env_id.removeprefix("NeRD/")))
        env.close()
    strip = Image.fromarray(np.concatenate(pictures, 1))
    strip.resize((strip.width // 2, strip.height // 2), Image.LANCZOS).save(HERE / "robots.png", optimize=True)


def drift(figures: Path, picture: Path, num_envs: int = 256, seed: int = 0) -> None:
    """How far the backends drift apart under the same actions: a json and a plot."""
    drifts: list[Drift] = []
    for env_id in progress(PACKAGED, desc="drift"):
        drifts += measure_drift(env_id, backends_of(env_id), max(FRAMES), num_envs, seed)
    facts = {
        "what": f"median drift from {ANALYTICAL[0]}, same start and actions, default physics",
        "num_envs": num_envs,
        "seed": seed,
        "units": MEASURES,
        "drift": {
            other: {d.env_id: {str(f): d.at(f) for f in FRAMES} for d in drifts if d.backends[1] == other}
            for other in (*ANALYTICAL[1:], "neural")
        },
    }
    with whole(figures) as part:
        part.write_text(json.dumps(facts, indent=2) + "\n")
    plot(drifts, picture)


def plot(drifts: list[Drift], path: Path) -> None:
    """Median and quartiles of the drift over the frames, one panel per environment."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = {env_id: axis for axis, env_id in enumerate(dict.fromkeys(d.env_id for d in drifts))}
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.2 * len(panels), 3.2), sharex=True, squeeze=False)
    for d in drifts:
        axis = axes[0, panels[d.env_id]]
        for name, error in d.errors.items():
            values = error.cpu().numpy().clip(1e-9)
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=1)
            frames = np.arange(1, len(middle) + 1)
            axis.semilogy(frames, middle, label=f"{d.backends[1]}: {name} ({MEASURES[name]})")
            axis.fill_between(frames, low, high, alpha=0.2)
        axis.set_title(d.env_id.removeprefix("NeRD/"))
        axis.set_xlabel("frames")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    axes[0, 0].set_ylabel(f"drift from {ANALYTICAL[0]}")
    figure.tight_layout()
    with whole(path) as part:
        figure.savefig(part, dpi=110, format="png")
    pyplot.close(figure)


if __name__ == "__main__":
    robots()
    drift(RESULTS / "drift.json", HERE / "drift.png")
