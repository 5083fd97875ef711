"""A residual model is its prior and its network: what is left of one without the other."""

import pytest
import torch

from nerd_gym.dynamics.models.free_fall import ConstantVelocity, FreeFall
from nerd_gym.dynamics.models.frozen_pose_prior import FrozenPosePrior
from nerd_gym.dynamics.models.mlp import MlpModel
from nerd_gym.dynamics.models.residual import ResidualModel
from nerd_gym.robots.state import Motion
from tests.support.grid import ROBOTS, robot
from tests.support.models import situation
from tests.support.states import true_prior

LEGGED = ("ant", "anymal")
CASES = [
    *((ConstantVelocity, MlpModel, name, {"free_fall_prior": False}) for name in ROBOTS),
    *((FreeFall, MlpModel, name, {"free_fall_prior": True}) for name in LEGGED),
    *((FrozenPosePrior, ResidualModel, name, {"pose_updates": 2}) for name in LEGGED),
]


def silent(cls: type[ResidualModel], name: str, facts: dict) -> ResidualModel:
    """A model whose network gives nothing."""
    tensors = true_prior(robot(name)) if cls is ResidualModel else {}
    model = cls(robot(name), tensors, facts | {"network": {"width": 16, "depth": 2}})
    torch.nn.init.zeros_(model.module[-1].weight)
    torch.nn.init.zeros_(model.module[-1].bias)
    return model


@pytest.mark.parametrize(("prior", "cls", "name", "facts"), CASES)
def test_without_its_network_a_model_is_its_prior(prior, cls, name, facts):
    model = silent(cls, name, facts)
    assert type(model.prior) is prior
    state, force, plane = situation(model.robot, 64)
    contacts = model.find_contacts(state.q, *plane)
    expected = model.prior.expect(state, force, contacts)
    found = model.predict(state, force, contacts, None)
    for a, b in zip(found, model.robot_centric.advance(state, expected.step, expected.change), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_fixed_base_keeps_its_velocity_and_a_free_one_falls(name):
    model = silent(MlpModel, name, MlpModel.new_facts(robot(name)))
    state, force, plane = situation(model.robot, 64)
    after = model.predict(state, force, model.find_contacts(state.q, *plane), None)
    joints = model.robot.joint_qd
    torch.testing.assert_close(after.qd[:, joints], state.qd[:, joints])
    assert (after.q[:, model.robot.joint_q] - state.q[:, model.robot.joint_q]).abs().max() > 1e-3
    assert isinstance(model.prior, FreeFall) == model.robot.free_base
    if model.robot.free_base:
        fall = torch.tensor(model.robot.mj_model.opt.gravity * model.robot.frame_dt, dtype=torch.float32)
        torch.testing.assert_close(after.qd[:, :3] - state.qd[:, :3], fall.expand(64, 3), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("prior", "cls", "name", "facts"), CASES)
def test_groups_of_inputs_follow_each_other_without_gaps(prior, cls, name, facts):
    model = silent(cls, name, facts)
    ends = 0
    for columns in model.input_groups().values():
        assert columns.start == ends and columns.stop >= columns.start
        ends = columns.stop
    state, force, plane = situation(model.robot, 8)
    inputs = model.network_inputs(state, force, model.find_contacts(state.q, *plane))
    assert inputs.shape == (8, ends)


@pytest.mark.parametrize(("prior", "cls", "name", "facts"), CASES)
def test_kernels_gate_the_output_as_training_does(prior, cls, name, facts):
    """In flight, at rest, and among random states; with no prior there is no gate."""
    model = silent(cls, name, facts)
    state, force, plane = situation(model.robot, 32)
    still = Motion(state.q.clone(), torch.zeros_like(state.qd))
    if model.robot.free_base:
        still.q[:, 2] += 5.0
    for motion, pushed in ((state, force), (still, torch.zeros_like(force))):
        encoded = model.fused.encode(motion, pushed, model.find_contacts(motion.q, *plane))
        gate = model.output_gate(encoded.inputs)
        if prior is ConstantVelocity:
            assert gate.shape == () and gate == 1
        else:
            torch.testing.assert_close(encoded.gate[:, None], gate, atol=1e-4, rtol=1e-3)
