import mujoco
import numpy as np
import pytest
import torch

from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_rotate, quat_to_matrix
from tests.support.grid import ROBOTS, robot
from tests.support.states import random_state

TREE = """
<mujoco><compiler angle="radian"/><worldbody>
  <body name="shelf" pos="1 2 3" quat="1 1 0 0"><geom size="0.1"/></body>
  <body name="rail" pos="0 0 1" euler="0.1 0.2 0.3">
    <joint type="slide" axis="1 0 0" pos="0.1 0 0"/><joint type="hinge" axis="0 1 1" pos="0.3 0.1 -0.2" ref="0.4"/>
    <geom size="0.1"/>
    <body name="welded" pos="0.5 0 0" quat="0.3 0.1 0.9 0"><geom size="0.1"/>
      <body name="tip" pos="0 0.2 0"><joint axis="1 2 3" pos="0 0 0.4"/><geom size="0.1"/>
        <site name="end" pos="1 1 1"/></body>
    </body>
  </body>
</worldbody></mujoco>"""


def body_poses(model, q):
    """MuJoCo's own."""
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    return data


def check(model: RobotModel, q: torch.Tensor):
    kinematics = Kinematics(model, dtype=torch.float64)
    q = q.double()
    if model.free_base:
        q[:, 3:7] /= q[:, 3:7].norm(dim=-1, keepdim=True)
    poses = kinematics.poses(q)
    for row, state in enumerate(q.numpy()):
        data = body_poses(model.mj_model, state)
        for body in range(1, model.mj_model.nbody):
            pose = poses[row, kinematics.frame_of_body[body]].numpy()
            np.testing.assert_allclose(pose[:3, 3], data.xpos[body], atol=1e-12)
            np.testing.assert_allclose(pose[:3, :3], data.xmat[body].reshape(3, 3), atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_poses_are_mujocos(name):
    check(robot(name), random_state(robot(name), 8)[0])


def test_poses_of_a_tree_with_several_joints_per_body_and_welded_bodies(tmp_path):
    path = tmp_path / "tree.xml"
    path.write_text(TREE)
    model = RobotModel.from_mjcf(path)
    q = torch.randn(8, model.nq, generator=torch.Generator().manual_seed(0))
    check(model, q)
    kinematics = Kinematics(model, dtype=torch.float64)
    end = kinematics.points(kinematics.poses(q.double()), kinematics.site("end"))[:, 0]
    for row in range(8):
        np.testing.assert_allclose(
            end[row], body_poses(model.mj_model, q[row].double().numpy()).site_xpos[0], atol=1e-9
        )
    with pytest.raises(ValueError, match=r"no site 'nose'.*end"):
        kinematics.site("nose")


def test_quaternions():
    generator = torch.Generator().manual_seed(0)
    quat = torch.nn.functional.normalize(torch.randn(64, 4, generator=generator, dtype=torch.float64), dim=-1)
    vector = torch.randn(64, 3, generator=generator, dtype=torch.float64)
    expected = np.zeros((64, 9))
    for row in range(64):
        mujoco.mju_quat2Mat(expected[row], quat[row].numpy())
    matrix = quat_to_matrix(quat)
    np.testing.assert_allclose(matrix.numpy().reshape(64, 9), expected, atol=1e-14)
    torch.testing.assert_close(quat_rotate(quat, vector), (matrix @ vector[..., None])[..., 0])
