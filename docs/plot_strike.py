"""Pictures of NeRD/Strike-v0: docs/pictures/strike-routes.png, and a film of one strike per shape, strike.gif.

python docs/plot_strike.py
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import gymnasium
import numpy as np
import torch
from matplotlib import pyplot
from matplotlib.patches import Circle, FancyBboxPatch, Polygon
from matplotlib.transforms import Affine2D
from PIL import Image

import nerd_gym  # noqa: F401  registers the ids
from nerd_gym.collision.scenes.mjcf import footprint
from nerd_gym.collision.scenes.shapes import SHAPES
from nerd_gym.envs.factory import native
from nerd_gym.envs.strike_goals import RADIUS, SEGMENT, SPREAD, TURNS, ZONE, route_points
from nerd_gym.utils.files import atomic_write

PICTURES = Path(__file__).parent / "pictures"
STRIKES = {"semicylinder": (0.15, 0.3, -0.2), "square": (0.1, 0.4, 0.3), "triangle": (-0.05, 0.3, 0.2)}
PAUSE, COLOURS = 80, 96  # ms a picture, and colours of each


def routes(path: Path) -> None:
    """The three routes from above, with segments of the middle length."""
    figure, axes = pyplot.subplots(1, len(TURNS), figsize=(12, 3.2))
    for axis, (number, turns) in zip(axes, TURNS.items(), strict=True):
        given = torch.zeros(1, 3)
        given[0, : len(turns)] = torch.tensor(turns)
        points = route_points(torch.full((1, 3), SEGMENT), given)[0, : len(turns) + 1].numpy()
        for start, end in itertools.pairwise(points):
            heading = end[2] + math.pi
            box = FancyBboxPatch((0, -1e-9), SEGMENT, 2e-9, boxstyle=f"round,pad={ZONE}", fc="#dfe7f2", ec="none")
            box.set_transform(Affine2D().rotate(heading).translate(*start[:2]) + axis.transData)
            axis.add_patch(box)
            ends = SEGMENT + SPREAD * np.array([[-1.0], [1.0]])
            spread = start[:2] + ends * np.array([math.cos(heading), math.sin(heading)])
            axis.plot(*zip(start[:2], end[:2], strict=True), "-", color="#5a6f8f", lw=1.5)
            axis.plot(*spread.T, "-", color="#5a6f8f", lw=5, alpha=0.35)
        points[0, 2] = math.pi
        for number_of, (x, y, yaw) in enumerate(points):
            block = Polygon(
                footprint(SHAPES["semicylinder"]), fc="#3572b8", ec="#1f4b80", alpha=0.3 if number_of else 1
            )
            block.set_transform(Affine2D().rotate(yaw).translate(x, y) + axis.transData)
            axis.add_patch(block)
            if number_of:
                axis.add_patch(Circle((x, y), RADIUS, fc="#58b368", ec="#2f7d43", alpha=0.6))
        axis.set_title(f"route {number}")
        axis.set_aspect("equal")
        axis.set_xlim(-0.25, 1.1)
        axis.set_ylim(-0.3, 0.65)
        axis.set_xlabel("x (m)")
    axes[0].set_ylabel("y (m)")
    figure.tight_layout()
    with atomic_write(path) as part:
        figure.savefig(part, dpi=100, format="png")
    pyplot.close(figure)


def film(path: Path) -> None:
    """One strike of each shape, side by side; the shorter ones stand still at the end."""
    films = []
    for shape, action in STRIKES.items():
        envs = gymnasium.make_vec("NeRD/Strike-v0", num_envs=1, shape=shape, autoreset_mode="Disabled")
        inner, pictures = native(envs), []
        inner.watch = lambda env=inner, to=pictures: to.append(env.renderer.frame(env)[130:350, 180:480])
        envs.reset(seed=3)
        inner.watch()
        envs.step(np.array([action], np.float32))
        films.append(pictures)
        envs.close()
    length = max(map(len, films)) + 6
    rows = [np.concatenate([film[min(k, len(film) - 1)] for film in films], 1) for k in range(length)]
    pictures = [
        Image.fromarray(row)
        .resize((720, 176), Image.LANCZOS)
        .quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        for row in rows
    ]
    with atomic_write(path) as part:
        pictures[0].save(part, "GIF", save_all=True, append_images=pictures[1:], duration=PAUSE, loop=0, optimize=True)


if __name__ == "__main__":
    routes(PICTURES / "strike-routes.png")
    film(PICTURES / "strike.gif")
