import mujoco
import numpy as np
import pytest

from nerd_gym.robots.features import UnsupportedRobot
from nerd_gym.robots.model import RobotModel
from tests.support.grid import ROBOTS, robot

# Total mass in kg, hinges and slides, contact candidates: the published robots.
FACTS = {
    "cartpole": (52.5, 2, 0),
    "pendulum_contact": (51.3127, 2, 4),
    "ant": (117.0534, 8, 25),
    "anymal": (53.3543, 12, 14),
    "franka": (18.7824, 7, 0),
}


@pytest.mark.parametrize("name", ROBOTS)
def test_packaged_robots_have_the_published_sizes(name):
    model = robot(name)
    mass, joints, candidates = FACTS[name]
    assert model.mj_model.body_mass.sum() == pytest.approx(mass, abs=1e-3)
    assert (model.nj, len(model.candidates.radius)) == (joints, candidates)
    assert model.nq - model.nv == int(model.free_base)


def test_joint_order_and_limits():
    legs = [f"{leg}_{joint}" for leg in ("LF", "RF", "LH", "RH") for joint in ("HAA", "HFE", "KFE")]
    anymal = robot("anymal")
    assert list(anymal.joint_names) == legs
    np.testing.assert_allclose(anymal.joint_range[[0, 3]], [[-0.72, 0.49], [-0.49, 0.72]])
    assert np.isinf(anymal.joint_range[1]).all()
    assert list(robot("ant").joint_names) == [f"{part}_{k}" for k in (1, 2, 3, 4) for part in ("hip", "ankle")]
    assert robot("cartpole").actuated == (0,)
    assert robot("franka").frame_dt == pytest.approx(1 / 120, rel=1e-12)


def test_hash_follows_physics_and_nothing_else(tmp_path):
    text = robot("ant").path.read_text()
    plain, repainted, heavier = (tmp_path / f"{n}.xml" for n in ("plain", "repainted", "heavier"))
    plain.write_text(text)
    repainted.write_text(text.replace('rgba="0.16 0.32 0.55 1"', 'rgba="1 0 0 1"'))
    heavier.write_text(text.replace('mass="31.6534519"', 'mass="31.7"'))
    hashes = [RobotModel.from_mjcf(path).hash for path in (plain, repainted, heavier)]
    assert hashes[0] == hashes[1] == robot("ant").hash
    assert hashes[2] != hashes[0]


def test_a_robot_of_ones_own_has_working_defaults(tmp_path):
    path = tmp_path / "crate.xml"
    path.write_text("""
        <mujoco><option timestep="0.002"/><worldbody>
          <geom type="plane" size="1 1 1"/>
          <body name="crate" pos="0 0 1"><freejoint/><geom type="box" size="0.1 0.2 0.3" mass="2"/></body>
        </worldbody></mujoco>""")
    crate = RobotModel.from_mjcf(path)
    assert (crate.substeps, crate.nj, len(crate.candidates.radius)) == (8, 0, 8)
    np.testing.assert_allclose(np.abs(crate.candidates.position), np.tile([0.1, 0.2, 0.3], (8, 1)))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('<body><joint type="ball"/><geom size="0.1"/></body>', "ball joints"),
        ('<body><joint/><geom size="0.1"/><body><freejoint/></body></body>', "MJCF"),
        ('<body><joint frictionloss="1"/><geom size="0.1"/></body>', "frictionloss"),
        ('<geom size="0.1"/>', "no joint"),
        (
            '<geom type="plane" size="1 1 1"/><body><joint/><geom type="ellipsoid" size=".1 .1 .2"/></body>',
            "ellipsoid|shape",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(tmp_path, body, reason):
    path = tmp_path / "robot.xml"
    path.write_text(f"<mujoco><worldbody>{body}</worldbody></mujoco>")
    with pytest.raises(ValueError, match=reason):
        RobotModel.from_mjcf(path)


def test_unknown_names_and_paths():
    with pytest.raises(ValueError, match=r"unknown robot 'dog'.*anymal"):
        RobotModel.named("dog")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.xml"):
        RobotModel.from_mjcf("nowhere.xml")
    assert issubclass(UnsupportedRobot, ValueError)


@pytest.mark.parametrize("name", ROBOTS)
def test_geoms_are_primitives_and_inertias_explicit(name):
    text = robot(name).path.read_text()
    model = robot(name).mj_model
    assert model.nmesh == 0
    assert text.count("<inertial") == sum(model.body_jntnum > 0)
    assert mujoco.mj_versionString()
