"""The fused step is what training computes in torch, for any robot, batch and number of threads."""

import pytest
import torch

from nerd_gym.backends import make_backend
from nerd_gym.data.excitation import Sampler, ranges_for
from nerd_gym.dynamics.models.mlp import MlpModel
from nerd_gym.dynamics.models.network_model import NetworkModel
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion
from nerd_gym.robots.symmetry import group, transform_joints, transform_state
from tests.support.grid import ROBOTS, robot
from tests.support.models import INPUTS, SMALL, TREE, assert_same, both, fitted, situation
from tests.support.states import moved_ground


@pytest.mark.parametrize("name", ROBOTS)
def test_inputs_elements_and_predictions_are_those_of_torch(name):
    model = fitted(MlpModel, name)
    state, force, plane = situation(model.robot, 300)
    contacts = model.find_contacts(state.q, *plane)
    features, element, _ = model.encode(state, force, contacts)
    distance = contacts.distance
    encoded = model.fused.encode(state, force, contacts)
    torch.testing.assert_close(encoded.inputs, model.normaliser.inputs(features), atol=INPUTS, rtol=1e-5)
    assert torch.equal(encoded.element.long(), torch.zeros(300, dtype=torch.long) if element is None else element)
    torch.testing.assert_close(contacts.distance, distance, atol=2e-6, rtol=1e-5)
    assert_same(*both(model, state, force, plane), state)


def test_joints_with_anchors_references_and_welded_bodies(tmp_path):
    path = tmp_path / "tree.xml"
    path.write_text(TREE)
    model = MlpModel(RobotModel.from_mjcf(path), {}, {"network": SMALL["mlp"]})
    state, force, plane = situation(model.robot, 64)
    contacts = model.find_contacts(state.q, *plane)
    features = model.encode(state, force, contacts)[0]
    torch.testing.assert_close(
        model.fused.encode(state, force, contacts).inputs, features.clamp(-20, 20), atol=1e-4, rtol=0
    )
    assert_same(*both(model, state, force, plane), state)


def test_mirrored_states_have_the_same_inputs_and_mirrored_predictions():
    model = fitted(MlpModel, "ant")
    state, force, plane = situation(model.robot, 128)
    inputs = model.fused.encode(state, force, model.find_contacts(state.q, *plane)).inputs.clone()
    first, _ = both(model, state, force, plane)
    for element in group(model.robot)[1:]:
        there = Motion(*transform_state(model.robot, element, *state))
        turned = transform_joints(element, force)
        moved = moved_ground(model.robot, element, *plane)
        encoded = model.fused.encode(there, turned, model.find_contacts(there.q, *moved)).inputs
        torch.testing.assert_close(encoded, inputs, atol=INPUTS, rtol=1e-5)
        second, _ = both(model, there, turned, moved)
        assert_same(second, Motion(*transform_state(model.robot, element, *first)), there)


@pytest.mark.parametrize("name", ["ant", "anymal"])
def test_rows_are_the_same_bits_whatever_the_threads_and_the_kernels_batch(name):
    models = [fitted(MlpModel, name) for _ in range(2)]
    models[0].threads, models[1].threads = 1, 3
    state, force, plane = situation(models[0].robot, 200)
    first, second = (both(model, state, force, plane)[0] for model in models)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    inputs = models[0].fused.encode(state, force, models[0].find_contacts(state.q, *plane)).inputs.clone()
    for row in (0, 7):
        one = slice(row, row + 1)
        alone = Motion(state.q[one], state.qd[one])
        under = [x[one] for x in plane]
        encoded = models[1].fused.encode(alone, force[one], models[1].find_contacts(alone.q, *under))
        assert torch.equal(encoded.inputs[0], inputs[row])
        assert_same(*both(models[1], alone, force[one], under), state)
    for model in models:
        model.close()


def test_it_follows_weights_and_normaliser_that_change():
    model = fitted(MlpModel, "ant")
    state, force, plane = situation(model.robot, 64)
    before, _ = both(model, state, force, plane)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.mul_(1.5)
        model.normaliser.input_mean.add_(0.1)
    after, expected = both(model, state, force, plane)
    assert (after.qd - before.qd).abs().max() > 1e-2
    assert_same(after, expected, state)


def test_inputs_are_finite_whatever_the_state():
    model = fitted(MlpModel, "ant")
    state, force, plane = situation(model.robot, 8)
    state.q[0, 2], state.q[1, 9], state.qd[2, 3], force[3, 0] = torch.nan, torch.inf, 1e30, torch.nan
    encoded = model.fused.encode(state, force, model.find_contacts(state.q, *plane))
    assert (encoded.inputs.abs() <= 20).all() and (encoded.element >= 0).all()


@pytest.mark.parametrize("name", ["ant", "anymal", "cartpole"])
def test_kernels_give_training_the_same_inputs_and_targets(name):
    """Inputs and targets of a batch of transitions, against the functions in torch."""
    model = MlpModel(robot(name), {}, {"network": {"width": 8, "depth": 1}})
    backend = make_backend("warp", robot(name), 64)
    sampler = Sampler(backend, ranges_for(robot(name), "wide"), 0, 0)
    sampler.start()
    forces = sampler.forces(4)
    rows = {"q": [backend.q.clone()], "qd": [backend.qd.clone()], "force": []}
    for frame in range(4):
        rows["force"].append(forces.at(frame, backend.q, backend.qd))
        backend.step(rows["force"][-1])
        rows["q"].append(backend.q.clone())
        rows["qd"].append(backend.qd.clone())
    batch = {key: torch.stack(values, 1) for key, values in rows.items()}
    batch |= {key: getattr(backend, key) for key in ("ground_point", "ground_normal")}
    model.fit_normaliser(batch)
    plain, fused = NetworkModel.normalised(model, batch), model.normalised(batch)
    for expected, found in zip(plain, fused, strict=True):
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ROBOTS)
def test_sizes_are_those_of_the_network(name):
    model = fitted(MlpModel, name)
    assert model.fused.sizes.inputs == model.module[0].in_features
    assert list(model.input_groups().values())[-1].stop == model.module[0].in_features
