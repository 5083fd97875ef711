"""Regressors against MuJoCo's inverse dynamics."""

import numpy as np
import pytest
import torch

from nerd_gym.physics.torch.regressor import FreeRegressor, Regressor
from tests.support.grid import FIXED, LEGGED, robot
from tests.support.states import inverse_dynamics, true_parameters


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_bases_regressor_gives_mujocos_inverse_dynamics(name):
    model = robot(name)
    generator = torch.Generator().manual_seed(0)
    q, qd, qdd = (2 * torch.randn(16, model.nj, generator=generator, dtype=torch.float64) for _ in range(3))
    bias, unit = Regressor(model)(q, qd)
    force = (bias + torch.einsum("bk,bkjp->bjp", qdd, unit)) @ true_parameters(model)
    np.testing.assert_allclose(force, inverse_dynamics(model, q, qd, qdd), rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("name", LEGGED)
def test_a_free_bases_regressor_gives_mujocos_inverse_dynamics(name):
    model = robot(name)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(16, model.nq, generator=generator, dtype=torch.float64)
    q[:, 3:7] = torch.nn.functional.normalize(q[:, 3:7], dim=-1)
    qd, qdd = (2 * torch.randn(16, model.nv, generator=generator, dtype=torch.float64) for _ in range(2))
    regressor, p = FreeRegressor(model), true_parameters(model)
    force = regressor(q, qd, qdd) @ p
    still = regressor(q, qd, torch.zeros_like(qdd)) @ p
    mass = regressor.mass(regressor.motion(q, qd, qdd), p)
    torch.testing.assert_close((mass @ qdd[..., None])[..., 0], force - still)
    np.testing.assert_allclose(force, inverse_dynamics(model, q, qd, qdd), rtol=1e-4, atol=1e-3)


def test_a_free_base_is_refused():
    with pytest.raises(ValueError, match="ant has a free base"):
        Regressor(robot("ant"))
