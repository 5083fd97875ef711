"""The demo: the same actions on every backend that a robot has; a table, a plot and a film."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from .drift import MEASURES, Drift, measure_drift
from .dynamics.checkpoint import has_packaged_model
from .optional import require
from .progress import progress
from .registration import ENVS
from .video import VideoWriter

FRAMES = (10, 50, 100)
BACKENDS = ("warp", "mujoco")


def run_demo(out: Path, video: bool = True, num_envs: int = 64, seed: int = 0) -> list[Drift]:
    """Write drift.json, drift.png and (with video) drift.mp4 into `out`; print the table."""
    out.mkdir(parents=True, exist_ok=True)
    require("matplotlib", extra="video")
    drifts: list[Drift] = []
    film = VideoWriter(out / "drift.mp4", fps=30) if video else nullcontext()
    with film as writer, progress(total=len(ENVS) * max(FRAMES), unit="frame", desc="demo") as bar:
        for env_id in ENVS:
            bar.set_postfix_str(env_id)

            def on_step(step: int, envs: list, env_id: str = env_id) -> None:
                bar.update()
                if writer is not None and step % 2 == 0:
                    writer.add(side_by_side(env_id, envs))

            drifts += measure_drift(env_id, backends_of(env_id), max(FRAMES), num_envs, seed, on_step)
    print(table(drifts))
    plot(drifts, out / "drift.png")
    facts = {
        "what": f"median drift from {BACKENDS[0]}, same start and actions, default physics",
        "num_envs": num_envs,
        "seed": seed,
        "units": MEASURES,
        "drift": {
            other: {d.env_id: {str(f): d.at(f) for f in FRAMES} for d in drifts if d.backends[1] == other}
            for other in (*BACKENDS[1:], "neural")
        },
    }
    (out / "drift.json").write_text(json.dumps(facts, indent=2) + "\n")
    written = ["drift.json", "drift.png"] + ["drift.mp4"] * video
    print(f"written to {out}: {', '.join(written)}")
    return drifts


def backends_of(env_id: str) -> tuple[str, ...]:
    """The analytical backends, and the learned one if a model of the robot is packaged."""
    learned = has_packaged_model(ENVS[env_id].robot_name, BACKENDS[0])
    return (*BACKENDS, "neural") if learned else BACKENDS


def table(drifts: list[Drift]) -> str:
    """The drift as text."""
    lines = [f"median drift from {BACKENDS[0]} under the same actions (default physics)"]
    head = f"{'environment':26s}{'backend':10s}{'error':20s}"
    lines.append(head + "".join(f"{frame:>6d} frames" for frame in FRAMES))
    for d in drifts:
        for name, unit in MEASURES.items():
            if name in d.errors:
                values = "".join(f"{d.at(frame)[name]:13.2g}" for frame in FRAMES)
                lines.append(f"{d.env_id:26s}{d.backends[1]:10s}{name + ' (' + unit + ')':20s}{values}")
    return "\n".join(lines)


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
    axes[0, 0].set_ylabel(f"drift from {BACKENDS[0]}")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def side_by_side(env_id: str, envs: list) -> np.ndarray:
    """Row 0 of every environment next to each other, each with its name; always as wide as all backends need."""
    pictures = [label(env.renderer.frame(env, 0), f"{env_id}   {env.backend.name}") for env in envs]
    blank = np.full_like(pictures[0], 255)
    pictures += [label(blank, "no learned model of this robot is packaged")] * (len(BACKENDS) + 1 - len(envs))
    return np.concatenate(pictures, 1)


def label(picture: np.ndarray, text: str) -> np.ndarray:
    """Write text into the upper left corner."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(picture)
    ImageDraw.Draw(image).text((14, 10), text, fill=(40, 44, 52), font=ImageFont.load_default(20))
    return np.asarray(image)
