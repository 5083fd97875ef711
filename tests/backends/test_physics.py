"""Right physics, judged by what we did not write: MuJoCo, conservation laws, Newton."""

from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

from nerd_gym.backends import backend_class, make_backend
from nerd_gym.backends.warp import WarpBackend
from nerd_gym.registration import PACKAGED
from nerd_gym.robots.model import RobotModel
from tests.support.grid import ALL_ROBOTS, ANALYTICAL, GRID, ROBOTS, robot
from tests.support.states import backend_at, everyone, make_vec, random_state

FORCE = {
    "cartpole": 20.0,
    "pendulum_contact": 30.0,
    "ant": 1.0,
    "anymal": 0.1,
    "franka": 0.5,
    "strike_semicylinder": 1.0,
}
FAR = 500.0


def far_ground(model, n):
    if model.ground is None:
        return None
    return torch.tensor([0.0, 0.0, -FAR]).expand(n, 3), torch.tensor([0.0, 0.0, 1.0]).expand(n, 3)


def momenta(model, q, qd):
    """MuJoCo's own energy, momentum and angular momentum about the centre of mass, per row."""
    m, rows = model.mj_model, []
    data = mujoco.MjData(m)
    for state, rate in zip(q.double().numpy(), qd.double().numpy(), strict=True):
        data.qpos[:], data.qvel[:] = state, rate
        mujoco.mj_forward(m, data)
        mujoco.mj_energyPos(m, data)
        mujoco.mj_energyVel(m, data)
        mujoco.mj_subtreeVel(m, data)
        rows.append((data.energy.sum(), data.subtree_linvel[0] * m.body_mass.sum(), data.subtree_angmom[0].copy()))
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("force", [0.0, 1.0])
@pytest.mark.parametrize("name", ROBOTS)
def test_warp_agrees_with_mujoco_without_contact(name, force):
    model, n = robot(name), 16
    q, qd = random_state(model, n, height=20.0)
    fine = 10 * model.substeps
    pair = [backend_at(b, model, q, qd, far_ground(model, n), substeps=fine) for b in ("warp", "mujoco")]
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        push = force * FORCE[name] * (2 * torch.rand(n, model.nj, generator=generator) - 1)
        for backend in pair:
            backend.step(push)
    for part in ("q", "qd"):
        off = (getattr(pair[0], part) - getattr(pair[1], part)).abs()
        assert off.max() < 1e-3, (part, off.max())


@pytest.mark.parametrize("name", ["ant", "anymal"])
def test_free_flight_conserves_energy_and_momentum(name):
    model, n = robot(name), 16
    q, qd = random_state(model, n, height=20.0)
    backend = backend_at("warp", model, q, qd, far_ground(model, n), substeps=10 * model.substeps)
    energy, momentum, angular = momenta(model, q, qd)
    for _ in range(50):
        backend.step(torch.zeros(n, model.nj))
    energy_after, momentum_after, angular_after = momenta(model, backend.q, backend.qd)
    fall = np.array([0, 0, 9.81 * model.mj_model.body_mass.sum() * 50 * model.frame_dt])
    np.testing.assert_allclose(energy_after, energy, rtol=1e-4)
    size = np.linalg.norm(momentum, axis=1)
    assert (np.linalg.norm(momentum_after + fall - momentum, axis=1) / size).max() < 1e-4
    assert (np.linalg.norm(angular_after - angular, axis=1) / np.linalg.norm(angular, axis=1)).max() < 1e-4


@pytest.mark.parametrize("name", ["cartpole", "franka", "pendulum_contact"])
def test_energy_error_of_a_fixed_base_vanishes_with_the_substep(name):
    """First order: a quarter of the substep leaves about a quarter of the error, and little at that."""
    model, n = robot(name), 16
    q, qd = random_state(model, n, speed=4.0)
    before = momenta(model, q, qd)[0]
    errors = []
    for finer in (5, 20):
        backend = backend_at("warp", model, q, qd, far_ground(model, n), substeps=finer * model.substeps)
        for _ in range(30):
            backend.step(torch.zeros(n, model.nj))
        errors.append(np.abs(momenta(model, backend.q, backend.qd)[0] - before).max())
    assert errors[1] < 0.35 * errors[0] + 2e-5 * np.abs(before).max()
    assert errors[1] < 2e-3 * np.abs(before).max()


