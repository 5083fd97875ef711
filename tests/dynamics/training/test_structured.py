"""Training of structured models."""

import pytest
import torch

from nerd_gym.data.dataset import DatasetPlan, generate
from nerd_gym.data.reader import Data
from nerd_gym.dynamics.models.structured import StructuredModel
from nerd_gym.dynamics.training.structured import draw, inside_limits, train_structured
from nerd_gym.dynamics.training.train import Settings
from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.state import Motion
from tests.support.grid import robot


def made_up_data(model, law, trajectories=128, frames=30):
    """Trajectories of the robot's own motion under joint forces that its MJCF does not know."""
    twin = Articulated(model)
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(trajectories, model.nj, generator=generator).double()
    qd = 3 * torch.randn(trajectories, model.nj, generator=generator).double()
    rows = {"q": [q], "qd": [qd], "force": []}
    hold = torch.as_tensor(model.force_limit) * torch.randn(trajectories, model.nj, generator=generator).double() / 20
    for frame in range(frames):
        force = hold if frame % 10 < 5 else -hold
        q, qd = twin.frame(q, qd, force, joint_law=law)
        for name, value in (("q", q), ("qd", qd), ("force", force)):
            rows[name].append(value)
    arrays = {name: torch.stack(values, 1).float() for name, values in rows.items()}
    ground = {name: torch.zeros(trajectories, 3) for name in ("ground_point", "ground_normal")}
    cut = trajectories - 16
    train, held = ({k: v[part] for k, v in (arrays | ground).items()} for part in (slice(cut), slice(cut, None)))
    return Data(model, train, held, {})


@pytest.mark.slow
def test_a_joint_force_network_learns_what_nobody_described(tmp_path):
    """A teacher with friction and a cable's spring on its pole: inertias alone are wrong, the network corrects them."""
    model = robot("cartpole")

    def friction(q, qd):
        return torch.stack([-60 * torch.tanh(3 * qd[:, 0]), -2 * torch.tanh(4 * qd[:, 1]) - 3 * torch.sin(q[:, 1])], -1)

    data = made_up_data(model, friction)
    settings = Settings(steps=250, batch=256, transitions=800)
    errors = {}
    for force_net in ("off", "auto"):
        choice = Settings(**vars(settings) | {"force_net": force_net})
        tensors, _ = train_structured(data, choice, tmp_path / "x.checkpoint", {})
        assert any(key.startswith("torque.") for key in tensors) == (force_net == "auto")
        student = StructuredModel(model, tensors, {"substeps": model.substeps})
        motion = Motion(data.held["q"][:, 0].clone(), data.held["qd"][:, 0].clone())
        ground = torch.zeros(16, 3)
        for frame in range(30):
            contacts = ContactFinder(model, Kinematics(model))(motion.q, ground, ground)
            motion = student.predict(motion, data.held["force"][:, frame], contacts)
        errors[force_net] = (motion.q - data.held["q"][:, 30]).abs().mean().item()
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
