"""Links of a robot: one per joint, with the inertias that MuJoCo compiles."""

import mujoco
import numpy as np
import pytest

from nerd_gym.robots.links import read_links
from tests.support.grid import ROBOTS, robot


@pytest.mark.parametrize("name", ROBOTS)
def test_links_have_the_inertias_of_their_bodies(name):
    model = robot(name)
    links, m = read_links(model), model.mj_model
    bodies = m.jnt_bodyid
    np.testing.assert_allclose(links["mass"], m.body_mass[bodies], rtol=1e-6)
    np.testing.assert_allclose(links["com"], m.body_ipos[bodies], atol=1e-6)
    for l, body in enumerate(bodies):
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, m.body_iquat[body])
        rotation = rotation.reshape(3, 3)
        np.testing.assert_allclose(
            links["inertia"][l], rotation @ np.diag(m.body_inertia[body]) @ rotation.T, rtol=2e-5, atol=2e-6
        )
