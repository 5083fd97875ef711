"""Contacts as a network is given them."""

import mujoco
import numpy as np
import pytest
import torch

from nerd_gym.dynamics.features.contacts import ContactMotion, masked_features
from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.robots.contacts import ContactFinder, distinct_candidates
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from tests.support.grid import ROBOTS, robot
from tests.support.models import TREE
from tests.support.states import ground, wide_state

GROUNDED = [name for name in ROBOTS if robot(name).ground is not None]


def check_velocities(model: RobotModel):
    kinematics = Kinematics(model)
    frames, finder = RobotCentric(kinematics), ContactFinder(model, kinematics)
    points = ContactMotion(model, kinematics, frames, "cpu")
    q, qd = wide_state(model, 16)
    point, normal = ground(model, 16)
    contacts = finder(q, point, normal)
    frame = frames.frame(contacts.poses)
    found = points(contacts, frame, frames.velocity(frame, qd))
    torch.testing.assert_close(found.distance, contacts.distance[:, points.distinct], atol=3e-6, rtol=1e-5)
    in_frame = found.slip + found.normal_speed[:, None] * frame.vector(normal)[..., None]
    velocity = (frame.rotation @ in_frame).mT.numpy()
    data, jacobian = mujoco.MjData(model.mj_model), np.zeros((3, model.nv))
    for row in range(16):
        data.qpos[:], data.qvel[:] = q[row], qd[row]
        mujoco.mj_forward(model.mj_model, data)
        for k, c in enumerate(points.distinct):
            where = contacts.point[row, c].double().numpy()
            mujoco.mj_jac(model.mj_model, data, jacobian, None, where, int(model.candidates.body[c]))
            np.testing.assert_allclose(velocity[row, k], jacobian @ data.qvel, atol=2e-5)
    along = (found.slip * frame.vector(normal)[..., None]).sum(1)
    assert along.abs().max() < 1e-5 and np.abs(velocity).max() > 0.3


@pytest.mark.parametrize("name", GROUNDED)
def test_velocities_of_contact_points_are_mujocos(name):
    check_velocities(robot(name))


def test_velocities_in_a_tree_with_several_joints_per_body_and_welded_bodies(tmp_path):
    path = tmp_path / "tree.xml"
    path.write_text(TREE)
    check_velocities(RobotModel.from_mjcf(path))


def test_candidates_that_always_coincide_are_given_once():
    assert [len(distinct_candidates(robot(name))) for name in ROBOTS] == [0, 3, 13, 14, 0]
    ant = robot("ant")
    names = [ant.candidates.names[c] for c in distinct_candidates(ant)]
    assert "torso" in names and sum("foot" in n for n in names) == 4  # the lower ends


def test_far_candidates_are_hidden_and_near_ones_shown_as_they_are():
    ant = robot("ant")
    kinematics = Kinematics(ant)
    finder, frames = ContactFinder(ant, kinematics), RobotCentric(kinematics)
    q, _ = wide_state(ant, 256)
    q[:, 2] = torch.linspace(-0.2, 2.0, 256)
    point, normal = ground(ant, 256)
    contacts = finder(q, point, normal)
    frame = frames.frame(contacts.poses)
    features = masked_features(contacts, frame, finder.radius)
    count = len(finder.radius)
    normals, places = (x.view(256, count, 3) for x in features[:, : 6 * count].split(3 * count, 1))
    depth = features[:, 6 * count :]
    limit = torch.where(finder.radius > 0.2, 1.0, 0.32)  # torso of radius 0.25, capsules of radius 0.08
    true_depth = contacts.centre[..., 2]
    near = true_depth < limit
    assert 0.2 < near.float().mean() < 0.8
    for part in (normals, places, depth[..., None]):
        assert torch.equal(part.abs().sum(-1) > 0, near)
    torch.testing.assert_close(depth[near], true_depth[near])
    back = places @ frame.rotation.mT + frame.position[:, None]
    torch.testing.assert_close(back[near][:, :2], contacts.centre[near][:, :2], atol=1e-5, rtol=1e-5)
    assert back[near][:, 2].abs().max() < 1e-5
    torch.testing.assert_close((normals @ frame.rotation.mT)[near], contacts.normal[near], atol=1e-5, rtol=1e-5)