def test_spinning_base_keeps_its_centre_of_mass_still():
    """Thrown with its centre of mass at rest, Anymal's origin circles it; gravity off."""
    model = robot("anymal")
    q, _ = random_state(model, 8, height=20.0)
    rates = torch.tensor([[0.0, 0.0, 0.0, 0.5, -0.4, 0.6]]).repeat(8, 1)
    qd = torch.cat([rates, torch.zeros(8, 12)], -1)
    data = mujoco.MjData(model.mj_model)
    for row in range(8):  # choose v so that the whole robot's centre of mass rests
        data.qpos[:], data.qvel[:] = q[row].numpy(), qd[row].numpy()
        mujoco.mj_forward(model.mj_model, data)
        mujoco.mj_subtreeVel(model.mj_model, data)
        qd[row, :3] -= torch.as_tensor(data.subtree_linvel[0], dtype=torch.float32)
    backend = WarpBackend(model, 8, substeps=40)
    backend.change_params(gravity=(0.0, 0.0, 0.0))
    backend.reset(everyone(8), q, qd, far_ground(model, 8))
    for _ in range(30):
        backend.step(torch.zeros(8, 12))
    momentum = momenta(model, backend.q, backend.qd)[1]
    assert np.abs(momentum).max() / model.mj_model.body_mass.sum() < 1e-4


ARM = """
<mujoco><compiler angle="radian"/><option timestep="0.001" gravity="0 1 -9.81"/>
  <custom><numeric name="substeps" data="10"/></custom>
  <worldbody>
    <body name="cart" pos="0 0 1" euler="0.3 0.1 0"><joint name="x" type="slide" axis="1 0.5 0" damping="3"/>
      <geom type="box" size="0.1 0.1 0.1" mass="2"/>
      <body name="bracket" pos="0.2 0 0" euler="0 0.5 0"><geom size="0.05" mass="0.3"/>
        <body name="arm" pos="0 0 0.1" euler="0.2 0 1">
          <joint name="swing" axis="0 1 1" pos="0.05 0.02 -0.1" damping="0.2" stiffness="4" springref="0.5"
            armature="0.02"/>
          <geom type="capsule" fromto="0 0 0 0 0.1 0.5" size="0.03" mass="1"/>
        </body>
      </body>
    </body>
  </worldbody></mujoco>"""


PLANAR = """
<mujoco><compiler angle="radian"/><option timestep="0.002"/>
  <worldbody>
    <body name="torso" pos="0 0 1.25">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="z" type="slide" axis="0 0 1" ref="1.25"/>
      <joint name="pitch" axis="0 1 0" pos="0 0 0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.4" size="0.05" mass="3"/>
      <body name="leg" pos="0 0 -0.1"><joint name="knee" axis="0 -1 0" ref="0.3"/>
        <geom type="capsule" fromto="0 0 0 0.1 0 -0.5" size="0.04" mass="2"/>
      </body>
    </body>
  </worldbody></mujoco>"""


@pytest.mark.parametrize("text", [ARM, PLANAR], ids=["offset, spring, damper, weld", "three joints on a body, ref"])
def test_users_robots_move_on_warp_as_on_mujoco(tmp_path, text):
    path = tmp_path / "robot.xml"
    path.write_text(text)
    model = RobotModel.from_mjcf(path)
    generator = torch.Generator().manual_seed(0)
    q, qd = (torch.randn(4, model.nv, generator=generator) for _ in range(2))
    pair = [backend_at(b, model, q, qd, substeps=200) for b in ("warp", "mujoco")]
    for k in range(50):
        for backend in pair:
            backend.step(torch.full((4, model.nj), 0.5 * np.sin(k / 5)))
    assert (pair[0].q - pair[1].q).abs().max() < 1e-3
    assert (pair[0].qd - pair[1].qd).abs().max() < 2e-3


