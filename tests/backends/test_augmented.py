"""The backend with networks inside its engine: `warp` without them, and one motion in kernel and torch with them."""

import pytest
import torch

from nerd_gym.augmented import AugmentedModel, Blueprint, save_augmented
from nerd_gym.augmented.models.blueprint import ACTIVATIONS
from nerd_gym.backends import make_backend
from tests.support.grid import ROBOTS, robot
from tests.support.states import everyone, fixed_base_state, ground, push, wide_state

N = 64
CONTACTS = ["depth/@", "along/@", "slip/@"]


def start(name):
    """States, forces and planes that some touch."""
    model = robot(name)
    if model.free_base:
        return *wide_state(model, N, height=-0.2), push(model, N), ground(model, N)
    q, qd, force, *plane = fixed_base_state(model, N)
    return q, qd, force, tuple(plane)


def stepped(backend_name, name, **options):
    q, qd, force, plane = start(name)
    backend = make_backend(backend_name, robot(name), N, **options)
    backend.reset(everyone(N), q, qd, plane)
    backend.step(force)
    return backend


@pytest.mark.parametrize("name", ROBOTS)
def test_without_a_model_it_is_warp_to_the_bit(name):
    own, plain = stepped("augmented", name), stepped("warp", name)
    assert torch.equal(own.q, plain.q) and torch.equal(own.qd, plain.qd)
    assert not own.learned and own.facts["stepped_in"] == "fused kernel"


def wired(name, activation="elu", values=None, size=1.0):
    """Networks on torque and contact that give something."""
    torch.manual_seed(0)
    model = robot(name)
    blueprint = Blueprint().wire("tau/*", ["q/@", "qd/@"], activation=activation)
    if model.ground is not None:
        blueprint.wire(["normal/*", "friction/*"], CONTACTS, hidden=(8, 8), activation=activation)
    augmented = AugmentedModel(model, blueprint, values)
    weight = 9.81 * float(model.mj_model.body_mass.sum())
    with torch.no_grad():
        for net in augmented.scalar_nets:
            net.linears[-1].weight.normal_(std=0.3)
            net.size.fill_(size * 0.02 * weight)
    return augmented


def assert_same_motion(first, second):
    """To 1e-5 of how far anything moves, in all rows but those that a contact's edge divides."""
    for a, b in ((first.q, second.q), (first.qd, second.qd)):
        off = (a - b).abs().amax(-1) / (1e-5 * (1 + b.abs().amax(-1)))
        assert (off < 1).float().mean() >= 0.95 and off.median() < 0.3, off.sort().values[-5:]


@pytest.mark.parametrize(
    ("name", "activation"),
    [("ant", "elu"), ("anymal", "elu"), *(("pendulum_contact", activation) for activation in ACTIVATIONS)],
)
def test_kernel_and_torch_move_alike(name, activation):
    model = wired(name, activation)
    fused, other = stepped("augmented", name, model=model), stepped("augmented", name, model=model, fused=False)
    assert fused.facts["stepped_in"] == "fused kernel" and other.facts["stepped_in"] == "torch engine"
    assert_same_motion(fused, other)
    plain = stepped("warp", name)
    assert (fused.qd - plain.qd).abs().amax(-1).median() > 1e-3  # the networks do something


def test_identified_parameters_reach_the_kernel():
    own = AugmentedModel(robot("ant")).engine().parameters
    values = {"mass": 1.3 * own.mass, "damping": own.damping + 2.0, "com": own.com + 0.01}
    values |= {"contact_gains": 0.7 * own.contact_gains, "gravity": own.gravity * 0.9}
    model = wired("ant", values=values)
    assert_same_motion(stepped("augmented", "ant", model=model), stepped("augmented", "ant", model=model, fused=False))


@pytest.mark.parametrize(
    "blueprint",
    [
        Blueprint().wire("tau/*", ["time"]),
        Blueprint().wire("tau/*", ["qd/@"], residual=False),
        Blueprint().wire("damping/*", ["qd/@"]),
        Blueprint().wire("normal/*", ["push/@"]),
    ],
)
def test_other_wirings_step_in_torch(blueprint):
    model = AugmentedModel(robot("ant"), blueprint)
    assert stepped("augmented", "ant", model=model).facts["stepped_in"] == "torch engine"


def test_a_snapshot_keeps_the_time(tmp_path):
    model = AugmentedModel(robot("cartpole"), Blueprint().wire("tau/*", "time"))
    with torch.no_grad():
        model.scalar_nets[0].linears[0].weight.normal_(generator=torch.Generator().manual_seed(0))
        model.scalar_nets[0].linears[-1].weight.fill_(50.0)
    path = tmp_path / "model.safetensors"
    save_augmented(path, model)
    backend = make_backend("augmented", robot("cartpole"), 2, model=path)
    assert backend.learned and backend.facts["hash"]
    zero = torch.zeros(2, 2)
    backend.reset(everyone(2), zero, zero)
    for _ in range(3):
        backend.step(zero)
    kept = backend.snapshot()
    backend.step(zero)
    first = backend.qd.clone()
    backend.restore(kept)
    backend.step(zero)
    assert torch.equal(backend.qd, first)
    backend.reset(torch.tensor([True, False]), zero, zero)
    backend.step(zero)
    assert not torch.equal(backend.qd[0], first[0])  # at its own time 0 again


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "no.safetensors"}, "no model at no.safetensors"),
        ({"fused": 1}, "valid: True, False"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_options_are_told(options, words):
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        make_backend("augmented", robot("cartpole"), 1, **options)


def test_a_model_of_another_robot_is_refused():
    with pytest.raises(ValueError, match="robot 'ant'"):
        make_backend("augmented", robot("anymal"), 1, model=AugmentedModel(robot("ant")))
