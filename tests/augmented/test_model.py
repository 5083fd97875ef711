"""Augmented engines: the plain one to the bit at the start, and every scalar where it belongs."""

import pytest
import torch

from nerd_gym.augmented import AugmentedModel, Blueprint, load_augmented, save_augmented
from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.utils.files import load_tensors, save_tensors
from tests.support.grid import ROBOTS, robot
from tests.support.states import fixed_base_state, ground, push, wide_state

N, GIVEN = 16, 1e-3


def state(name):
    """Float64 states, forces and planes that some touch."""
    model = robot(name)
    if model.free_base:
        q, qd = wide_state(model, N)
        rows = (q, qd, push(model, N), *ground(model, N))
    else:
        rows = fixed_base_state(model, N)
    q, qd, force, *plane = (x.double() for x in rows)
    return q, qd, force, tuple(plane)


def everything(name):
    """A wire on every group of scalars that the robot has."""
    model = robot(name)
    blueprint = Blueprint()
    for group in ("tau", "stiffness", "damping"):
        blueprint.wire(f"{group}/*", ["q/@", "qd/@", "command/@", "time"])
    blueprint.wire("mass/*", ["up/@/z", "velocity/@/vx"]).wire("com/*/x", "position/@/z")
    blueprint.wire("inertia/*/xx", "time").wire("drag/*/fx", ["velocity/@/vx", "velocity/@/wy"])
    if model.ground is not None:
        blueprint.wire(["normal/*", "friction/*"], ["depth/@", "along/@", "slip/@", "push/@", "drag/@"])
    return blueprint


def frame(model, name, **options):
    q, qd, force, plane = state(name)
    return model.frame(q, qd, force, plane, time=torch.zeros(N).double(), **options)


@pytest.mark.parametrize("name", ROBOTS)
def test_networks_that_give_zero_change_no_bit(name):
    torch.manual_seed(0)
    model = AugmentedModel(robot(name), everything(name))
    q, qd, force, plane = state(name)
    engine = Articulated(robot(name))
    expected = engine.frame(q, qd, force, plane, model.contact_law(engine))
    assert all(torch.equal(a, b) for a, b in zip(frame(model, name), expected, strict=True))


def awake(model, name):
    """A frame with outputs of GIVEN."""
    with torch.no_grad():
        for net in model.scalar_nets:
            net.linears[-1].bias.fill_(GIVEN)
    return frame(model, name)


