"""The frozen-pose prior of a frame against simulators, and the residual model around it."""

import numpy as np
import pytest
import torch

from nerd_gym.backends import make_backend
from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.dynamics.models.base import kind_of
from nerd_gym.dynamics.models.frozen_pose import POSE_UPDATES, FrozenPose
from nerd_gym.dynamics.models.network_model import NetworkModel
from nerd_gym.dynamics.models.residual import ResidualModel
from nerd_gym.dynamics.training.train import unexplained
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.links import published_inertia_pairing, read_links
from nerd_gym.robots.state import Motion
from nerd_gym.robots.symmetry import group, transform_joints, transform_state
from tests.support.grid import robot
from tests.support.models import INPUTS, assert_same, both, motion, situation
from tests.support.states import everyone, ground, moved_ground, true_prior, wide_state

LEGGED = ["ant", "anymal"]


def fitted(name: str) -> ResidualModel:
    """Random weights and a fitted normaliser."""
    torch.manual_seed(0)
    facts = {"network": {"width": 32, "depth": 2}} | ResidualModel.new_facts(robot(name))
    model = ResidualModel(robot(name), true_prior(robot(name)), facts)
    model.fit_normaliser(motion(name, "warp"))
    return model


@pytest.mark.parametrize("name", LEGGED)
def test_the_more_pose_updates_the_smaller_the_residual(name):
    """Contacts, limits and fast motion included; with an update in every substep the prior is nearly its teacher."""
    model, batch = robot(name), motion(name, "warp")
    now, after = (Motion(batch["q"][:, t], batch["qd"][:, t]) for t in (0, 1))
    true_step, true_change = RobotCentric(Kinematics(model)).relative_motion(now, after)
    plane, bounds = (
        (batch["ground_point"], batch["ground_normal"]),
        {1: 0.033, POSE_UPDATES: 0.01, model.substeps: 0.001},
    )
    for pose_updates, bound in bounds.items():
        prior = FrozenPose(model, *true_prior(model).values(), pose_updates=pose_updates)
        step, change, _ = prior(now, batch["force"][:, 0], plane)
        left = unexplained(model, true_change, change - true_change)
        assert max(left.values()) < bound, (pose_updates, left)
        assert max(unexplained(model, true_step, step - true_step).values()) < 0.1 * bound


def test_inertias_of_other_links_in_the_mass_matrix_explain_the_published_simulator():
    """Without the pairing not even the joints in flight move as they do there."""
    model, batch = robot("anymal"), motion("anymal", "warp", reference=True)
    now, after = (Motion(batch["q"][:, t], batch["qd"][:, t]) for t in (0, 1))
    _, true_change = RobotCentric(Kinematics(model)).relative_motion(now, after)
    plane = batch["ground_point"], batch["ground_normal"]
    pairing = torch.as_tensor(published_inertia_pairing(model, read_links(model)))
    own = torch.arange(model.nj + 1)
    right, paired, itself = (
        FrozenPose(model, *true_prior(model).values(), inertia_of=order)(now, batch["force"][:, 0], plane)[1]
        for order in (None, pairing, own)
    )
    assert max(unexplained(model, true_change, paired - true_change).values()) < 0.05
    assert max(unexplained(model, true_change, right - true_change).values()) > 0.5
    # With its own inertia for every link the kernel is the one for right simulators.
    torch.testing.assert_close(itself, right, atol=2e-3, rtol=2e-3)


def test_rows_of_the_prior_do_not_depend_on_each_other():
    """The same bits in any batch, at its end, and beside a row that has diverged."""
    model = robot("ant")
    state, force, plane = situation(model, 13)
    prior = FrozenPose(model, *true_prior(model).values(), threads=1)
    whole = prior(state, force, plane)
    for rows in ([12], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]):
        some = prior(Motion(*(x[rows] for x in state)), force[rows], tuple(x[rows] for x in plane))
        assert all(torch.equal(a, b[rows]) for a, b in zip(some, whole, strict=True))
    state.qd[5] = 1e20
    others = [row for row in range(13) if row != 5]
    wild = prior(state, force, plane)
    assert not wild[1][5].isfinite().all() and all(x.isfinite().all() for x in whole)
    assert all(torch.equal(a[others], b[others]) for a, b in zip(wild, whole, strict=True))


