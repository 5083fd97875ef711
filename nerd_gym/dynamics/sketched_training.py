"""What a sketched model knows before its network learns: inertias from frames in flight, contact gains from others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..robots.kinematics import Kinematics
from .data import Data, Frames, nearness
from .frames import RobotFrames
from .identify_free import fit_contact_gains, identify_free
from .model import Motion
from .sketched import Sketch
from .structured_training import CLEAR, TOUCHING, draw, inside_limits

LOOKED_AT = 20_000  # trajectories that frames are looked for in
FLYING, LANDING = 8000, 4000  # frames that inertias and gains are fitted to
FEWEST = 500
NO_GAINS = (1.0, 1.0, 1.0, 1.0)  # of a robot without a ground


def identify_sketch(data: Data, seed: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors of the sketch and further facts."""
    robot, generator = data.robot, torch.Generator().manual_seed(seed)
    spread = torch.linspace(0, len(data.train["q"]) - 1, min(LOOKED_AT, len(data.train["q"]))).long()
    arrays = {name: value[spread] for name, value in data.train.items()}
    clear = touching = None
    if robot.ground is not None:
        near, way = nearness(robot, arrays)
        clear, touching = (near > CLEAR + 0.25 * way).nonzero(), (near < TOUCHING).nonzero()
        if len(clear) < FEWEST or len(touching) < FEWEST:
            raise ValueError(
                f"{len(clear)} frames are clear of the ground and {len(touching)} touch it; at least {FEWEST} of each "
                "are needed to learn inertias and contact: generate more transitions"
            )
    flying = draw(arrays, clear, FLYING, generator)
    inside = inside_limits(robot, flying)
    inertias = identify_free(robot, {name: value[inside] for name, value in flying.items()})
    gains = NO_GAINS
    if touching is not None:
        frames = RobotFrames(Kinematics(robot))

        def advance(gains: tuple[float, ...], given: Frames) -> Tensor:
            """Next qd [B, nv] of frames under contact gains."""
            now = Motion(given["q"].float(), given["qd"].float())
            sketch = Sketch(robot, inertias.parameters, torch.tensor(gains))
            ground = given["ground_point"].float(), given["ground_normal"].float()
            step, change, _ = sketch(now, given["force"].float(), ground)
            return frames.advance(now, step, change).qd

        gains = fit_contact_gains(robot, inertias, draw(arrays, touching, LANDING, generator), advance)
    tensors = {"sketch.parameters": inertias.parameters, "sketch.gains": torch.tensor(gains, dtype=torch.float64)}
    learned = {"rank": inertias.rank, "residual": inertias.residual}
    return tensors, learned | {"contact_gains": [float(f"{gain:.5g}") for gain in gains]}
