"""Contacts learned from a teacher's motion, from the dataset to the file."""

import pytest

from nerd_gym import make_backend
from nerd_gym.collision.models.contact_model import CONSTRAINT, NETWORK, load_contacts
from nerd_gym.collision.training.contacts import ContactSettings, train_contacts
from nerd_gym.data.dataset import DatasetPlan, generate
from nerd_gym.data.reader import Data
from tests.support.grid import robot


def dataset(name: str, teacher: str, folder, **options) -> Data:
    path = folder / f"{name}-{teacher}.h5"
    generate(DatasetPlan(robot(name), teacher, 25_600, frames=50, seed=1, task_share=0.5, **options), path)
    return Data.load(path, robot(name))


def test_mujocos_own_parameters_are_found(tmp_path):
    """From 25,000 transitions: time constant .02, damping ratio 1, impedance .95, friction .625."""
    data, out = dataset("ant", "mujoco", tmp_path), tmp_path / "contacts.safetensors"
    train_contacts(data, out, ContactSettings(CONSTRAINT), "a test")
    model = load_contacts(out, robot("ant"))
    assert model.law == CONSTRAINT
    assert model.gains == pytest.approx((0.02, 1.0, 0.95, 0.625, 0.02, 1.0, 0.95), rel=2e-3)
    assert min(model.facts["r2"].values()) > 0.999


def test_a_network_learns_the_contacts_of_warp(tmp_path):
    data, out = dataset("ant", "warp", tmp_path), tmp_path / "contacts.safetensors"
    model = train_contacts(data, out, ContactSettings(NETWORK, steps=800), "a test")
    assert model.limits == "spring" and min(model.facts["r2"].values()) > 0.95, model.facts["r2"]
    backend = make_backend("hybrid", data.robot, 2, model=out)
    assert backend.facts["law"] == NETWORK


def test_a_dataset_without_contact_says_what_is_missing(tmp_path):
    data = dataset("pendulum_contact", "warp", tmp_path)
    for arrays in (data.train, data.held):
        arrays["ground_point"] -= 50 * arrays["ground_normal"]
    with pytest.raises(ValueError, match=r"0 training frames begin inside the ground.*generate more"):
        train_contacts(data, tmp_path / "contacts.safetensors", ContactSettings(), "a test")
    assert not list(tmp_path.glob("*.safetensors"))


def test_unknown_laws_and_sizes_are_refused():
    with pytest.raises(ValueError, match="'magic'; valid: auto, network, penalty, constraint"):
        ContactSettings("magic")
    with pytest.raises(ValueError, match="steps is 0"):
        ContactSettings(steps=0)


def test_a_law_that_does_not_go_with_the_robot_is_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"pendulum_contact has a fixed base; the law 'constraint'"):
        train_contacts(
            dataset("pendulum_contact", "warp", tmp_path), tmp_path / "x", ContactSettings(CONSTRAINT), "a test"
        )
