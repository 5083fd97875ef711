"""What describes a strike and its outcome, by name, and the ranges that are generated: our choice, since the published
ranges are not known."""

from __future__ import annotations

import math

import numpy as np

from .shapes import Shape

STRIKE = ("speed", "point", "direction")
PARAMETERS = ("mu_striker", "mu_table", "zeta_striker", "zeta_table")
COLUMNS = STRIKE + PARAMETERS
# Of the packaged scenes. A damping ratio of 1 is also where the depth of the block at rest is measured.
NOMINAL: dict[str, float] = {"mu_striker": 0.3, "mu_table": 0.4, "zeta_striker": 0.4, "zeta_table": 1.0}
# Perturbed simulators differ in more than MuJoCo's parameters of a contact.
WIDE = (*COLUMNS, "time_constant", "torsion", "elliptic")
VELOCITY = ("vn", "vt", "omega")
OUTCOME = (*VELOCITY, "dn", "dt", "dtheta", "duration")


def ranges(shape: Shape, wide: bool = False) -> dict[str, tuple[float, float]]:
    """Lowest and highest value by column."""
    return {
        "speed": (0.1, 1.0),  # m/s
        "point": (-shape.reach, shape.reach),  # rad on an arc, m on a face
        "direction": (-math.radians(30), math.radians(30)),  # of the velocity, from the inward normal
        "mu_striker": (0.03, 1.2) if wide else (0.05, 0.8),
        "mu_table": (0.05, 1.2) if wide else (0.1, 0.8),
        "zeta_striker": (0.05, 2.0) if wide else (0.1, 1.2),  # damping ratio; above about 1 nothing bounces
        "zeta_table": (0.2, 2.0) if wide else (0.3, 1.5),
    } | ({"time_constant": (0.002, 0.012), "torsion": (0.0005, 0.04), "elliptic": (0.0, 1.0)} if wide else {})


def draw(shape: Shape, count: int, rng: np.random.Generator, wide: bool = False) -> np.ndarray:
    """[count, 7], or [count, 10] if wide: uniform in the ranges; time constant and torsion in their logarithm, and a
    cone is elliptic or not."""
    bounds = ranges(shape, wide)
    low, high = np.array(list(bounds.values())).T
    out = rng.uniform(low, high, (count, len(bounds)))
    for k, name in enumerate(bounds):
        if name in ("time_constant", "torsion"):
            out[:, k] = np.exp(rng.uniform(np.log(low[k]), np.log(high[k]), count))
        if name == "elliptic":
            out[:, k] = rng.integers(0, 2, count)
    return out
