"""The frozen-pose prior with MuJoCo's constraints, against MuJoCo."""

import numpy as np
import pytest
import torch

from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.dynamics.models.base import kind_of
from nerd_gym.dynamics.models.frozen_pose import FrozenPose
from nerd_gym.dynamics.models.residual import ResidualModel
from nerd_gym.dynamics.training.train import unexplained
from nerd_gym.physics.warp.constraint_params import inverse_weights
from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion
from tests.support.grid import LEGGED, robot
from tests.support.models import assert_same, both, motion, situation
from tests.support.states import backend_at, push, random_state, true_constraints, true_prior


def left_of(model: RobotModel, now: Motion, after: Motion, change: torch.Tensor) -> float:
    """The part of MuJoCo's change of velocity that a prior's does not explain, in the worst group of coordinates."""
    _, true = RobotCentric(Kinematics(model)).relative_motion(now, after)
    return max(unexplained(model, true, change - true).values())


def states_of(batch: dict[str, torch.Tensor]) -> tuple[Motion, Motion, torch.Tensor, tuple[torch.Tensor, ...]]:
    now, after = (Motion(batch["q"][:, t], batch["qd"][:, t]) for t in (0, 1))
    return now, after, batch["force"][:, 0], (batch["ground_point"], batch["ground_normal"])


@pytest.mark.parametrize(("name", "bounds"), [("ant", {2: 0.02, 16: 0.001}), ("anymal", {2: 0.02, 10: 0.005})])
def test_frames_of_mujoco_are_explained_before_any_network(name, bounds):
    """Random motion over random ground, contacts, limits and fast joints included; the penalty law leaves a tenth."""
    model = robot(name)
    now, after, force, plane = states_of(motion(name, "mujoco"))
    for pose_updates, bound in bounds.items():
        prior = FrozenPose(model, *true_constraints(model).values(), pose_updates=pose_updates)
        left = left_of(model, now, after, prior(now, force, plane)[1])
        assert left < bound, (pose_updates, left)
    penalty = FrozenPose(model, *true_prior(model).values())
    assert left_of(model, now, after, penalty(now, force, plane)[1]) > 5 * bounds[2]


@pytest.mark.parametrize("name", LEGGED)
def test_weights_of_rows_are_mujocos(name):
    model = robot(name)
    body, joint = inverse_weights(model, read_links(model))
    np.testing.assert_allclose(body, model.mj_model.body_invweight0[model.candidates.body, 0], rtol=1e-9)
    np.testing.assert_allclose(joint[1:], model.mj_model.dof_invweight0[model.joint_qd], rtol=1e-9)


def test_a_fallen_robot_may_touch_with_any_number_of_points():
    """On its back with the legs in the ground: 13 to 21 contacts at once, the torso's 0.18 m deep."""
    model, n = robot("ant"), 24
    q, qd = random_state(model, n, speed=0.5)
    q[:, 3:7] = torch.tensor([0.0, 1.0, 0.0, 0.0]) + 0.02 * torch.randn(
        n, 4, generator=torch.Generator().manual_seed(3)
    )
    q[:, 3:7] /= q[:, 3:7].norm(dim=1, keepdim=True)
    low, high = torch.as_tensor(model.joint_range, dtype=torch.float32).unbind(1)
    q[:, 7:] = torch.where(torch.arange(model.nj) % 2 == 0, 0.0, torch.where(low.abs() < high.abs(), low, high))
    q[:, 2] = 0.07
    teacher = backend_at("mujoco", model, q, qd)
    plane = teacher.ground_point.clone(), teacher.ground_normal.clone()
    depth = -ContactFinder(model, Kinematics(model))(q, *plane).distance
    assert (depth > 0).sum(1).min() > 8
    force = push(model, n)
    teacher.step(force)
    prior = FrozenPose(model, *true_constraints(model).values(), pose_updates=model.substeps)
    now = Motion(q, qd)
    assert left_of(model, now, Motion(teacher.q, teacher.qd), prior(now, force, plane)[1]) < 0.01


def test_rows_do_not_depend_on_each_other():
    """The same bits in any batch, at its end, and beside a row that has diverged."""
    model = robot("ant")
    state, force, plane = situation(model, 13)
    prior = FrozenPose(model, *true_constraints(model).values(), threads=1, pose_updates=4)
    whole = prior(state, force, plane)
    for rows in ([12], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]):
        some = prior(Motion(*(x[rows] for x in state)), force[rows], tuple(x[rows] for x in plane))
        assert all(torch.equal(a, b[rows]) for a, b in zip(some, whole, strict=True))
    state.qd[5], state.q[7, 8] = 1e20, torch.nan
    others = [row for row in range(13) if row not in (5, 7)]
    wild = prior(state, force, plane)
    assert not wild[1][5].isfinite().all() and not wild[1][7].isfinite().all()
    assert all(x.isfinite().all() for x in whole)
    assert all(torch.equal(a[others], b[others]) for a, b in zip(wild, whole, strict=True))


def test_scalar_and_simd_kernels_agree():
    """An accelerator has a thread for every robot."""
    model = robot("ant")
    now, _, force, plane = states_of(motion("ant", "mujoco"))
    wide, narrow = (FrozenPose(model, *true_constraints(model).values(), width=width) for width in (8, 1))
    for a, b in zip(*(prior(now, force, plane) for prior in (wide, narrow)), strict=True):
        torch.testing.assert_close(a, b, atol=5e-3, rtol=1e-3)


def test_dampers_and_springs_of_joints_are_in_the_frame(tmp_path):
    """In flight, where nothing else hides them; strong enough that a step with the first force alone would diverge."""
    text = robot("ant").path.read_text().replace(' armature="0.0', ' damping="3" stiffness="20" armature="0.0')
    assert "stiffness" in text
    path = tmp_path / "ant.xml"
    path.write_text(text)
    model = RobotModel.from_mjcf(path)
    q, qd = random_state(model, 64, speed=4.0, height=3.0)
    teacher = backend_at("mujoco", model, q, qd)
    force = push(model, 64)
    teacher.step(force)
    prior = FrozenPose(model, *true_constraints(model).values(), pose_updates=8)
    change = prior(Motion(q, qd), force, (teacher.ground_point, teacher.ground_normal))[1]
    assert left_of(model, Motion(q, qd), Motion(teacher.q, teacher.qd), change) < 0.01


def test_a_model_around_it_predicts_in_kernels_what_torch_does_and_keeps_its_law():
    model = robot("ant")
    torch.manual_seed(0)
    facts = {"network": {"width": 32, "depth": 2}, "pose_updates": 4, "contact_law": "constraint"}
    made = ResidualModel(model, true_constraints(model), facts)
    made.fit_normaliser(motion("ant", "mujoco"))
    state, force, plane = situation(model, 200)
    assert_same(*both(made, state, force, plane), state)
    tensors = made.tensors()
    assert torch.equal(tensors["prior.constraint"], true_constraints(model)["prior.constraint"])
    again = kind_of("residual")(model, tensors, facts)
    first, second = (both(m, state, force, plane)[0] for m in (made, again))
    assert torch.equal(first.q, second.q) and torch.equal(first.qd, second.qd)
