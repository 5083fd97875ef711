from functools import lru_cache

import mujoco
import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from nerd_gym.backends import make_backend
from nerd_gym.dynamics.features.contacts import ContactMotion, masked_features
from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.dynamics.models.base import kind_of
from nerd_gym.dynamics.models.mlp import MlpModel
from nerd_gym.dynamics.models.networks import CausalTransformer, RingCache
from nerd_gym.dynamics.models.transformer import TransformerModel
from nerd_gym.robots.contacts import ContactFinder, distinct_candidates
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_exp, quat_multiply, quat_to_matrix
from nerd_gym.robots.state import Motion
from tests.backends.test_device import HOST_METHODS, NoHostRoundTrips
from tests.conftest import ROBOTS, random_state, robot

KINDS = (MlpModel, TransformerModel)
SMALL = {"mlp": {"width": 64, "depth": 2}, "transformer": {"layers": 2, "heads": 4, "width": 32, "window": 10}}
GROUNDED = ("pendulum_contact", "ant", "anymal")
TREE = """
<mujoco><compiler angle="radian"/><worldbody>
  <geom type="plane" size="0 0 1" contype="0" conaffinity="1"/>
  <body name="rail" pos="0 0 1" euler="0.1 0.2 0.3">
    <joint type="slide" axis="1 0 0" pos="0.1 0 0"/><joint axis="0 1 1" pos="0.3 0.1 -0.2" ref="0.4"/>
    <geom type="capsule" size="0.1 0.3" conaffinity="0"/>
    <body name="welded" pos="0.5 0 0" quat="0.3 0.1 0.9 0"><geom size="0.1" conaffinity="0"/>
      <body name="tip" pos="0 0.2 0"><joint axis="1 2 3" pos="0 0 0.4"/>
        <geom type="box" size="0.1 0.2 0.3" conaffinity="0"/></body>
    </body>
  </body>
</worldbody></mujoco>"""


def states(model: RobotModel, n: int, seed: int = 0, height: float = -0.3):
    """Joints in all their range, so that contacts and limits are near."""
    q, qd = random_state(model, n, seed, speed=4.0, height=height)
    generator = torch.Generator().manual_seed(seed + 1)
    q[:, model.joint_q] += 0.3 * torch.randn(n, model.nj, generator=generator)
    return q, qd


def ground(model: RobotModel, n: int):
    """Level under a free base; any plane through the reach of a fixed one."""
    generator = torch.Generator().manual_seed(7)
    point, normal = torch.zeros(n, 3), torch.tensor([0.0, 0.0, 1.0]).repeat(n, 1)
    if model.free_base:
        return point, normal
    normal = normalize(torch.randn(n, 3, generator=generator), dim=1)
    base = torch.tensor([0.0, -1.0, 2.0])
    return base - (0.3 + 2 * torch.rand(n, 1, generator=generator)) * normal, normal


@lru_cache(maxsize=8)
def data(name: str, frames: int = 24, rows: int = 128) -> dict[str, torch.Tensor]:
    """Trajectories under random forces."""
    model = robot(name)
    backend = make_backend("mujoco", model, rows, threads=1)
    q, qd = states(model, rows)
    backend.reset(torch.ones(rows, dtype=torch.bool), q, qd, ground(model, rows) if model.ground is not None else None)
    generator = torch.Generator().manual_seed(1)
    limit = torch.as_tensor(model.force_limit, dtype=torch.float32)
    force = 0.5 * limit * (2 * torch.rand(rows, frames, model.nj, generator=generator) - 1)
    qs, qds = [backend.q.clone()], [backend.qd.clone()]
    for frame in range(frames):
        backend.step(force[:, frame])
        qs.append(backend.q.clone())
        qds.append(backend.qd.clone())
    backend.close()
    grounds = {k: getattr(backend, k).clone() for k in ("ground_point", "ground_normal")}
    return {"q": torch.stack(qs, 1), "qd": torch.stack(qds, 1), "force": force} | grounds


