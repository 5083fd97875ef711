"""Samples from surrogate reality, and the baseline of all that adapts: MuJoCo with searched parameters."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nerd_gym.collision.models.identify import Coordinates
from nerd_gym.collision.models.laws import StrikeLaw
from nerd_gym.collision.models.surrogate import relative_error
from nerd_gym.collision.scenes.columns import STRIKE, VELOCITY
from nerd_gym.collision.scenes.mjcf import TIME_CONSTANT
from nerd_gym.collision.scenes.simulate import CollisionSimulator
from nerd_gym.dynamics.identify.evolution import minimise

SCRIPT = Path(__file__).parent / "surrogate_reality.py"
REST = ("final_n", "final_t", "final_theta")  # displacement up to where the block rests, in the impact frame
EVALUATIONS = 200


def measured(setting: str, shape: str, seed: int, count: int, slide: bool = False) -> tuple[Tensor, ...]:
    """Samples: strikes [N, 3] and velocities [N, 3]; with `slide` also REST [N, 3]. The process is another one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.npz"
        words = [setting, "--shape", shape, "--samples", str(count), "--seed", str(seed), "--out", str(path)]
        subprocess.run([sys.executable, str(SCRIPT), *words, *["--slide"] * slide], check=True)
        with np.load(path) as file:
            names = (STRIKE, VELOCITY, REST)[: 2 + slide]
            return tuple(torch.from_numpy(np.stack([file[n] for n in own], -1)).float() for own in names)


def searched_parameters(
    simulator: CollisionSimulator,
    law: StrikeLaw,
    pre: Tensor,
    post: Tensor,
    seed: int,
    further: Callable[[Tensor], Tensor] | None = None,
    elliptic: bool = False,
) -> Tensor:
    """The parameters [4] (columns.PARAMETERS) with which the simulator fits the samples best, by CMA-ES.

    `elliptic`: with the friction cone of NeRD/Strike-v0 instead of the training scene's. `further` gives more relative
    errors [N] of parameters, for example of where blocks come to rest."""
    frame = Coordinates(law, torch.zeros(1))

    def cost(point: Tensor) -> float:
        values = frame.values(point.float())
        found = float(relative_error(simulated(simulator, pre, values, elliptic), post).square().mean())
        return found if further is None else found + float(further(values).square().mean())

    return frame.values(minimise(cost, torch.zeros(4, dtype=torch.float64), 1.0, EVALUATIONS, seed).float())


def simulated(simulator: CollisionSimulator, strikes: Tensor, values: Tensor, elliptic: bool = False) -> Tensor:
    """Outcomes of strikes [N, 3] with these parameters."""
    own = [*values.flatten().tolist(), *(TIME_CONSTANT, 0.0, 1.0) * elliptic]  # the last columns of WIDE
    rows = np.broadcast_to(own, (len(strikes), len(own)))
    return torch.from_numpy(simulator(np.concatenate([strikes.double().numpy(), rows], 1))).float()


def searched(simulator: CollisionSimulator, law: StrikeLaw, pre: Tensor, post: Tensor, seed: int):
    """The training simulator with the parameters that fit the samples best, as a function of strikes."""
    values = searched_parameters(simulator, law, pre, post, seed)
    return lambda strikes: simulated(simulator, strikes, values)
