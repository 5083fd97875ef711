"""benchmarks/strike_simulators.py: rests are told by velocities, and velocities by rests."""

from __future__ import annotations

import importlib

import pytest
import torch

from nerd_gym.collision import CollisionModel
from nerd_gym.collision.models.surrogate import relative_error
from nerd_gym.collision.scenes.shapes import SHAPES
from tests.support.grid import ROOT


@pytest.mark.parametrize("name", ["semicylinder", "triangle"])
def test_velocities_of_rests_lead_there(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    simulators = importlib.import_module("strike_simulators")
    shape, options = SHAPES[name], {"mu_table": 0.35, "fallback": False}
    strike = torch.tensor([[0.4, 0.2, 0.1], [0.7, -0.5, -0.3], [0.9, 0.0, 0.4]])
    strike[:, 1] *= shape.reach
    given = torch.cat([strike, torch.tensor([[0.3, 0.35, 0.4, 1.0]]).expand(3, -1)], 1)
    outcome = CollisionModel.packaged(name).predict(given).detach()
    rest = simulators.rests(shape, strike, "hybrid", outcome, **options)
    wrong = outcome.clone()
    wrong[:, :3] *= torch.tensor([0.9, 1.1, 1.2])
    found = wrong.clone()
    found[:, :3] = simulators.velocities_of_rests(shape, strike, rest, wrong, options)
    missed = simulators.missed(simulators.rests(shape, strike, "hybrid", found, **options), rest)
    assert (missed[:, :2].norm(dim=-1) < 1e-3).all() and (missed[:, 2].abs() < 0.01).all()
    assert (relative_error(found, outcome) < 0.3 * relative_error(wrong, outcome)).all()