@pytest.mark.parametrize(
    ("wire", "values"),
    [
        ("damping/*", {"damping": GIVEN}),
        ("stiffness/*", {"stiffness": GIVEN}),
        ("mass/*", {"mass": GIVEN}),
        ("com/*/y", {"com": torch.tensor([0.0, GIVEN, 0.0])}),
        ("inertia/*/xy", {"inertia": torch.tensor([[0.0, GIVEN, 0.0], [GIVEN, 0.0, 0.0], [0.0, 0.0, 0.0]])}),
    ],
)
def test_a_network_on_a_parameter_is_another_parameter(wire, values):
    """One that always gives the same is an engine whose parameter is larger by that."""
    model = AugmentedModel(robot("ant"), Blueprint().wire(wire, "time"))
    found = awake(model, "ant")
    engine = Articulated(robot("ant"))
    own = engine.parameters
    other = AugmentedModel(robot("ant"), values={name: getattr(own, name) + x for name, x in values.items()})
    for a, b in zip(found, frame(other, "ant"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_a_network_on_torques_is_another_command():
    model = AugmentedModel(robot("ant"), Blueprint().wire("tau/*", "time"))
    q, qd, force, plane = state("ant")
    expected = AugmentedModel(robot("ant")).frame(q, qd, force + GIVEN, plane)
    for a, b in zip(awake(model, "ant"), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_drag_is_a_force_on_the_centre_of_mass():
    """Of the base alone: its acceleration times the robot's mass in free fall, where nothing else can act."""
    model = robot("anymal")
    q = torch.as_tensor(model.mj_model.qpos0)[None].clone()
    q[:, 2] = 5.0
    qd, force = torch.zeros(1, model.nv).double(), torch.zeros(1, model.nj).double()
    base = next(iter(AugmentedModel(model).catalogue.links))
    plane = torch.zeros(1, 3).double(), torch.tensor([[0.0, 0.0, 1.0]]).double()
    augmented = AugmentedModel(model, Blueprint().wire(f"drag/{base}/fx", "time"))
    with torch.no_grad():
        augmented.scalar_nets[0].linears[-1].bias.fill_(100.0)
        time = torch.zeros(1).double()
        pushed = augmented.frame(q, qd, force, plane, substeps=1, time=time)[1]
        plain = AugmentedModel(model).frame(q, qd, force, plane, substeps=1)[1]
        engine = Articulated(model)
        H, _ = engine.mass_and_bias(engine.pose(q), qd)
        wrench = (H[0] @ (pushed - plain)[0]) / model.frame_dt
    # Generalised forces of a pull along x at the base's centre of mass.
    com = engine.parameters.com[0]
    expected = torch.zeros(model.nv).double()
    expected[0] = 100.0
    expected[3:6] = torch.linalg.cross(com, torch.tensor([100.0, 0.0, 0.0]).double())
    torch.testing.assert_close(wrench, expected, rtol=1e-9, atol=1e-9)


def test_normal_forces_do_not_pull_and_friction_opposes_the_slip():
    model = AugmentedModel(robot("ant"), Blueprint().wire(["normal/*", "friction/*"], "time"))
    with torch.no_grad():
        model.scalar_nets[0].linears[-1].bias.copy_(torch.tensor([-1e6] * 2 * len(robot("ant").candidates.radius)))
    q, qd, force, plane = state("ant")
    found = model.frame(q, qd, force, plane, time=torch.zeros(N).double())
    engine = Articulated(robot("ant"))
    expected = engine.frame(q, qd, force)  # no contact at all
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_replacing_a_scalar_forgets_the_engines():
    blueprint = Blueprint().wire("tau/*", "time", residual=False)
    q, qd, force, plane = state("ant")
    found = AugmentedModel(robot("ant"), blueprint).frame(q, qd, force, plane, time=torch.zeros(N).double())
    expected = AugmentedModel(robot("ant")).frame(q, qd, 0 * force, plane)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_saved_model_is_the_same(tmp_path):
    torch.manual_seed(1)
    model = AugmentedModel(robot("ant"), everything("ant"), {"damping": torch.full((8,), 0.3)}, "hunt_crossley")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01 * torch.rand_like(p))
    path = tmp_path / "model.safetensors"
    save_augmented(path, model, {"command": "x"})
    again, facts = load_augmented(path, robot("ant"))
    assert facts["command"] == "x" and facts["robot"] == "ant"
    assert all(torch.equal(a, b) for a, b in zip(frame(again, "ant", substeps=1), frame(model, "ant", substeps=1)))
    with pytest.raises(ValueError, match="anymal"):
        load_augmented(path, robot("anymal"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t, f: t.update({"values.damping": t["values.damping"] - 1}), "damping"),
        (lambda t, f: t.update({"values.damping": t["values.damping"] * torch.nan}), "not finite"),
        (lambda t, f: t.update({"values.damping": t["values.damping"][:3]}), "shape"),
        (lambda t, f: t.update({"values.mass": -torch.ones(9).double()}), "mass"),
        (lambda t, f: t.update({"networks.0.scale": 0 * t["networks.0.scale"]}), "scale"),
        (lambda t, f: t.update({"networks.0.layers.0.weight": 1e30 * torch.ones(5, 1)}), "networks.0.layers.0.weight"),
        (lambda t, f: t.update({"values.colour": torch.ones(1)}), "unknown parameter 'colour'"),
        (lambda t, f: t.pop("networks.0.size"), "networks.0.size"),
        (lambda t, f: f.update({"kind": "neural"}), "kind 'neural'"),
        (lambda t, f: f.update({"contact": "glue"}), "valid: penalty"),
        (lambda t, f: f.update({"sweeps": 10**9}), "sweeps"),
        (lambda t, f: f.update({"wires": [{"outputs": ["os.system"]}]}), "wire 0"),
        (lambda t, f: f["wires"][0].update(outputs=["tau/none"]), "tau/none"),
        (lambda t, f: f["wires"][0].update(hidden=[10**9]), "hidden"),
        (lambda t, f: f.update({"wires": f["wires"] * 1000}), "at most 64"),
    ],
)
def test_a_changed_file_is_refused(tmp_path, change, words):
    path = tmp_path / "model.safetensors"
    blueprint = Blueprint().wire("tau/*", "qd/@")
    save_augmented(path, AugmentedModel(robot("ant"), blueprint, {"damping": torch.full((8,), 0.3)}))
    tensors, facts = load_tensors(path)
    change(tensors, facts)
    save_tensors(path, tensors, facts)
    with pytest.raises(ValueError, match=words):
        load_augmented(path, robot("ant"))
