"""Wirings: what patterns mean, and what is told of wrong ones."""

import json

import pytest

from nerd_gym.augmented import Blueprint, Wire
from nerd_gym.augmented.models.names import Catalogue
from nerd_gym.augmented.pictures import plot_path, plot_wiring
from nerd_gym.backends import BACKENDS, backend_class
from tests.support.grid import ROBOTS, robot


def resolved(name, *wires):
    return Blueprint([Wire.parse(text) for text in wires]).resolve(robot(name))


def test_a_star_is_all_joints_and_an_at_sign_the_same_one():
    (one,) = resolved("franka", "tau/*: qd/*")
    assert len(one.outputs) == 1 and len(one.outputs[0]) == len(one.inputs[0]) == robot("franka").nj
    (each,) = resolved("franka", "tau/*: q/@ qd/@ time")
    joints = robot("franka").joint_names
    assert each.outputs == tuple((f"tau/{name}",) for name in joints)
    assert each.inputs == tuple((f"q/{name}", f"qd/{name}", "time") for name in joints)


@pytest.mark.parametrize("name", ROBOTS)
def test_every_group_of_names_has_its_size(name):
    model = robot(name)
    catalogue, links = Catalogue(model), len(Catalogue(model).links)
    sizes = {"q": model.nj, "damping": model.nj, "depth": len(model.candidates.radius), "inertia": 6 * links}
    sizes |= {"friction": len(model.candidates.radius), "velocity": 6 * links, "drag": 6 * links, "mass": links}
    for group, size in sizes.items():
        table = catalogue.scalars if group in ("damping", "friction", "inertia", "drag", "mass") else catalogue.signals
        columns = sorted(place.column for place in table.values() if place.group == group)
        assert columns == list(range(size)), group


def test_a_wire_that_reads_another_comes_after_it():
    first, second = resolved("cartpole", "damping/cart_to_pole: mass/pole", "mass/pole: q/cart_to_pole")
    assert first.outputs == (("mass/pole",),) and second.inputs == (("mass/pole",),)


@pytest.mark.parametrize(
    ("wires", "words"),
    [
        (["tau/cart_to_pol: qd/*"], ("tau/cart_to_pol", "near: tau/cart_to_pole", "groups: tau, stiffness")),
        (["tau/*: qdd/*"], ("qdd/*", "signal that can be read of cartpole", "near: qd/")),
        (["normal/*: depth/@"], ("normal/*", "no scalar")),
        (["tau/*: qd/*", "tau/cart_to_pole: time"], ("tau/cart_to_pole", "output twice")),
        (["mass/cart: damping/cart_to_pole", "damping/cart_to_pole: mass/cart"], ("cycle", "mass/cart", "->")),
        (["mass/cart: mass/cart"], ("cycle",)),
        (["tau/cart_to_pole: q/@"], ("needs a *",)),
        (["tau/* mass/*: q/@"], ("'mass/*' has not",)),
    ],
)
def test_wrong_wires_are_told(wires, words):
    with pytest.raises(ValueError) as told:
        resolved("cartpole", *wires)
    assert all(word in str(told.value) for word in words), told.value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hidden": (0,)}, "1 to 512"),
        ({"hidden": (5,) * 5}, "at most 4 layers"),
        ({"activation": "relu"}, "valid: elu, tanh, silu"),
        ({"residual": 1}, "valid: True, False"),
        ({"inputs": ()}, "at least one"),
    ],
)
def test_wrong_networks_are_told(options, words):
    with pytest.raises(ValueError, match=words):
        Wire(**{"outputs": ("tau/*",), "inputs": ("qd/*",)} | options)


@pytest.mark.parametrize("text", ["tau/*", "tau/*:", ": qd/*", "", "tau/*:qd/*"])
def test_a_text_that_is_no_wire_is_told(text):
    with pytest.raises(ValueError, match="is not 'OUTPUT"):
        Wire.parse(text)


def test_facts_are_a_blueprint_again():
    blueprint = Blueprint().wire("tau/*", ["q/@", "qd/@"], hidden=(3,), activation="tanh", residual=False)
    again = Blueprint.of_facts("file", json.loads(json.dumps(blueprint.facts())))
    assert again.wires == blueprint.wires


def test_pictures_are_drawn(tmp_path):
    plot_wiring(resolved("ant", "tau/*: q/@ qd/@", "normal/*: depth/@"), tmp_path / "wiring.png")
    rows = [{"lasso": 0.1, "surviving": [{}], "held_error": {"end": 1.0}}]
    rows += [{"lasso": 0.01, "surviving": [{"qd/a": 0.5}], "held_error": {"end": 0.5}}]
    plot_path(rows, tmp_path / "path.png")
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in tmp_path.glob("*.png"))
    assert len(list(tmp_path.iterdir())) == 2


def test_the_backend_is_in_the_table():
    assert BACKENDS["augmented"].cls == "AugmentedBackend" and not backend_class("augmented").learned