def windows(name: str, frames: int, rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    whole, generator = data(name), torch.Generator().manual_seed(seed)
    count, length = whole["force"].shape[:2]
    row = torch.randint(count, (rows,), generator=generator)
    at = torch.randint(length - frames + 1, (rows, 1), generator=generator) + torch.arange(frames + 1)
    batch = {k: whole[k][row[:, None], at] for k in ("q", "qd")} | {"force": whole["force"][row[:, None], at[:, :-1]]}
    return batch | {k: whole[k][row] for k in ("ground_point", "ground_normal")}


def fitted(cls, name: str, model: RobotModel | None = None):
    """A model with a fitted normaliser and random weights large enough to matter."""
    torch.manual_seed(0)
    model = model or robot(name)
    facts = MlpModel.new_facts(model) if cls is MlpModel else {}
    made = cls(model, {}, facts | {"network": SMALL[cls.kind]})
    made.fit_normaliser(windows(name, cls.frames, 256))
    with torch.no_grad():
        for parameter in made.module.parameters():
            if parameter.ndim == 2 and cls is TransformerModel:
                parameter.mul_(5.0).add_(0.02 * torch.randn_like(parameter))
    return made


def raw_inputs(model, motion: Motion, force, point, normal):
    """What the network sees before normalisation."""
    contacts = model.find_contacts(motion.q, point, normal)
    if isinstance(model, MlpModel):
        return model.encode(motion, force, contacts)[0]
    return model.tokens(motion, force, contacts)


def moved(q, qd, turn, shift):
    """A free-base state in a world that is turned by a quaternion [4] and shifted by [3]."""
    matrix = quat_to_matrix(turn[None])[0]
    quat = quat_multiply(turn.expand(len(q), 4), q[:, 3:7])
    return (
        torch.cat([q[:, :3] @ matrix.T + shift, quat, q[:, 7:]], 1),
        torch.cat([qd[:, :3] @ matrix.T, qd[:, 3:]], 1),
    )


# Transitions.


@pytest.mark.parametrize("name", ROBOTS)
def test_advance_inverts_relative_motion(name):
    frames = RobotCentric(Kinematics(robot(name)))
    batch = data(name)
    now, after = (Motion(batch["q"][:, t], batch["qd"][:, t]) for t in (3, 4))
    q, qd = frames.advance(now, *frames.relative_motion(now, after))
    torch.testing.assert_close(qd, after.qd, atol=2e-5, rtol=1e-5)
    if robot(name).free_base:
        q[:, 3:7] *= torch.sign((q[:, 3:7] * after.q[:, 3:7]).sum(1, keepdim=True))
    torch.testing.assert_close(q, after.q, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("name", ["ant", "anymal"])
def test_inputs_do_not_change_when_the_world_is_moved_and_turned(name, cls):
    model = fitted(cls, name)
    q, qd = states(model.robot, 64)
    point, normal = ground(model.robot, 64)
    force = torch.randn(64, model.robot.nj)
    before = raw_inputs(model, Motion(q, qd), force, point, normal)
    turn, shift = normalize(torch.tensor([0.3, -0.8, 0.5, 0.4]), dim=0), torch.tensor([1.0, -2.0, 0.5])
    matrix = quat_to_matrix(turn[None])[0]
    q, qd = moved(q, qd, turn, shift)
    model.robot_centric.gravity = matrix @ model.robot_centric.gravity
    after = raw_inputs(model, Motion(q, qd), force, point @ matrix.T + shift, normal @ matrix.T)
    assert before.std(0).max() > 0.1
    # Distances are shown in units of 2 cm, which magnifies rounding fifty times.
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)
    # The same without the ground does change it.
    assert (raw_inputs(model, Motion(q, qd), force, point, normal) - before).abs().max() > 1e-2


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("name", ["ant", "anymal"])
def test_predictions_turn_and_move_with_the_robot(name, cls):
    model = fitted(cls, name)
    q, qd = states(model.robot, 64)
    point, normal = ground(model.robot, 64)
    force = torch.randn(64, model.robot.nj)
    turn, shift = quat_exp(torch.tensor([[0.0, 0.0, 2.2]]))[0], torch.tensor([2.0, -3.0, 0.0])
    first = model.predict(Motion(q, qd), force, model.find_contacts(q, point, normal), None)
    expected = moved(*first, turn, shift)
    q2, qd2 = moved(q, qd, turn, shift)
    found = model.predict(Motion(q2, qd2), force, model.find_contacts(q2, point, normal), None)
    assert (first.qd - qd).abs().max() > 0.05
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("cls", KINDS)
def test_inputs_do_not_change_when_a_fixed_robots_mounting_is_moved(cls, tmp_path):
    model = fitted(cls, "pendulum_contact")
    turn, shift = normalize(torch.tensor([0.3, -0.8, 0.5, 0.4]), dim=0), torch.tensor([1.0, -2.0, 0.5])
    matrix = quat_to_matrix(turn[None])[0]

    def words(values) -> str:
        return " ".join(f"{x:.9g}" for x in values.tolist())

    place = words(matrix @ torch.tensor([0.0, -1.0, 2.0]) + shift)
    text = model.robot.path.read_text().replace('pos="0 -1 2"', f'pos="{place}" quat="{words(turn)}"')
    gravity = words(matrix @ torch.tensor([0.0, 0.0, -9.81]))
    path = tmp_path / "pendulum_contact.xml"
    path.write_text(text.replace('gravity="0 0 -9.81"', f'gravity="{gravity}"'))
    turned = fitted(cls, "pendulum_contact", RobotModel.from_mjcf(path))
    q, qd = states(model.robot, 64)
    point, normal = ground(model.robot, 64)
    force = torch.randn(64, 2)
    before = raw_inputs(model, Motion(q, qd), force, point, normal)
    after = raw_inputs(turned, Motion(q, qd), force, point @ matrix.T + shift, normal @ matrix.T)
    torch.testing.assert_close(after, before, atol=2e-4, rtol=1e-4)
    assert (raw_inputs(turned, Motion(q, qd), force, point, normal) - before).abs().max() > 1e-2


def test_a_cart_on_its_rail_is_the_same_anywhere_at_any_speed_until_it_nears_the_end():
    model = fitted(MlpModel, "cartpole")
    q, qd = states(model.robot, 64)
    q[:, 0] = qd[:, 0] = 0
    force = 300 * torch.randn(64, 2, generator=torch.Generator().manual_seed(0))

    def change(shift: float, speed: float) -> torch.Tensor:
        there = Motion(q + torch.tensor([shift, 0.0]), qd + torch.tensor([speed, 0.0]))
        contacts = model.find_contacts(there.q, *ground(model.robot, 64))
        return model.predict(there, force, contacts, None).qd - there.qd

    torch.testing.assert_close(change(2.0, -3.0), change(0.0, 0.0), atol=1e-5, rtol=1e-5)
    assert (change(3.95, 0.0) - change(0.0, 0.0)).abs().max() > 1e-2
    assert (change(3.95, 2.0) - change(3.95, 0.0)).abs().max() > 1e-2


# Contact features.


def check_velocities(model: RobotModel):
    kinematics = Kinematics(model)
    frames, finder = RobotCentric(kinematics), ContactFinder(model, kinematics)
    points = ContactMotion(model, kinematics, frames, "cpu")
    q, qd = states(model, 16)
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


def test_candidates_that_always_coincide_are_seen_once():
    assert [len(distinct_candidates(robot(name))) for name in ROBOTS] == [0, 3, 13, 14, 0]
    ant = robot("ant")
    names = [ant.candidates.names[c] for c in distinct_candidates(ant)]
    assert "torso" in names and sum("foot" in n for n in names) == 4  # the lower ends


def test_far_candidates_are_hidden_and_near_ones_shown_as_they_are():
    ant = robot("ant")
    kinematics = Kinematics(ant)
    finder, frames = ContactFinder(ant, kinematics), RobotCentric(kinematics)
    q, _ = states(ant, 256)
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
    seen = true_depth < limit
    assert 0.2 < seen.float().mean() < 0.8
    for part in (normals, places, depth[..., None]):
        assert torch.equal(part.abs().sum(-1) > 0, seen)
    torch.testing.assert_close(depth[seen], true_depth[seen])
    back = places @ frame.rotation.mT + frame.position[:, None]
    torch.testing.assert_close(back[seen][:, :2], contacts.centre[seen][:, :2], atol=1e-5, rtol=1e-5)
    assert back[seen][:, 2].abs().max() < 1e-5
    torch.testing.assert_close((normals @ frame.rotation.mT)[seen], contacts.normal[seen], atol=1e-5, rtol=1e-5)


# The transformer's memory.


def big_transformer(window: int = 10) -> CausalTransformer:
    """With random weights for which every earlier token matters."""
    torch.manual_seed(0)
    network = CausalTransformer(6, 4, layers=3, heads=4, width=32, window=window)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return network


@torch.no_grad()
def test_the_cache_gives_what_the_whole_sequence_gives():
    network = big_transformer()
    tokens = torch.randn(5, 30, 6)
    resets = {0: (), 1: (7,), 2: (7, 8), 3: (1, 15, 29), 4: (22,)}
    cache = RingCache(network, 5, "cpu")
    outputs = []
    for t in range(30):
        cache.forget(torch.tensor([t in resets[row] for row in range(5)]))
        outputs.append(network.step(tokens[:, t], cache))
    found = torch.stack(outputs, 1)
    for row, at in resets.items():
        for start, end in zip((0, *at), (*at, 30), strict=True):
            expected = network(tokens[row : row + 1, start:end])[0]
            torch.testing.assert_close(found[row, start:end], expected, atol=1e-5, rtol=1e-4)
    assert (found[1, 10:14] - network(tokens)[1, 10:14]).abs().max() > 1e-3  # the past matters


@torch.no_grad()
def test_a_token_sees_its_layers_windows_and_nothing_later():
    network = big_transformer(window=4)
    tokens = torch.randn(1, 20, 6)
    changed = tokens.clone()
    changed[:, 5] += 1.0
    differs = (network(tokens) - network(changed)).abs().amax((0, 2))
    reach = 5 + 3 * (4 - 1)  # three layers, each three tokens back
    assert (differs[:5] == 0).all() and (differs[5 : reach + 1] > 0).all() and (differs[reach + 1 :] < 1e-6).all()


def rollout(model, history, start: Motion, forces, point, normal, forget=None):
    """States after each frame; forget maps frames to masks."""
    out, state = [], start
    for t, force in enumerate(forces):
        if forget and t in forget:
            history.forget(forget[t])
        state = model.predict(state, force, model.find_contacts(state.q, point, normal), history)
        out.append(torch.cat(state, 1))
    return torch.stack(out), state


@pytest.fixture
def remembering():
    """A transformer of the pendulum, a start and forces for it."""
    model = fitted(TransformerModel, "pendulum_contact")
    q, qd = states(model.robot, 6)
    forces = 100 * torch.randn(16, 6, 2, generator=torch.Generator().manual_seed(0))
    return model, Motion(q, qd), forces, *ground(model.robot, 6)


def test_forgetting_a_row_never_touches_another(remembering):
    model, start, forces, point, normal = remembering
    mask = torch.tensor([False, False, True, False, False, False])
    kept, _ = rollout(model, model.new_history(6), start, forces, point, normal)
    forgot, _ = rollout(model, model.new_history(6), start, forces, point, normal, {7: mask})
    assert torch.equal(kept[:, ~mask], forgot[:, ~mask]) and torch.equal(kept[:7], forgot[:7])
    assert not torch.equal(kept[7, mask], forgot[7, mask])


def test_a_snapshot_comes_back_to_the_bit(remembering):
    model, start, forces, point, normal = remembering
    history = model.new_history(6)
    _, middle = rollout(model, history, start, forces[:7], point, normal)
    snapshot = history.snapshot()
    first, _ = rollout(model, history, middle, forces[7:], point, normal)
    history.restore(snapshot)
    second, _ = rollout(model, history, middle, forces[7:], point, normal)
    assert torch.equal(first, second)
    fresh, _ = rollout(model, model.new_history(6), middle, forces[7:], point, normal)
    assert not torch.equal(first, fresh)


def test_a_state_that_is_not_finite_leaves_no_trace_after_it_is_forgotten(remembering):
    model, start, forces, point, normal = remembering
    history = model.new_history(6)
    broken = Motion(start.q.clone(), start.qd.clone())
    broken.qd[3] = float("nan")
    rollout(model, history, broken, forces[:1], point, normal)
    history.forget(torch.ones(6, dtype=torch.bool))
    found, _ = rollout(model, history, start, forces, point, normal)
    expected, _ = rollout(model, model.new_history(6), start, forces, point, normal)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


# Training and prediction.


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("name", ROBOTS)
def test_thirty_steps_of_training_learn_something(name, cls):
    torch.manual_seed(0)
    model = cls(robot(name), {}, {"network": SMALL[cls.kind]})
    model.fit_normaliser(windows(name, cls.frames, 256))
    optimiser = torch.optim.AdamW(model.module.parameters(), lr=3e-3)
    rows = 512 // cls.frames
    before = model.loss(windows(name, cls.frames, rows, seed=99)).item()
    for step in range(30):
        loss = model.loss(windows(name, cls.frames, rows, seed=step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert model.loss(windows(name, cls.frames, rows, seed=99)).item() < 0.85 * before


def test_an_error_counts_more_in_a_gentle_frame():
    model = fitted(MlpModel, "ant")
    nv = robot("ant").nv
    gentle, violent = torch.full((1, 2 * nv), 0.1), torch.full((1, 2 * nv), 3.0)
    assert model.loss_scale(gentle).item() < 0.5 * model.loss_scale(violent).item()
    assert model.loss_scale(0 * gentle).item() > 0.3  # and no frame counts without end


@pytest.mark.parametrize("cls", KINDS)
def test_targets_are_normalised_however_small_they_are(cls):
    model = fitted(cls, "cartpole")
    _, targets = model.examples(windows("cartpole", cls.frames, 256))
    assert targets.flatten(0, 1).std(0).min() < 0.05
    spread = model.normaliser.targets(targets).flatten(0, 1).std(0)
    torch.testing.assert_close(spread, torch.ones_like(spread), atol=1e-3, rtol=0)


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("name", ROBOTS)
def test_predictions_never_wait_for_the_host_and_stay_near_what_was_seen(name, cls, monkeypatch):
    model = fitted(cls, name)
    assert kind_of(cls.kind) is cls
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.mul_(100.0)  # a network gone wild
    batch = data(name)
    q, qd, force = batch["q"][:, 0], batch["qd"][:, 0], batch["force"][:, 0]
    history = model.new_history(len(q))
    state = Motion(q, qd)

    def refuse(*_, **__):
        raise AssertionError("a tensor was brought to the host")

    for method in HOST_METHODS:
        monkeypatch.setattr(torch.Tensor, method, refuse)
    with NoHostRoundTrips():
        for _ in range(3):
            if history is not None:
                history.forget(q[:, 0] > 0)
            contacts = model.find_contacts(state.q, batch["ground_point"], batch["ground_normal"])
            state = model.predict(state, force, contacts, history)
    monkeypatch.undo()
    assert state.q.isfinite().all()
    joints = model.robot.joint_qd
    change = model.normaliser.output_limit[model.robot.nv :][joints]
    assert ((state.qd - qd)[:, joints].abs() <= 3.01 * change.max()).all()
    _, targets = model.examples(windows(name, cls.frames, 256))  # what the normaliser was fitted to
    torch.testing.assert_close(model.normaliser.output_limit, 1.5 * targets.abs().amax((0, 1)))


@pytest.mark.parametrize("cls", KINDS)
def test_a_saved_model_predicts_the_same_bits(cls):
    model = fitted(cls, "ant")
    again = cls(model.robot, model.tensors(), model.facts)
    q, qd = states(model.robot, 32)
    force = torch.randn(32, 8)
    contacts = model.find_contacts(q, *ground(model.robot, 32))
    first, second = (m.predict(Motion(q, qd), force, contacts, m.new_history(32)) for m in (model, again))
    assert torch.equal(first.q, second.q) and torch.equal(first.qd, second.qd)


@pytest.mark.parametrize("name", ["ant", "anymal"])
def test_a_limp_robot_in_the_air_falls_freely_whatever_the_network_says(name):
    model = fitted(MlpModel, name)
    q, qd = states(model.robot, 16)
    q[:, 2] += 5.0
    q[:, 7 + model.limited] = model.limits.mean(0)  # far from all limits
    assert len(model.limited)
    qd = torch.zeros_like(qd)
    force = torch.zeros(16, model.robot.nj)
    contacts = model.find_contacts(q, *ground(model.robot, 16))
    after = model.predict(Motion(q, qd), force, contacts, None)
    fall = 9.81 * model.robot.frame_dt
    expected = torch.zeros_like(qd)
    expected[:, 2] = -fall
    usual = model.normaliser.output_std[model.robot.nv :]
    assert ((after.qd - expected).abs() < 0.02 * usual).all()
    pushed = model.predict(Motion(q, qd), force + 100.0, contacts, None)
    off = [(motion.qd - expected).abs().max() for motion in (after, pushed)]
    assert off[1] > 20 * off[0], "a force on the joints is not a quiet flight"
