"""The structured model: its kernel is its torch twin."""

import pytest
import torch
import warp as wp

from nerd_gym.dynamics.models.force_networks import JointForceNet
from nerd_gym.dynamics.models.structured import StructuredModel
from nerd_gym.physics.torch.contact_net import ContactForceNet
from nerd_gym.physics.torch.engine import Articulated, read_parameters
from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.physics.warp.tree import TreeShape
from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.state import Motion
from tests.support.grid import robot
from tests.support.states import fixed_base_state, true_parameters


@pytest.mark.parametrize("with_torque", [False, True])
def test_force_networks_in_the_kernel_are_those_in_torch(with_torque):
    model = robot("pendulum_contact")
    torch.manual_seed(3)
    contact = ContactForceNet(width=8, force=500.0)
    for parameter in contact.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    torque = JointForceNet(model, width=8, rate=torch.tensor([3.0, 5.0]), force=torch.tensor([40.0, 20.0]))
    torch.nn.init.normal_(torque.last.weight)
    tensors = {"parameters": true_parameters(model)}
    tensors |= {f"contact.{k}": v.detach() for k, v in contact.state_dict().items()}
    if with_torque:
        tensors |= {f"torque.{k}": v.detach() for k, v in torque.state_dict().items()}
    facts = {"kind": "structured", "substeps": model.substeps}
    student = StructuredModel(model, tensors, facts)
    q, qd, force, point, normal = fixed_base_state(model, 200)
    contacts = ContactFinder(model, Kinematics(model))(q, point, normal)
    result = student.predict(Motion(q, qd), force, contacts)
    twin = Articulated(model, read_parameters(model, student.inertias.links()))
    double = [x.double() for x in (q, qd, force)]
    networks = {"contact_law": contact.double(), "joint_law": torque.double() if with_torque else None}
    with torch.no_grad():
        next_q, next_qd = twin.frame(*double, (point.double(), normal.double()), **networks)
    off = (next_qd - result.qd).abs().amax(-1) / (1 + next_qd.abs().amax(-1))
    assert off.median() < 1e-6 and off.quantile(0.98) < 1e-4, off.max()
    assert (next_q - result.q).abs().median() < 1e-6
    again = student.predict(Motion(q, qd), force, contacts)
    assert torch.equal(again.q, result.q) and torch.equal(again.qd, result.qd)


def test_learned_kernels_compile_to_ptx(tmp_path):
    kernel = frame_kernel(TreeShape((-1, 0), 4, False), 1, 32, 32)
    wp.compile_aot_module(kernel.module, device=None, arch=86, module_dir=tmp_path, use_ptx=True)
    [ptx] = list(tmp_path.rglob("*.ptx"))
    assert kernel.key in ptx.read_text()
