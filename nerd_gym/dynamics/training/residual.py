"""The prior of a residual model: inertias from frames in flight, contact gains from frames near the ground."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nerd_gym.data.reader import Data, Transitions, nearness
from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.dynamics.identify.free_base import Gains, fit_contact_gains, identify_free
from nerd_gym.dynamics.models.frozen_pose import FrozenPosePrior
from nerd_gym.dynamics.models.inertias import Inertias
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.state import Motion
from nerd_gym.utils.progress import progress

from .structured import CLEAR, TOUCHING, draw, inside_limits

LOOKED_AT = 20_000  # trajectories that frames are looked for in
FLYING, LANDING = 8000, 4000  # frames that inertias and gains are fitted to
FEWEST = 500
NO_GAINS = (1.0, 1.0, 1.0, 1.0)  # of a robot without a ground


def identify_prior(data: Data, seed: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors of the prior and further facts."""
    robot, generator = data.robot, torch.Generator().manual_seed(seed)
    spread = torch.linspace(0, len(data.train["q"]) - 1, min(LOOKED_AT, len(data.train["q"]))).long()
    arrays = {name: value[spread] for name, value in data.train.items()}
    clear = touching = None
    if robot.ground is not None:
        near, displacement = nearness(robot, arrays)
        clear, touching = (near > CLEAR + 0.25 * displacement).nonzero(), (near < TOUCHING).nonzero()
        if len(clear) < FEWEST or len(touching) < FEWEST:
            raise ValueError(
                f"{len(clear)} frames are clear of the ground and {len(touching)} touch it; at least {FEWEST} of each "
                "are needed to learn inertias and contact: generate more transitions"
            )
    with progress(total=2, desc="identify", unit="part") as bar:
        flying = draw(arrays, clear, FLYING, generator)
        inside = inside_limits(robot, flying)
        inertias = identify_free(robot, {name: value[inside] for name, value in flying.items()})
        bar.update()
        gains = NO_GAINS if touching is None else contact_gains(inertias, draw(arrays, touching, LANDING, generator))
        bar.update()
    tensors = {"prior.parameters": inertias.parameters, "prior.gains": torch.tensor(gains, dtype=torch.float64)}
    learned = {"rank": inertias.rank, "residual": inertias.residual}
    return tensors, learned | {"contact_gains": [float(f"{gain:.5g}") for gain in gains]}


def contact_gains(inertias: Inertias, frames: Transitions) -> Gains:
    """The gains with which the prior's frames near the ground end as the recorded ones do."""
    robot = inertias.robot
    relative = RobotCentric(Kinematics(robot))
    prior = FrozenPosePrior(robot, inertias.parameters, torch.tensor(NO_GAINS))

    def advance(gains: Gains, given: Transitions) -> Tensor:
        now = Motion(given["q"].float(), given["qd"].float())
        prior.set_gains(*gains)
        ground = given["ground_point"].float(), given["ground_normal"].float()
        step, change, _ = prior(now, given["force"].float(), ground)
        return relative.advance(now, step, change).qd

    return fit_contact_gains(robot, inertias, frames, advance)