@pytest.mark.parametrize("backend_name", ANALYTICAL)
def test_a_users_robot_without_gains_rests_on_the_ground(backend_name):
    """Gymnasium's own Ant (0.9 kg, steps of 10 ms) settles with the default gains."""
    assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    model = RobotModel.from_mjcf(assets / "ant.xml")
    backend = make_backend(backend_name, model, 2)
    for _ in range(500):
        backend.step(torch.zeros(2, model.nj))
    lowest = backend.contacts.distance.amin()
    assert backend.healthy.all() and backend.qd.abs().max() < 0.5
    assert -0.05 < lowest < 0.03, lowest  # MuJoCo holds it at the geoms' margins


@pytest.mark.parametrize("name", ALL_ROBOTS)
def test_mujoco_backend_has_the_bits_of_mj_step(name):
    """200 frames of joint forces, contacts and limits included."""
    model, n = robot(name), 4
    q, qd = random_state(model, n, seed=3)
    if model.free_base:
        q[:, 3:7] = torch.tensor([1.0, 0, 0, 0])
    backend = backend_at("mujoco", model, q, qd)
    raw_model = mujoco.MjModel.from_xml_path(str(model.path))
    rows = [mujoco.MjData(raw_model) for _ in range(n)]
    for row, data in enumerate(rows):
        data.qpos[:], data.qvel[:] = q[row].numpy(), qd[row].numpy()
    generator = torch.Generator().manual_seed(0)
    touched = 0
    for _ in range(200):
        force = 50 * FORCE[name] * (2 * torch.rand(n, model.nj, generator=generator) - 1)
        backend.step(force)
        for row, data in enumerate(rows):
            data.qfrc_applied[model.joint_qd] = force[row].numpy()
            mujoco.mj_step(raw_model, data, model.substeps)
            touched += data.ncon
    exact = backend.exact_state()
    for row, data in enumerate(rows):
        np.testing.assert_array_equal(exact["qpos"][row], data.qpos)
        np.testing.assert_array_equal(exact["qvel"][row], data.qvel)
        np.testing.assert_array_equal(backend.q[row].numpy(), data.qpos.astype(np.float32))
    assert touched > 0 or model.ground is None


@pytest.mark.parametrize("backend_name", ANALYTICAL)
def test_a_ground_of_its_own_per_environment(backend_name):
    """A robot and its plane moved and tilted together fall alike."""
    model = robot("pendulum_contact")
    normals = torch.tensor([[0.0, 0, 1], [0.0, -0.38268, 0.92388], [0.3, 0, 0.9539]])
    normals = torch.nn.functional.normalize(normals, dim=-1)
    points = torch.tensor([[0.0, 0, 0.5], [0.0, 0, 0], [0.0, 0, -15.5]])
    q = torch.tensor([[-0.2, 0.1]] * 3)
    backend = backend_at(backend_name, model, q, torch.zeros(3, 2), (points, normals))
    deepest = torch.full((3,), 1e9)
    for _ in range(120):
        backend.step(torch.zeros(3, 2))
        deepest = torch.minimum(deepest, backend.contacts.distance.amin(-1))
    assert (deepest[:2] < 0.005).all() and (deepest[:2] > -0.12).all(), deepest  # they touch, and do not fall through
    assert deepest[2] > 5
    alone = backend_at(backend_name, model, q[1:2], torch.zeros(1, 2), (points[1:2], normals[1:2]))
    for _ in range(120):
        alone.step(torch.zeros(1, 2))
    assert torch.equal(alone.q[0], backend.q[1])


