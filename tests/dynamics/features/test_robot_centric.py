"""Motion relative to the robot."""

import pytest
import torch

from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.state import Motion
from tests.support.grid import ROBOTS, robot
from tests.support.models import trajectories


@pytest.mark.parametrize("name", ROBOTS)
def test_advance_inverts_relative_motion(name):
    frames = RobotCentric(Kinematics(robot(name)))
    batch = trajectories(name)
    now, after = (Motion(batch["q"][:, t], batch["qd"][:, t]) for t in (3, 4))
    q, qd = frames.advance(now, *frames.relative_motion(now, after))
    torch.testing.assert_close(qd, after.qd, atol=2e-5, rtol=1e-5)
    if robot(name).free_base:
        q[:, 3:7] *= torch.sign((q[:, 3:7] * after.q[:, 3:7]).sum(1, keepdim=True))
    torch.testing.assert_close(q, after.q, atol=2e-6, rtol=1e-5)
