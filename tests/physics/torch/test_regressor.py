"""The regressor against MuJoCo's inverse dynamics."""

import numpy as np
import pytest
import torch

from nerd_gym.physics.torch.regressor import Regressor
from tests.support.grid import ROBOTS, robot
from tests.support.states import inverse_dynamics, true_parameters


@pytest.mark.parametrize("name", ROBOTS)
def test_the_regressor_gives_mujocos_inverse_dynamics(name):
    model = robot(name)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(16, model.nq, generator=generator, dtype=torch.float64)
    if model.free_base:
        q[:, 3:7] = torch.nn.functional.normalize(q[:, 3:7], dim=-1)
    qd, qdd = (2 * torch.randn(16, model.nv, generator=generator, dtype=torch.float64) for _ in range(2))
    regressor, p = Regressor(model), true_parameters(model)
    force = regressor(q, qd, qdd) @ p
    still = regressor(q, qd, torch.zeros_like(qdd)) @ p
    mass = regressor.mass(regressor.moving(q, qd), p)
    torch.testing.assert_close((mass @ qdd[..., None])[..., 0], force - still)
    np.testing.assert_allclose(force, inverse_dynamics(model, q, qd, qdd), rtol=1e-9, atol=1e-9)