@pytest.mark.parametrize("backend_name", ANALYTICAL)
def test_contacts_report_the_distance_that_the_physics_uses(backend_name):
    """An Ant at rest carries its weight on points a little inside the ground, and nothing floats."""
    env = make_vec("NeRD/Ant-v0", 8, backend=backend_name)
    env.reset(seed=0)
    for _ in range(240):
        env.step(torch.zeros(8, 8))
    contacts = env.backend.contacts
    lowest = contacts.distance.amin(-1)
    assert ((lowest < 1e-3) & (lowest > -0.02)).all(), lowest
    assert torch.equal(contacts.normal[0, 0], torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(contacts.point[..., 2], contacts.distance)


@pytest.mark.parametrize(("env_id", "backend_name"), [(i, b) for i, b in GRID if b in ANALYTICAL])
def test_ten_seconds_of_random_actions_are_stable(env_id, backend_name):
    env = make_vec(env_id, 256 if backend_class(backend_name).on_device else 64, backend=backend_name)
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    steps = round(10 / (env.task.frame_dt * env.task.frames))
    for _ in range(steps):
        action = 2 * torch.rand(env.action_space.shape, generator=generator) - 1
        *_, info = env.step(action)
        assert not info["diverged"].any()
    assert env.backend.q.isfinite().all()


@pytest.mark.parametrize("law", ["coulomb", "huber"])
def test_friction_law(law):
    """The joint that slides: |ft| = min(kf |v|, mu N) or min(kf |v|, 2 mu N / |v|) below 1 m/s."""
    model = robot("pendulum_contact")
    ke, kd, kf, mu = model.contact_gains
    # The upper link lies along x, the lower one stands on its end, and the joint between them is in the ground. It
    # moves along z, so that it slips along a tilted plane.
    tilt = -0.3
    normal = torch.tensor([[np.sin(tilt), 0.0, np.cos(tilt)]], dtype=torch.float32)
    base = torch.tensor([0.0, -1.0, 2.0])
    tip = base + torch.tensor([1.5, 0.0, 0.0])
    depth = 0.01
    point = (tip - (0.10001 - depth) * normal[0])[None]
    rate = -0.4
    backend = make_backend("warp", model, 1, friction=law, substeps=2000)
    q, qd = torch.tensor([[0.0, torch.pi / 2]]), torch.tensor([[rate, 0.0]])
    # Rates change by dt * acceleration: compare with and without the plane over one short substep of 2000.
    backend.change_params(substeps=1)
    results = []
    for ground in (point, point - 50 * normal):
        backend.reset(everyone(1), q, qd, (ground, normal))
        backend.step(torch.zeros(1, 2))
        results.append((backend.qd[0].double() - qd[0].double()).numpy() / backend.params.dt)
    change = results[0] - results[1]
    data = mujoco.MjData(model.mj_model)
    data.qpos[:] = q[0].numpy()
    mujoco.mj_forward(model.mj_model, data)
    H = np.zeros((2, 2))
    mujoco.mj_fullM(model.mj_model, data, H)
    n = normal[0].double().numpy()
    torque = np.zeros(2)
    # End of link one and start of link two are the same place but two candidates.
    for jacobian_of in (1, 2):
        jacp = np.zeros((3, 2))
        place = tip.double().numpy() - 0.10001 * n
        mujoco.mj_jac(model.mj_model, data, jacp, None, place, jacobian_of)
        velocity = jacp @ np.array([rate, 0.0])
        vn = velocity @ n
        vt = velocity - vn * n
        push = ke * depth - kd * min(vn, 0)
        slip = np.linalg.norm(vt)
        cap = mu * push if law == "coulomb" else 2 * mu * push / slip
        force = push * n - min(kf * slip, cap) * vt / slip
        torque += jacp.T @ force
    np.testing.assert_allclose(change, np.linalg.solve(H, torque), rtol=5e-3)


def test_every_id_is_covered():
    assert {env_id for env_id, _ in GRID} == set(PACKAGED)
