"""How far a model may be believed."""

import numpy as np
import pytest
import torch

from nerd_gym.dynamics.models.trust import Trust, TrustFeatures, fit_trust, rank_correlation
from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.kinematics import Kinematics
from tests.support.grid import robot
from tests.support.states import fixed_base_state


def test_trust_ranks_errors_and_is_nothing_far_outside():
    model = robot("cartpole")
    generator = torch.Generator().manual_seed(0)
    q, qd, force, *_ = fixed_base_state(model, 8000)
    q[:, 0] = q[:, 0].clamp(-4, 4)
    force[:, 1] = 0
    # Errors that grow with the pole's rate, with as much noise as a real model's have.
    error = 1e-2 * torch.exp(0.5 * qd[:, 1].abs() + 0.5 * torch.randn(len(q), generator=generator))
    contacts = ContactFinder(model, Kinematics(model))(q, torch.zeros(len(q), 3), torch.zeros(len(q), 3))
    features = TrustFeatures(model)(q, qd, force, contacts)
    train = {name: value[:, None] for name, value in (("q", q), ("qd", qd), ("force", force))}
    tensors, judged = fit_trust(model, train, features, error, steps=400)
    assert judged["rank_correlation"] > 0.6
    trust = Trust(model, tensors)
    inside = trust(q, qd, force, contacts)
    # 1 at an error of a hundredth, one half at a tenth, 0 at 1; the network cannot know the noise.
    expected = (-torch.log10(1e-2 * torch.exp(0.5 * qd[:, 1].abs())) / 2).clamp(0, 1)
    assert (inside - expected).abs().median() < 0.05 and inside.min() < 0.2 and inside.max() > 0.9
    assert judged["below_half"] == pytest.approx((expected < 0.5).float().mean().item(), abs=0.1)
    assert rank_correlation(-inside, error) > 0.6
    far = torch.tensor([[0.0, 0.0]]).repeat(3, 1), torch.tensor([[0.0, 1e3], [0.0, 0.0], [0.0, 0.0]])
    push = torch.tensor([[0.0, 0.0], [1e5, 0.0], [0.0, 50.0]])
    assert torch.equal(trust(*far, push, contacts), torch.zeros(3))
    assert trust(torch.tensor([[50.0, 0.0]]), torch.zeros(1, 2), torch.zeros(1, 2), contacts) == 0
    assert trust(torch.tensor([[0.0, 500.0]]), torch.zeros(1, 2), torch.zeros(1, 2), contacts) > 0  # a wound up angle
    limits = trust.healthy_range()
    assert limits[0][0] == pytest.approx(5 * q[:, 0].abs().max().item()) and limits[0][1] >= 1e4
    assert np.isfinite(limits[1].numpy()).all()


def test_rank_correlation():
    a = torch.tensor([3.0, 1.0, 2.0, 10.0])
    assert rank_correlation(a, a.exp()) == pytest.approx(1.0)
    assert rank_correlation(a, -a) == pytest.approx(-1.0)
