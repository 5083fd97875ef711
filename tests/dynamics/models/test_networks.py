import pytest
import torch
from torch.nn.functional import normalize

from nerd_gym.dynamics.models.base import kind_of
from nerd_gym.dynamics.models.mlp import MlpModel
from nerd_gym.dynamics.models.transformer import TransformerModel
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_exp, quat_multiply, quat_to_matrix
from nerd_gym.robots.state import Motion
from tests.support.device import away_from_the_host
from tests.support.grid import ROBOTS, robot
from tests.support.models import SMALL, fitted, trajectories, windows
from tests.support.states import ground, wide_state

KINDS = (MlpModel, TransformerModel)


def raw_inputs(model, motion: Motion, force, point, normal):
    """The network's inputs before normalisation."""
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


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("name", ["ant", "anymal"])
def test_inputs_do_not_change_when_the_world_is_moved_and_turned(name, cls):
    model = fitted(cls, name)
    q, qd = wide_state(model.robot, 64)
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
    q, qd = wide_state(model.robot, 64)
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
    q, qd = wide_state(model.robot, 64)
    point, normal = ground(model.robot, 64)
    force = torch.randn(64, 2)
    before = raw_inputs(model, Motion(q, qd), force, point, normal)
    after = raw_inputs(turned, Motion(q, qd), force, point @ matrix.T + shift, normal @ matrix.T)
    torch.testing.assert_close(after, before, atol=2e-4, rtol=1e-4)
    assert (raw_inputs(turned, Motion(q, qd), force, point, normal) - before).abs().max() > 1e-2


def test_a_cart_on_its_rail_is_the_same_anywhere_at_any_speed_until_it_nears_the_end():
    model = fitted(MlpModel, "cartpole")
    q, qd = wide_state(model.robot, 64)
    q[:, 0] = qd[:, 0] = 0
    force = 300 * torch.randn(64, 2, generator=torch.Generator().manual_seed(0))

    def change(shift: float, speed: float) -> torch.Tensor:
        there = Motion(q + torch.tensor([shift, 0.0]), qd + torch.tensor([speed, 0.0]))
        contacts = model.find_contacts(there.q, *ground(model.robot, 64))
        return model.predict(there, force, contacts, None).qd - there.qd

    torch.testing.assert_close(change(2.0, -3.0), change(0.0, 0.0), atol=1e-5, rtol=1e-5)
    assert (change(3.95, 0.0) - change(0.0, 0.0)).abs().max() > 1e-2
    assert (change(3.95, 2.0) - change(3.95, 0.0)).abs().max() > 1e-2


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
def test_predictions_never_wait_for_the_host_and_stay_near_the_data(name, cls):
    model = fitted(cls, name)
    assert kind_of(cls.kind) is cls
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.mul_(100.0)  # an arbitrary network
    batch = trajectories(name)
    q, qd, force = batch["q"][:, 0], batch["qd"][:, 0], batch["force"][:, 0]
    history = model.new_history(len(q))
    state = Motion(q, qd)

    with away_from_the_host():
        for _ in range(3):
            if history is not None:
                history.forget(q[:, 0] > 0)
            contacts = model.find_contacts(state.q, batch["ground_point"], batch["ground_normal"])
            state = model.predict(state, force, contacts, history)
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
    q, qd = wide_state(model.robot, 32)
    force = torch.randn(32, 8)
    contacts = model.find_contacts(q, *ground(model.robot, 32))
    first, second = (m.predict(Motion(q, qd), force, contacts, m.new_history(32)) for m in (model, again))
    assert torch.equal(first.q, second.q) and torch.equal(first.qd, second.qd)


@pytest.mark.parametrize("name", ["ant", "anymal"])
def test_a_limp_robot_in_the_air_falls_freely_whatever_the_network_says(name):
    model = fitted(MlpModel, name)
    q, qd = wide_state(model.robot, 16)
    q[:, 2] += 5.0
    q[:, 7 + model.view.limited] = model.view.limits.mean(0)  # far from all limits
    assert len(model.view.limited)
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
    assert off[1] > 20 * off[0], "a force on the joints is not free fall"
