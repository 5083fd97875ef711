import dataclasses

import numpy as np
import pytest
import torch

from nerd_gym.backends import make_backend
from nerd_gym.dynamics.models.mlp import MlpModel
from nerd_gym.robots import symmetry
from nerd_gym.robots.state import Motion
from nerd_gym.robots.symmetry import GENERATORS, WORLDS, group, match_joints, transform_joints, transform_state, verify
from tests.support.grid import CRITTER, robot
from tests.support.models import fitted
from tests.support.states import backend_at, ground, moved_ground, wide_state

SIZES = {"cartpole": 2, "pendulum_contact": 4, "ant": 8, "anymal": 1, "franka": 1, "critter": 4}
SYMMETRIC = [name for name in SIZES if SIZES[name] > 1]
# Of the ant, by hand: each leg takes the place of the next; left and right.
QUARTER = symmetry.Element((6, 7, 0, 1, 2, 3, 4, 5), (1.0, 1.0, 1.0, -1.0) * 2, (0.0,) * 8, WORLDS[0])
MIRROR = symmetry.Element((6, 7, 4, 5, 2, 3, 0, 1), (-1.0, 1.0) * 4, (0.0,) * 8, WORLDS[1])


@pytest.mark.parametrize("name", SIZES)
def test_groups_are_closed_and_as_large_as_the_robots_shape(name):
    elements = group(robot(name))
    assert len(set(elements)) == len(elements) == SIZES[name]
    assert all(a @ b in elements for a in elements for b in elements)


@pytest.mark.parametrize("name", SIZES)
def test_mujoco_has_every_symmetry_of_the_table(name):
    model = robot(name)
    assert all(verify(model, element) for element in (*GENERATORS.get(name, ()), *group(model)))


def test_verify_refuses_what_is_no_symmetry():
    ant, quarter = robot("ant"), QUARTER
    for wrong in ({"sign": (1.0,) * 8}, {"permutation": tuple(range(8))}, {"world": ((1, 0, 0), (0, 1, 0), (0, 0, 1))}):
        assert not verify(ant, dataclasses.replace(quarter, **wrong))
    # ANYmal's legs mirror each other; its trunk's centre of mass is 6 mm left of the middle.
    swapped = (3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8)
    mirror = symmetry.Element(swapped, (-1.0, 1.0, 1.0) * 4, (0.0,) * 12, MIRROR.world)
    assert match_joints(robot("anymal"), MIRROR.world) == mirror
    assert 1e-4 < symmetry.equivariance_error(robot("anymal"), mirror) < 1e-2
    assert not verify(robot("anymal"), mirror)


def test_the_group_that_is_found_is_the_one_that_hands_would_write():
    elements = [symmetry.identity(robot("ant"))]
    for element in elements:
        elements += [new for g in (QUARTER, MIRROR) if (new := g @ element) not in elements]
    assert set(group(robot("ant"))) == set(elements)
    # The critter's legs mirror both ways, but its trunk is longer than wide.
    assert {e.world for e in group(robot("critter"))} == {symmetry.identity(robot("critter")).world, *WORLDS[1:]}


@pytest.mark.parametrize(
    ("old", "new", "size"),
    [
        ('name="back_left_hip" class="hip"', 'name="back_left_hip" class="hip" armature="0.01"', 1),
        ('name="back_left_hip" class="hip"', 'name="back_left_hip" class="hip" range="-40 30"', 1),
        (
            'name="back_left_hip" joint="back_left_hip"',
            'name="back_left_hip" joint="back_left_hip" forcerange="-1 1"',
            1,
        ),
        ('fromto="0 0 0 -0.03 0.03 -0.14"', 'fromto="0 0 0 -0.03 0.03 -0.15"', 1),
        ('name="back_left_knee" axis="1 1 0"', 'name="back_left_knee" axis="-1 -1 0"', 4),
        ('type="box" size="0.14 0.08 0.035"', 'type="box" pos="0.01 0 0" size="0.14 0.08 0.035"', 2),
    ],
)
def test_only_the_symmetries_that_an_own_robot_has_are_found(old, new, size, tmp_path):
    text = CRITTER.read_text()
    assert text.count(old) == 1
    path = tmp_path / "changed.xml"
    path.write_text(text.replace(old, new))
    elements = group(symmetry.RobotModel.from_mjcf(path))
    assert len(elements) == size and elements[0] == symmetry.identity(robot("critter"))


def test_a_table_entry_that_a_changed_robot_does_not_have_is_left_out(tmp_path):
    text = robot("cartpole").path.read_text()
    path = tmp_path / "cartpole.xml"
    path.write_text(text.replace('range="-4 4"', 'range="-4 5"'))
    assert len(group(symmetry.RobotModel.from_mjcf(path))) == 1


@pytest.mark.parametrize("name", ["pendulum_contact", "ant", "critter"])
def test_a_simulator_with_contacts_has_the_symmetry(name):
    model = robot(name)
    q, qd = wide_state(model, 64, height=-0.35)
    point, normal = ground(model, 64)
    force = 50 * torch.randn(64, model.nj, generator=torch.Generator().manual_seed(2))
    touching = make_backend("warp", model, 64)
    first = backend_at("warp", model, q, qd, (point, normal))
    assert (first.contacts.distance < 0).any(1).float().mean() > 0.1
    first.step(force)
    expected = (first.q.clone(), first.qd.clone())
    for element in group(model)[1:]:
        touching.reset(
            torch.ones(64, dtype=torch.bool),
            *transform_state(model, element, q, qd),
            moved_ground(model, element, point, normal),
        )
        touching.step(transform_joints(element, force))
        for found, want in zip((touching.q, touching.qd), transform_state(model, element, *expected), strict=True):
            assert ((found - want).abs().amax(1) < 2e-3 * (1 + want.abs().amax(1))).float().mean() > 0.95


@pytest.mark.parametrize("name", SYMMETRIC)
def test_predictions_are_equivariant(name):
    model = fitted(MlpModel, name)
    q, qd = wide_state(model.robot, 128)
    point, normal = ground(model.robot, 128)
    force = torch.randn(128, model.robot.nj, generator=torch.Generator().manual_seed(3))
    force *= torch.as_tensor(np.maximum(model.robot.force_limit, 1.0), dtype=torch.float32)

    def predict_in_torch(state, force, contacts, _):
        return model.predict_in_torch(state, force, contacts)

    def worst_error(method) -> float:
        def predict(q, qd, force, point, normal):
            return method(Motion(q, qd), force, model.find_contacts(q, point, normal), None)

        before = predict(q, qd, force, point, normal)
        moved = (before.qd - qd).abs().max()
        worst = 0.0
        for element in group(model.robot)[1:]:
            after = predict(
                *transform_state(model.robot, element, q, qd),
                transform_joints(element, force),
                *moved_ground(model.robot, element, point, normal),
            )
            want = transform_state(model.robot, element, *before)
            worst = max(worst, *(((a - b).abs().max() / moved).item() for a, b in zip(after, want, strict=True)))
        return worst

    assert worst_error(model.predict) < 1e-4 and worst_error(predict_in_torch) < 1e-4
    model.view.canonical.size = 1  # without the canonical choice the same network is not symmetric
    assert worst_error(predict_in_torch) > 1e-2
