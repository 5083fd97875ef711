"""The structured model: its torch twin is its kernel, its laws are learned, its trust is calibrated."""

import numpy as np
import pytest
import torch
import warp as wp

from nerd_gym.data.dataset import DatasetPlan, generate
from nerd_gym.data.reader import Data
from nerd_gym.dynamics.models.force_networks import ContactForceNet, JointForceNet
from nerd_gym.dynamics.models.structured import StructuredModel
from nerd_gym.dynamics.models.trust import Trust, TrustFeatures, fit_trust, rank_correlation
from nerd_gym.dynamics.training.structured import draw, inside_limits, train_structured
from nerd_gym.dynamics.training.train import Settings
from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.links import read_links
from nerd_gym.robots.state import Motion
from tests.conftest import backend_at, robot
from tests.dynamics.test_identify import true_parameters


def states(model, n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q, qd = (torch.randn(n, model.nj, generator=generator) * k for k in (1.0, 3.0))
    force = torch.as_tensor(model.force_limit, dtype=torch.float32) * torch.randn(n, model.nj, generator=generator) / 3
    normal = torch.nn.functional.normalize(torch.randn(n, 3, generator=generator), dim=-1)
    distance = 1.5 * torch.rand(n, 1, generator=generator)
    point = torch.tensor([0.0, -1.0, 2.0]) - distance * normal
    return q, qd, force, point, normal


def described_links(model):
    m = model.mj_model
    return read_links(model) | {"armature": m.dof_armature, "damping": m.dof_damping}


@pytest.mark.parametrize("name", ["cartpole", "pendulum_contact", "franka"])
def test_articulated_motion_is_the_analytical_backends(name):
    """The twin with the MJCF's inertias and the penalty law is the backend `warp`."""
    model = robot(name)
    q, qd, force, point, normal = states(model, 256)
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


@pytest.mark.parametrize("with_torque", [False, True])
def test_laws_in_the_kernel_are_laws_in_torch(with_torque):
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
    q, qd, force, point, normal = states(model, 200)
    contacts = ContactFinder(model, Kinematics(model))(q, point, normal)
    result = student.predict(Motion(q, qd), force, contacts)
    twin = Articulated(model, student.inertias.links())
    double = [x.double() for x in (q, qd, force)]
    laws = {"contact_law": contact.double(), "joint_law": torque.double() if with_torque else None}
    with torch.no_grad():
        next_q, next_qd = twin.frame(*double, (point.double(), normal.double()), **laws)
    off = (next_qd - result.qd).abs().amax(-1) / (1 + next_qd.abs().amax(-1))
    assert off.median() < 1e-6 and off.quantile(0.98) < 1e-4, off.max()
    assert (next_q - result.q).abs().median() < 1e-6
    again = student.predict(Motion(q, qd), force, contacts)
    assert torch.equal(again.q, result.q) and torch.equal(again.qd, result.qd)


def test_learned_kernels_compile_to_ptx(tmp_path):
    kernel = frame_kernel(2, 2, 4, False, 32, 32)
    wp.compile_aot_module(kernel.module, device=None, arch=86, module_dir=tmp_path, use_ptx=True)
    [ptx] = list(tmp_path.rglob("*.ptx"))
    assert kernel.key in ptx.read_text()


def made_up_data(model, law, trajectories=128, frames=30):
    """Trajectories of the robot's own motion with a torque law that its MJCF does not know."""
    twin = Articulated(model, described_links(model))
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(trajectories, model.nj, generator=generator).double()
    qd = 3 * torch.randn(trajectories, model.nj, generator=generator).double()
    rows = {"q": [q], "qd": [qd], "force": []}
    hold = torch.as_tensor(model.force_limit) * torch.randn(trajectories, model.nj, generator=generator).double() / 20
    for frame in range(frames):
        force = hold if frame % 10 < 5 else -hold
        q, qd = twin.frame(q, qd, force, joint_force_net=law)
        for name, value in (("q", q), ("qd", qd), ("force", force)):
            rows[name].append(value)
    arrays = {name: torch.stack(values, 1).float() for name, values in rows.items()}
    ground = {name: torch.zeros(trajectories, 3) for name in ("ground_point", "ground_normal")}
    cut = trajectories - 16
    train, held = ({k: v[part] for k, v in (arrays | ground).items()} for part in (slice(cut), slice(cut, None)))
    return Data(model, train, held, {})


@pytest.mark.slow
def test_a_torque_law_learns_what_nobody_described(tmp_path):
    """A teacher with friction and a cable's spring on its pole: inertias alone are wrong, the law makes up for it."""
    model = robot("cartpole")

    def friction(q, qd):
        return torch.stack([-60 * torch.tanh(3 * qd[:, 0]), -2 * torch.tanh(4 * qd[:, 1]) - 3 * torch.sin(q[:, 1])], -1)

    data = made_up_data(model, friction)
    settings = Settings(steps=250, batch=256, transitions=800)
    errors = {}
    for residual in ("off", "auto"):
        choice = Settings(**vars(settings) | {"residual": residual})
        tensors, _ = train_structured(data, choice, tmp_path / "x.checkpoint", {})
        assert any(key.startswith("torque.") for key in tensors) == (residual == "auto")
        student = StructuredModel(model, tensors, {"substeps": model.substeps})
        motion = Motion(data.held["q"][:, 0].clone(), data.held["qd"][:, 0].clone())
        ground = torch.zeros(16, 3)
        for frame in range(30):
            contacts = ContactFinder(model, Kinematics(model))(motion.q, ground, ground)
            motion = student.predict(motion, data.held["force"][:, frame], contacts)
        errors[residual] = (motion.q - data.held["q"][:, 30]).abs().mean().item()
    assert errors["auto"] < 0.4 * errors["off"], errors


def test_a_teacher_with_other_joint_limits_teaches_its_inertias(tmp_path):
    """MuJoCo's limits are no springs; frames that reach them must not bend the inertias."""
    path, model = tmp_path / "data.h5", robot("cartpole")
    generate(DatasetPlan(model, "mujoco", 20_000, frames=40), path)
    data = Data.load(path, model)
    settings = Settings(transitions=2000, force_net="off")
    assert not inside_limits(model, draw(data.train, None, 2000, torch.Generator().manual_seed(0))).all()
    _, learned = train_structured(data, settings, tmp_path / "x.checkpoint", {})
    assert learned["residual"] < 1e-4


def test_trust_ranks_errors_and_is_nothing_far_outside():
    model = robot("cartpole")
    generator = torch.Generator().manual_seed(0)
    q, qd, force, *_ = states(model, 8000)
    q[:, 0] = q[:, 0].clamp(-4, 4)
    force[:, 1] = 0
    # Errors that grow with the pole's rate, with as much noise as a real model's have.
    error = 1e-2 * torch.exp(0.5 * qd[:, 1].abs() + 0.5 * torch.randn(len(q), generator=generator))
    contacts = ContactFinder(model, Kinematics(model))(q, torch.zeros(len(q), 3), torch.zeros(len(q), 3))
    features = TrustFeatures(model)(q, qd, force, contacts)
    train = {name: value[:, None] for name, value in (("q", q), ("qd", qd), ("force", force))}
    tensors, judged = fit_trust(model, train, features, error, steps=400)
    assert judged["rank_correlation"] > 0.6
    trust = Trust(model, tensors)
    inside = trust(q, qd, force, contacts)
    # 1 at an error of a hundredth, one half at a tenth, 0 at 1; the network cannot know the noise.
    expected = (-torch.log10(1e-2 * torch.exp(0.5 * qd[:, 1].abs())) / 2).clamp(0, 1)
    assert (inside - expected).abs().median() < 0.05 and inside.min() < 0.2 and inside.max() > 0.9
    assert judged["below_half"] == pytest.approx((expected < 0.5).float().mean().item(), abs=0.1)
    assert rank_correlation(-inside, error) > 0.6
    far = torch.tensor([[0.0, 0.0]]).repeat(3, 1), torch.tensor([[0.0, 1e3], [0.0, 0.0], [0.0, 0.0]])
    push = torch.tensor([[0.0, 0.0], [1e5, 0.0], [0.0, 50.0]])
    assert torch.equal(trust(*far, push, contacts), torch.zeros(3))
    assert trust(torch.tensor([[50.0, 0.0]]), torch.zeros(1, 2), torch.zeros(1, 2), contacts) == 0
    assert trust(torch.tensor([[0.0, 500.0]]), torch.zeros(1, 2), torch.zeros(1, 2), contacts) > 0  # a wound up angle
    limits = trust.healthy_range()
    assert limits[0][0] == pytest.approx(5 * q[:, 0].abs().max().item()) and limits[0][1] >= 1e4
    assert np.isfinite(limits[1].numpy()).all()


def test_rank_correlation():
    a = torch.tensor([3.0, 1.0, 2.0, 10.0])
    assert rank_correlation(a, a.exp()) == pytest.approx(1.0)
    assert rank_correlation(a, -a) == pytest.approx(-1.0)
