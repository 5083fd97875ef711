"""Files of contact models: what is written is read, what cannot be is refused by name."""

import pytest
import torch

from nerd_gym.collision.models.contact_model import (
    CONSTRAINT,
    NATIVE,
    NETWORK,
    PENALTY,
    ContactModel,
    load_contacts,
    packaged_contacts,
)
from nerd_gym.physics.torch.contact_net import ContactForceNet
from nerd_gym.physics.warp.constraint_params import ConstraintLaw
from nerd_gym.utils.files import load_tensors, save_tensors
from tests.support.grid import ROBOTS, robot


def facts_of(name: str) -> dict:
    model = robot(name)
    return {
        "robot": name,
        "robot_hash": model.hash,
        "teacher": "warp",
        "frame_dt": model.frame_dt,
        "substeps": model.substeps,
    }


@pytest.mark.parametrize(
    "model",
    [
        ContactModel(PENALTY, (1e4, 100.0, 500.0, 0.7), limits=NATIVE, span=(0.1, 5.0)),
        ContactModel(CONSTRAINT, ConstraintLaw(), limits=CONSTRAINT),
        ContactModel(NETWORK, network=ContactForceNet(8)),
    ],
    ids=lambda model: model.law,
)
def test_a_model_is_read_as_it_was_written(tmp_path, model):
    path = tmp_path / "contacts.safetensors"
    ContactModel(**{**vars(model), "facts": facts_of("ant")}).save(path)
    read = load_contacts(path, robot("ant"))
    assert (read.law, read.limits) == (model.law, model.limits)
    assert read.gains == pytest.approx(tuple(model.gains)) and read.span == pytest.approx(model.span)
    assert (read.network is None) == (model.network is None)
    if model.network is not None:
        assert torch.equal(read.network.packed(), model.network.packed())


@pytest.mark.parametrize("name", ROBOTS)
def test_every_packaged_robot_has_contacts_of_warp(name):
    model = load_contacts(packaged_contacts(robot(name), "warp"), robot(name))
    assert model.facts["teacher"] == "warp" and min(model.facts["r2"].values()) > 0.999


BAD = {
    "kind": ({"kind": "residual"}, {}, "kind 'residual'"),
    "law": ({"law": "magic"}, {}, "'magic'; valid: network, penalty"),
    "limits": ({"limits": "soft"}, {}, "'soft'; valid: native, spring"),
    "robot": ({"robot_hash": "0" * 16}, {}, "0000"),
    "frame": ({"frame_dt": 0.5}, {}, "0.5 s"),
    "substeps": ({"substeps": 0}, {}, "substeps = 0"),
    "too few gains": ({}, {"gains": torch.ones(3).double()}, "3 gains; it takes 4"),
    "negative gains": ({}, {"gains": torch.tensor([-1.0, 1, 1, 1]).double()}, "-1.0"),
    "no number": ({}, {"gains": torch.full((4,), torch.nan).double()}, "not finite"),
    "span": ({}, {"span": torch.tensor([0.0, 1.0])}, "'span', two numbers above 0"),
    "constraints with springs": ({"law": CONSTRAINT}, {"gains": torch.ones(7).double()}, "'spring' limits"),
    "network": ({}, {"contact.first.weight": torch.ones(4, 6)}, "'penalty' has a network|Error|no model of contacts"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_makes_no_model_is_refused_with_the_files_name(tmp_path, case):
    facts, tensors, told = BAD[case]
    good = tmp_path / "good.safetensors"
    ContactModel(PENALTY, (1e4, 100.0, 500.0, 0.7), facts=facts_of("ant")).save(good)
    own, about = load_tensors(good)
    path = tmp_path / "bad.safetensors"
    save_tensors(path, own | tensors, about | facts)
    with pytest.raises(ValueError, match=told) as refused:
        load_contacts(path, robot("ant"))
    assert "bad.safetensors" in str(refused.value)
