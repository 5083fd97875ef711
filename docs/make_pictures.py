"""Make the pictures of README and docs: docs/pictures/robots.png, and drift.png with its figures in benchmarks/results.

python docs/make_pictures.py
python docs/make_pictures.py --films    the films of legged robots, overlay-*.gif: some minutes
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import nerd_gym  # noqa: F401  registers the ids
from nerd_gym.backends import DEFAULT, backends_for
from nerd_gym.compare.comparison import compare
from nerd_gym.compare.drift import Drift, measure_drift
from nerd_gym.registration import PACKAGED
from nerd_gym.robots.state import MEASURES
from nerd_gym.utils.files import atomic_write
from nerd_gym.utils.progress import progress
from nerd_gym.utils.video import label

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
RESULTS = ROOT / "benchmarks" / "results"
FRAMES = (10, 50, 100)
FILMS = {"ant": ("NeRD/Ant-v0", "run-neural-seed0"), "anymal": ("NeRD/Anymal-v0", "forward-neural-seed1")}
SHOWN, COLOURS = 45, 48  # pictures of a film, and colours of each


def moved_by_default() -> dict[str, tuple[str, ...]]:
    """Environments of the default backend, and all backends that each of them has."""
    found = {env_id: backends_for(spec.robot({})) for env_id, spec in PACKAGED.items()}
    return {env_id: backends for env_id, backends in found.items() if DEFAULT in backends}


def robots() -> None:
    """The five robots in a row, each a second into an episode."""
    pictures = []
    for env_id in moved_by_default():
        env = gymnasium.make(env_id, backend="mujoco", render_mode="rgb_array")
        env.reset(seed=1)
        for k in range(30):
            env.step(np.full(env.action_space.shape, 0.2 * np.sin(k / 5), np.float32))
        frame = env.render()[:, 120:520]
        pictures.append(label(frame, env_id.removeprefix("NeRD/")))
        env.close()
    strip = Image.fromarray(np.concatenate(pictures, 1))
    strip.resize((strip.width // 2, strip.height // 2), Image.LANCZOS).save(PICTURES / "robots.png", optimize=True)


def drift(figures: Path, picture: Path, num_envs: int = 256, seed: int = 0) -> None:
    """How far the backends drift apart under the same actions: a json and a plot."""
    drifts: list[Drift] = []
    for env_id, backends in progress(moved_by_default().items(), desc="drift"):
        drifts += measure_drift(env_id, backends, max(FRAMES), num_envs, seed)
    facts = {
        "what": f"median drift from {DEFAULT}, same start and actions, default physics",
        "num_envs": num_envs,
        "seed": seed,
        "units": MEASURES,
        "drift": {
            other: {d.env_id: {str(f): d.at(f) for f in FRAMES} for d in drifts if d.backends[1] == other}
            for other in dict.fromkeys(d.backends[1] for d in drifts)
        },
    }
    with atomic_write(figures) as part:
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
    axes[0, 0].set_ylabel(f"drift from {DEFAULT}")
    figure.tight_layout()
    with atomic_write(path) as part:
        figure.savefig(part, dpi=110, format="png")
    pyplot.close(figure)


def films() -> None:
    """Policies that learned in a legged robot's model, in the simulator and in the model."""
    for robot, (env_id, policy) in FILMS.items():
        path = ROOT / "policies" / robot / f"{policy}.safetensors"
        with tempfile.TemporaryDirectory() as folder:
            compare(env_id, path, ("warp", "neural"), episodes=8).save(folder, video=False, gif=True)
            shorten(Path(folder) / "compare.gif", PICTURES / f"overlay-{robot}.gif")


def shorten(film: Path, out: Path) -> None:
    """The beginning of a gif in fewer colours and three quarters of its size."""
    with Image.open(film) as source:
        size, pause = tuple(3 * n // 4 for n in source.size), source.info["duration"]
        pictures = []
        for k in range(min(SHOWN, source.n_frames)):
            source.seek(k)
            pictures.append(
                source.convert("RGB").resize(size, Image.LANCZOS).quantize(COLOURS, dither=Image.Dither.NONE)
            )
    with atomic_write(out) as part:
        pictures[0].save(part, "GIF", save_all=True, append_images=pictures[1:], duration=pause, loop=0, optimize=True)


if __name__ == "__main__":
    if "--films" in sys.argv:
        films()
    else:
        robots()
        drift(RESULTS / "drift.json", PICTURES / "drift.png")
