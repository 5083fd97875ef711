"""States in Newton's conventions."""

import mujoco
import newton
import numpy as np

from nerd_gym.physics.warp.newton_state import from_newton, to_newton
from tests.support.grid import robot
from tests.support.states import random_state


def test_velocity_conversion_of_a_base_whose_com_is_off_its_origin():
    """To Newton's convention and back, against Newton's own kinematics and MuJoCo's own velocities."""
    model, n = robot("anymal"), 32
    q, qd = random_state(model, n, speed=6.0, height=5.0)
    joint_q, joint_qd = to_newton(model, q, qd)
    back_q, back_qd = from_newton(model, joint_q, joint_qd)
    assert (back_q - q).abs().max() < 1e-5 and (back_qd - qd).abs().max() < 1e-5
    builder = newton.ModelBuilder(up_axis=newton.Axis.Z)
    builder.add_mjcf(str(model.path), parse_visuals=False, parse_sites=False)
    newton_model = builder.finalize(device="cpu")
    state = newton_model.state()
    data = mujoco.MjData(model.mj_model)
    velocity = np.zeros(6)
    for row in range(n):
        state.joint_q.assign(joint_q[row].numpy())
        state.joint_qd.assign(joint_qd[row].numpy())
        newton.eval_fk(newton_model, state.joint_q, state.joint_qd, state)
        data.qpos[:], data.qvel[:] = q[row].numpy(), qd[row].numpy()
        mujoco.mj_forward(model.mj_model, data)
        # mjOBJ_BODY is the body's inertial frame: its centre of mass.
        mujoco.mj_objectVelocity(model.mj_model, data, mujoco.mjtObj.mjOBJ_BODY, 1, velocity, 0)
        np.testing.assert_allclose(state.body_qd.numpy()[0], [*velocity[3:], *velocity[:3]], atol=1e-5)