def test_scalar_and_simd_kernels_agree():
    """An accelerator has a thread for every robot."""
    model = robot("ant")
    batch = motion("ant", "warp")
    now, plane = Motion(batch["q"][:, 0], batch["qd"][:, 0]), (batch["ground_point"], batch["ground_normal"])
    wide, narrow = (FrozenPose(model, *true_prior(model).values(), width=width) for width in (8, 1))
    for a, b in zip(*(prior(now, batch["force"][:, 0], plane) for prior in (wide, narrow)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", LEGGED)
def test_in_flight_the_prior_is_mujocos_frame(name):
    model, n = robot(name), 64
    generator = torch.Generator().manual_seed(0)
    q = torch.as_tensor(model.mj_model.qpos0, dtype=torch.float32).repeat(n, 1)
    low, high = np.where(np.isfinite(model.joint_range.T), model.joint_range.T, [[-1.0], [1.0]])
    share = 0.3 + 0.4 * torch.rand(n, model.nj, generator=generator, dtype=torch.float64)
    q[:, model.joint_q] = (torch.as_tensor(low) + share * torch.as_tensor(high - low)).float()
    q[:, 3:7] = torch.nn.functional.normalize(torch.randn(n, 4, generator=generator), dim=1)
    q[:, 2] = 10.0
    qd = torch.randn(n, model.nv, generator=generator)
    force = (
        0.1 * torch.as_tensor(model.force_limit, dtype=torch.float32) * torch.randn(n, model.nj, generator=generator)
    )
    teacher = make_backend("mujoco", model, n)
    teacher.reset(everyone(n), q, qd)
    teacher.step(force)
    _, true_change = RobotCentric(Kinematics(model)).relative_motion(Motion(q, qd), Motion(teacher.q, teacher.qd))
    prior = FrozenPose(model, *true_prior(model).values())
    _, change, ahead = prior(Motion(q, qd), force, (teacher.ground_point, teacher.ground_normal))
    assert max(unexplained(model, true_change, change - true_change).values()) < 1e-3
    # The distances ahead are those of the end, but for what the forces did on the way.
    torch.testing.assert_close(ahead, teacher.contacts.distance, atol=0.02, rtol=0)


@pytest.mark.parametrize("name", LEGGED)
def test_kernels_give_what_torch_gives(name):
    model = fitted(name)
    state, force, plane = situation(model.robot, 300)
    features, element, _ = model.encode(state, force, model.find_contacts(state.q, *plane))
    encoded = model.fused.encode(state, force, model.find_contacts(state.q, *plane))
    torch.testing.assert_close(encoded.inputs, model.normaliser.inputs(features), atol=INPUTS, rtol=1e-4)
    assert torch.equal(encoded.element.long(), torch.zeros(300, dtype=torch.long) if element is None else element)
    torch.testing.assert_close(encoded.gate[:, None], model.output_gate(encoded.inputs), atol=1e-4, rtol=1e-3)
    assert_same(*both(model, state, force, plane), state)
    assert model.fused.sizes.inputs == model.module[0].in_features == list(model.input_groups().values())[-1].stop
    batch = {key: value[:200] for key, value in motion(name, "warp").items()}
    for expected, found in zip(NetworkModel.normalised(model, batch), model.normalised(batch), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_mirrored_states_have_mirrored_predictions():
    model = fitted("ant")
    state, force, plane = situation(model.robot, 128)
    first, _ = both(model, state, force, plane)
    assert len(group(model.robot)) == 8
    for element in group(model.robot)[1:]:
        there = Motion(*transform_state(model.robot, element, *state))
        turned, moved = transform_joints(element, force), moved_ground(model.robot, element, *plane)
        second, _ = both(model, there, turned, moved)
        assert_same(second, Motion(*transform_state(model.robot, element, *first)), there, 1e-4)


@pytest.mark.parametrize("name", LEGGED)
def test_rows_are_the_same_bits_whatever_the_threads(name):
    models = [fitted(name) for _ in range(2)]
    models[0].threads, models[1].threads = 1, 3
    state, force, plane = situation(models[0].robot, 200)
    first, second = (both(model, state, force, plane)[0] for model in models)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    for model in models:
        model.close()


@pytest.mark.parametrize("name", LEGGED)
def test_a_limp_robot_in_the_air_falls_freely_whatever_the_network_says(name):
    model = fitted(name)
    q, qd = wide_state(model.robot, 16)
    q[:, 2] += 5.0
    q[:, 7 + model.view.limited] = model.view.limits.mean(0)
    qd, force = torch.zeros_like(qd), torch.zeros(16, model.robot.nj)
    contacts = model.find_contacts(q, *ground(model.robot, 16))
    expected = torch.zeros_like(qd)
    expected[:, 2] = -9.81 * model.robot.frame_dt
    after = model.predict(Motion(q, qd), force, contacts, None)
    assert ((after.qd - expected).abs() < 0.02 * model.normaliser.output_std[model.robot.nv :]).all()
    # Under forces the gate opens again.
    encoded = model.fused.encode(Motion(q, qd), force + 100.0, contacts)
    assert encoded.gate.min() > 20 * model.fused.encode(Motion(q, qd), force, contacts).gate.max() > 0


@pytest.mark.parametrize("name", LEGGED)
def test_an_arbitrary_network_stays_near_the_prior(name):
    model = fitted(name)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.mul_(100.0)
    batch = motion(name, "warp")
    now, force = Motion(batch["q"][:, 0], batch["qd"][:, 0]), batch["force"][:, 0]
    plane = batch["ground_point"], batch["ground_normal"]
    after = model.predict(now, force, model.find_contacts(now.q, *plane), None)
    change = model.prior.expect(now, force, model.find_contacts(now.q, *plane)).change
    joints = model.robot.joint_qd
    off = (after.qd - now.qd - change)[:, joints].abs()
    assert (off <= 1.01 * model.normaliser.output_limit[model.robot.nv :][joints].max()).all() and off.max() > 0.1


def test_a_saved_model_predicts_the_same_bits_and_keeps_its_prior():
    model = fitted("ant")
    tensors = model.tensors()
    assert torch.equal(tensors["prior.gains"], true_prior(model.robot)["prior.gains"])
    again = kind_of("residual")(model.robot, tensors, model.facts)
    state, force, plane = situation(model.robot, 32)
    first, second = (both(m, state, force, plane)[0] for m in (model, again))
    assert torch.equal(first.q, second.q) and torch.equal(first.qd, second.qd)


def test_inputs_are_finite_whatever_the_state():
    model = fitted("ant")
    state, force, plane = situation(model.robot, 8)
    state.q[0, 2], state.q[1, 9], state.qd[2, 3], force[3, 0] = torch.nan, torch.inf, 1e30, torch.nan
    encoded = model.fused.encode(state, force, model.find_contacts(state.q, *plane))
    assert (encoded.inputs.abs() <= 20).all() and (encoded.element >= 0).all()


def test_a_fixed_base_is_refused():
    with pytest.raises(ValueError, match="franka has a fixed base"):
        ResidualModel(robot("franka"), {}, {})
