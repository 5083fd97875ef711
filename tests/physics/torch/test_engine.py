"""The equations of motion in torch."""

import pytest
import torch

from nerd_gym.physics.torch.engine import Articulated
from tests.support.grid import robot
from tests.support.states import backend_at, described_links, fixed_base_state


@pytest.mark.parametrize("name", ["cartpole", "pendulum_contact", "franka"])
def test_articulated_motion_is_the_analytical_backends(name):
    """The twin with the MJCF's inertias and the penalty law is the backend `warp`."""
    model = robot(name)
    q, qd, force, point, normal = fixed_base_state(model, 256)
    ke, kd, kf, mu = model.contact_gains

    def penalty(depth, along, slip):
        push = ke * depth - kd * along.clamp(max=0)
        return push, torch.minimum(torch.full_like(push, kf), mu * push / slip)

    ground = (point, normal)
    teacher = backend_at("warp", model, q, qd, ground)
    if model.ground is not None:
        assert (teacher.contacts.distance.amin(-1) < 0).float().mean() > 0.2
    teacher.step(force)
    law = penalty if model.ground is not None else None
    twin = Articulated(model, described_links(model))
    double = [x.double() for x in (q, qd, force)]
    next_q, next_qd = twin.frame(*double, tuple(x.double() for x in ground), law)
    off = (next_qd - teacher.qd).abs().amax(-1) / (1 + teacher.qd.abs().amax(-1))
    assert off.median() < 2e-6 and off.quantile(0.98) < 2e-4, off.max()
    assert (next_q - teacher.q).abs().median() < 1e-6
