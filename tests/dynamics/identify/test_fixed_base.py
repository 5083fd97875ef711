"""Inertial parameters from data, and nothing of them from the MJCF."""

import pytest
import torch

from nerd_gym.backends import make_backend
from nerd_gym.backends.warp import WarpBackend
from nerd_gym.data.excitation import Sampler, ranges_for
from nerd_gym.dynamics.identify.fixed_base import Identification
from nerd_gym.dynamics.models.checkpoint import save_model
from nerd_gym.robots.model import RobotModel
from tests.support.grid import robot
from tests.support.states import everyone


def transitions(teacher_model, n, seed=0, frames=4):
    """Random frames of a teacher: q, qd, force, next q, next qd."""
    teacher = WarpBackend(teacher_model, n)
    sampler = Sampler(teacher, ranges_for(teacher_model, "wide"), seed, 0)
    sampler.start()
    forces, rows = sampler.forces(frames), []
    for frame in range(frames):
        before = teacher.q.clone(), teacher.qd.clone(), forces.at(frame, teacher.q, teacher.qd)
        teacher.step(before[2])
        rows.append((*before, teacher.q.clone(), teacher.qd.clone()))
    return [torch.cat(column) for column in zip(*rows, strict=True)]


def rollout_error(teacher, students, n=128, frames=100, seed=7):
    """Median over starts of the mean joint error after `frames` frames under random forces."""
    sampler = Sampler(teacher, ranges_for(teacher.robot, "wide"), seed, 0)
    sampler.start()
    for student in students:
        student.reset(everyone(n), teacher.q, teacher.qd)
    forces = sampler.forces(frames)
    for frame in range(frames):
        force = forces.at(frame, teacher.q, teacher.qd)
        for backend in (teacher, *students):
            backend.step(force)
    return [(student.q - teacher.q).abs().mean(-1).median().item() for student in students]


def learned_backend(inertias, n, path):
    model = inertias.robot
    facts = {
        "kind": "structured",
        "robot": model.name,
        "teacher": "warp",
        "robot_hash": model.hash,
        "frame_dt": model.frame_dt,
        "substeps": model.substeps,
    }
    save_model(path, {"parameters": inertias.parameters}, facts)
    return make_backend("neural", model, n, model=path)


@pytest.mark.parametrize(("name", "rank"), [("cartpole", 6), ("franka", 51)])
def test_learned_inertias_beat_the_teacher_with_half_its_substeps(name, rank, tmp_path):
    """1000 frames of data; 51 for the arm: 44 of 77 inertias and armatures, and 7 dampings."""
    model = robot(name)
    inertias = Identification(model).fit(*transitions(model, 250))
    assert inertias.rank == rank and inertias.residual < 1e-4
    coarse = WarpBackend(model, 128, substeps=model.substeps // 2)
    student = learned_backend(inertias, 128, tmp_path / "x.safetensors")
    learned, half = rollout_error(WarpBackend(model, 128), [student, coarse])
    assert learned < 2e-3 and learned < 0.05 * half, (learned, half)


def test_nothing_is_taken_from_the_mjcf_inertias(tmp_path):
    """The teacher's masses change, the description does not: the model follows the teacher."""
    model = robot("cartpole")
    path = tmp_path / "cartpole.xml"
    text = model.path.read_text()
    path.write_text(text.replace('mass="50"', 'mass="31"').replace('mass="2.5"', 'mass="6"'))
    teacher_model = RobotModel.from_mjcf(path)
    assert teacher_model.hash != model.hash
    inertias = Identification(model).fit(*transitions(teacher_model, 250))
    described = WarpBackend(model, 128)
    student = learned_backend(inertias, 128, tmp_path / "x.safetensors")
    learned, wrong = rollout_error(WarpBackend(teacher_model, 128), [student, described])
    assert learned < 2e-3 and wrong > 0.1, (learned, wrong)


def test_a_free_base_is_refused():
    with pytest.raises(ValueError, match="ant has a free base"):
        Identification(robot("ant"))
