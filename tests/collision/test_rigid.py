"""Rigid impact laws: momentum, restitution and friction, for one body and for two."""

from __future__ import annotations

import pytest
import torch

from nerd_gym.collision.models.rigid import RigidLaw
from tests.support.collisions import planar_impacts

PARAMETERS = torch.tensor([[0.6, 0.25], [0.1, 1.2], [1.0, 0.0]])


def outcomes(law, pre, values):
    """[K, N, V] in x and y."""
    relative = law.relative(pre, values)
    return torch.stack([law.from_frame(pre, one * law.scale(pre)) for one in relative])


def contact_velocity(pre, motion, offset):
    arm = pre[:, 7:9] - pre[:, offset + 2 : offset + 4]
    turn = torch.stack([-arm[:, 1], arm[:, 0]], -1)
    return motion[:, :2] + motion[:, 2:] * turn


@pytest.fixture(params=[False, True], ids=["wall", "pair"])
def impacts(request):
    law = RigidLaw(request.param)
    return law, planar_impacts(law, 200)


def test_normal_velocity_changes_sign_times_restitution(impacts):
    law, pre = impacts
    normal = pre[:, 9:11]
    before = contact_velocity(pre, pre[:, 4:7], 0)
    if law.pair:
        before = before - contact_velocity(pre, pre[:, 15:18], 11)
    for values, post in zip(PARAMETERS, outcomes(law, pre, PARAMETERS), strict=True):
        after = contact_velocity(pre, post[:, :3], 0)
        if law.pair:
            after = after - contact_velocity(pre, post[:, 3:], 11)
        ratio = -(after * normal).sum(-1) / (before * normal).sum(-1)
        torch.testing.assert_close(ratio, values[0].expand(len(pre)), atol=2e-3, rtol=0)


def test_momentum_of_a_pair_is_kept():
    law = RigidLaw(True)
    pre = planar_impacts(law, 200)
    for post in outcomes(law, pre, PARAMETERS):
        change = pre[:, :1] * (post[:, :2] - pre[:, 4:6]) + pre[:, 11:12] * (post[:, 3:5] - pre[:, 15:17])
        torch.testing.assert_close(change, torch.zeros_like(change), atol=1e-5, rtol=0)


def test_impulse_stays_in_the_friction_cone_and_acts_at_the_contact(impacts):
    law, pre = impacts
    normal = pre[:, 9:11]
    tangent = torch.stack([-normal[:, 1], normal[:, 0]], -1)
    for values, post in zip(PARAMETERS, outcomes(law, pre, PARAMETERS), strict=True):
        impulse = pre[:, :1] * (post[:, :2] - pre[:, 4:6])
        p_n, p_t = (impulse * normal).sum(-1), (impulse * tangent).sum(-1)
        assert (p_t.abs() <= values[1] * p_n + 1e-5).all() and (p_n > 0).all()
        arm = pre[:, 7:9] - pre[:, 2:4]
        torque = arm[:, 0] * impulse[:, 1] - arm[:, 1] * impulse[:, 0]
        torch.testing.assert_close(pre[:, 1] * (post[:, 2] - pre[:, 6]), torque, atol=1e-5, rtol=1e-3)


def test_a_full_bounce_without_friction_keeps_the_energy(impacts):
    law, pre = impacts
    post = outcomes(law, pre, PARAMETERS)[2]

    def energy(body, motion):
        return 0.5 * body[:, 0] * motion[:, :2].square().sum(-1) + 0.5 * body[:, 1] * motion[:, 2].square()

    before, after = energy(pre, pre[:, 4:7]), energy(pre, post)
    if law.pair:
        before, after = before + energy(pre[:, 11:], pre[:, 15:18]), after + energy(pre[:, 11:], post[:, 3:])
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-6)


def test_a_turned_impact_has_the_turned_outcome(impacts):
    law, pre = impacts
    angle = torch.tensor(0.7)
    rotation = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
    turned = pre.clone()
    for start in (2, 4, 7, 9, *((13, 15) if law.pair else ())):
        turned[:, start : start + 2] = pre[:, start : start + 2] @ rotation.T
    post, other = outcomes(law, pre, PARAMETERS)[0], outcomes(law, turned, PARAMETERS)[0]
    torch.testing.assert_close(other[:, :2], post[:, :2] @ rotation.T, atol=1e-5, rtol=1e-4)


def test_anisotropic_law_with_equal_scales_is_the_isotropic_one(impacts):
    law, pre = impacts
    other = RigidLaw(law.pair, anisotropic=True)
    values = torch.cat([PARAMETERS, torch.ones(3, 3)], -1)
    torch.testing.assert_close(other.relative(pre, values), law.relative(pre, PARAMETERS), atol=1e-5, rtol=1e-4)


def test_a_mass_that_cannot_move_along_y_does_not():
    law = RigidLaw(anisotropic=True)
    pre = planar_impacts(law, 50)
    post = outcomes(law, pre, torch.tensor([[0.5, 0.3, 1.0, 1e6, 1.0]]))[0]
    torch.testing.assert_close(post[:, 1], pre[:, 5], atol=1e-4, rtol=1e-3)
