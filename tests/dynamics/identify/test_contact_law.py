"""Parameters of contact laws from data, and the choice between the laws."""

import numpy as np
import pytest
import torch

from nerd_gym.data.dataset import DatasetPlan, generate
from nerd_gym.data.reader import Data
from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.dynamics.identify.contact_law import fit_constraint_law
from nerd_gym.dynamics.identify.evolution import minimise
from nerd_gym.dynamics.models.frozen_pose import FrozenPose
from nerd_gym.dynamics.training.residual import identify_prior
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion
from tests.support.grid import robot
from tests.support.models import motion
from tests.support.states import backend_at, true_constraints, true_parameters


def test_the_search_finds_the_bottom_of_a_bent_valley():
    """Rosenbrock's, in four dimensions and turned."""
    turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]

    def cost(x: torch.Tensor) -> float:
        y = turn @ x
        return float((100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2).sum())

    found = minimise(cost, torch.zeros(4, dtype=torch.float64), 0.5, 4000)
    np.testing.assert_allclose(turn @ found, 1.0, atol=1e-3)
    again = minimise(cost, torch.zeros(4, dtype=torch.float64), 0.5, 4000)
    assert torch.equal(found, again)


@pytest.mark.parametrize("changed", [{}, {'friction="0.625': 'solref="0.04 0.7" friction="0.9'}])
def test_constraints_follow_the_data(changed, tmp_path):
    """The teacher's contacts change, the description does not; the starts are the same."""
    model, teacher = robot("ant"), robot("ant")
    if changed:
        text = model.path.read_text()
        for old, new in changed.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "ant.xml").write_text(text)
        teacher = RobotModel.from_mjcf(tmp_path / "ant.xml")
    batch = {name: value[:600] for name, value in motion("ant", "mujoco").items()}
    ground = batch["ground_point"], batch["ground_normal"]
    frames = {"q": batch["q"][:, 0], "qd": batch["qd"][:, 0], "force": batch["force"][:, 0]}
    backend = backend_at("mujoco", teacher, frames["q"], frames["qd"], ground, threads=1)
    backend.step(frames["force"])
    frames |= {"next_qd": backend.qd.clone()}
    relative = RobotCentric(Kinematics(model))
    prior = FrozenPose(model, true_parameters(model), torch.ones(7), pose_updates=8)

    def advance(gains, given):
        prior.set_gains(*gains)
        now = Motion(given["q"], given["qd"])
        return relative.advance(now, *prior(now, given["force"], ground)[:2]).qd

    found = fit_constraint_law(model, frames, advance)
    truth = true_constraints(teacher)["prior.constraint"].numpy()
    np.testing.assert_allclose(found, truth, rtol=0.1)
    np.testing.assert_allclose(1 - np.array(found)[[2, 6]], 1 - truth[[2, 6]], rtol=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("teacher", "law"), [("warp", "penalty"), ("mujoco", "constraint")])
def test_the_law_is_chosen_by_the_data(teacher, law, tmp_path):
    model = robot("ant")
    generate(DatasetPlan(model, teacher, 60_000, frames=50), tmp_path / "data.h5")
    tensors, facts = identify_prior(Data.load(tmp_path / "data.h5", model), 0)
    left = facts["prior_unexplained"]
    assert facts["contact_law"] == law and 10 * left[law] < max(left.values()), left
    assert ("prior.constraint" in tensors) == (law == "constraint") != ("prior.gains" in tensors)
