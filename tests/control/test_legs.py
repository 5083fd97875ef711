"""Jacobians and weights of Anymal's legs against finite differences, and its inertia against MuJoCo's."""

import mujoco
import numpy as np
import pytest
import torch

from nerd_gym.control.gait import FEET
from nerd_gym.control.legs import Legs
from nerd_gym.robots.model import RobotModel

STEP = 1e-2  # rad


@pytest.fixture(scope="module")
def legs():
    return Legs(RobotModel.named("anymal"), FEET)


def differences(legs: Legs, joints: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, 12, 4, 3] of the feet and [N, 12, 3] of the centre of mass, for each joint."""
    moved = [[legs(joints + sign * STEP * row) for sign in (1, -1)] for row in torch.eye(12)]
    return tuple(
        torch.stack([getattr(up, name) - getattr(down, name) for up, down in moved], 1) / (2 * STEP)
        for name in ("foot", "com")
    )


def test_jacobian_and_weight_are_derivatives(legs):
    joints = 0.6 * torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    state = legs(joints)
    feet, com = differences(legs, joints)
    own = torch.zeros(5, 12, 4, 3)
    for leg in range(4):
        own[:, 3 * leg : 3 * leg + 3, leg] = state.jacobian[:, leg].mT
    torch.testing.assert_close(feet, own, atol=2e-4, rtol=0)
    torch.testing.assert_close(legs.mass * com, state.moment.flatten(1, 2), atol=5e-3, rtol=0)


def test_inertia_is_that_of_mujocos_mass_matrix(legs):
    m, joints = legs.robot.mj_model, np.linspace(-0.5, 0.7, 12)
    data = mujoco.MjData(m)
    data.qpos[:7], data.qpos[7:] = (0, 0, 0, 1, 0, 0, 0), joints
    mujoco.mj_forward(m, data)
    com = data.subtree_com[1]
    spatial = np.zeros((6, 6))
    for k in range(6):
        unit, column = np.zeros(m.nv), np.zeros(m.nv)
        unit[k] = 1
        mujoco.mj_mulM(m, data, column, unit)
        spatial[:, k] = column[:6]
    about_origin = spatial[3:, 3:]
    shift = legs.mass * (com @ com * np.eye(3) - np.outer(com, com))
    np.testing.assert_allclose(legs.inertia(joints), about_origin - shift, atol=1e-9)
