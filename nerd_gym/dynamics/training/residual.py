"""The prior of a residual model: inertias from frames in flight, the contact law from frames near the ground."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nerd_gym.data.reader import Data, Transitions, nearness
from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.dynamics.identify.contact_law import Gains, fit_constraint_law, fit_contact_gains
from nerd_gym.dynamics.identify.free_base import identify_free
from nerd_gym.dynamics.models.frozen_pose import CONSTRAINT, LAW_TENSORS, PENALTY, POSE_UPDATES, FrozenPose
from nerd_gym.dynamics.models.inertias import Inertias
from nerd_gym.physics.warp.constraint_params import ConstraintLaw
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.state import Motion
from nerd_gym.utils.progress import progress

from .structured import CLEAR, TOUCHING, draw, inside_limits

LOOKED_AT = 20_000  # trajectories that frames are looked for in
FLYING, LANDING, JUDGING = 8000, 4000, 4000  # frames that inertias and laws are fitted to, and that choose the law
FEWEST = 500
NO_GAINS = (1.0, 1.0, 1.0, 1.0)  # of a robot without a ground
FITTED_WITH = 8  # pose updates while constraints are fitted, so that frozen poses do not bend them
MORE_UPDATES = (4, 8)  # pose updates of constraints instead of two, where the sweeps take most of the time anyway:
WORTH = 0.5  # as long as more of them leave less than this part of what is unexplained


class FittedLaw(NamedTuple):
    """A contact law and what it leaves unexplained of frames that it was not fitted to."""

    gains: Gains
    pose_updates: int
    unexplained: float


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
    with progress(total=3, desc="identify", unit="part") as bar:
        flying = draw(arrays, clear, FLYING, generator)
        inside = inside_limits(robot, flying)
        inertias = identify_free(robot, {name: value[inside] for name, value in flying.items()})
        bar.update()
        laws = {PENALTY: FittedLaw(NO_GAINS, POSE_UPDATES, 0.0)}
        if touching is not None:
            order = touching[torch.randperm(len(touching), generator=generator)]
            cut = len(order) // 2  # no frame both fits and judges
            fitting, judging = (
                draw(arrays, order[:cut], LANDING, generator),
                draw(arrays, order[cut:], JUDGING, generator),
            )
            laws[PENALTY] = fit_penalty(inertias, fitting, judging)
            bar.update()
            laws[CONSTRAINT] = fit_constraints(inertias, fitting, judging)
        bar.update()
    name, law = min(laws.items(), key=lambda item: item[1].unexplained)
    gains = torch.tensor(law.gains, dtype=torch.float64)
    tensors = {"prior.parameters": inertias.parameters, LAW_TENSORS[name]: gains}
    learned = {"rank": inertias.rank, "residual": inertias.residual, "contact_law": name}
    if inertias.inertia_of is not None:
        learned["inertia_of"] = inertias.inertia_of.tolist()
    learned |= {"pose_updates": law.pose_updates, "contact_gains": [float(f"{gain:.5g}") for gain in law.gains]}
    return tensors, learned | {"prior_unexplained": {name: law.unexplained for name, law in laws.items()}}


class Priors:
    """Priors of one robot with given inertias, by their frames near the ground."""

    def __init__(self, inertias: Inertias, gains: Sequence[float], pose_updates: int):
        self.robot = inertias.robot
        self._relative = RobotCentric(Kinematics(self.robot))
        self._prior = FrozenPose(
            self.robot,
            inertias.parameters,
            torch.tensor(gains),
            pose_updates=pose_updates,
            inertia_of=inertias.inertia_of,
        )

    def __call__(self, gains: Gains, given: Transitions) -> Tensor:
        """qd [B, nv] a frame later."""
        now = Motion(given["q"].float(), given["qd"].float())
        self._prior.set_gains(*gains)
        ground = given["ground_point"].float(), given["ground_normal"].float()
        step, change, _ = self._prior(now, given["force"].float(), ground)
        return self._relative.advance(now, step, change).qd

    def unexplained(self, gains: Gains, given: Transitions) -> float:
        """Of the change of velocity, in the worst group of coordinates."""
        from .train import unexplained

        change, error = given["next_qd"] - given["qd"], self(gains, given) - given["next_qd"]
        worst = max(unexplained(self.robot, change, error).values())
        return worst if worst < float("inf") else float("inf")


def fit_penalty(inertias: Inertias, frames: Transitions, judging: Transitions) -> FittedLaw:
    """Springs and dampers with which frames near the ground end as the recorded ones do."""
    priors = Priors(inertias, NO_GAINS, POSE_UPDATES)
    gains = fit_contact_gains(inertias.robot, inertias.links(), frames, priors)
    return FittedLaw(gains, POSE_UPDATES, priors.unexplained(gains, judging))


def fit_constraints(inertias: Inertias, frames: Transitions, judging: Transitions) -> FittedLaw:
    """MuJoCo's constraints, with as few pose updates as suffice."""
    law = fit_constraint_law(inertias.robot, frames, Priors(inertias, ConstraintLaw(), FITTED_WITH))

    def fitted(pose_updates: int) -> FittedLaw:
        return FittedLaw(law, pose_updates, Priors(inertias, law, pose_updates).unexplained(law, judging))

    best = fitted(POSE_UPDATES)
    for pose_updates in MORE_UPDATES:
        finer = fitted(pose_updates)
        if finer.unexplained > WORTH * best.unexplained:
            break
        best = finer
    return best
