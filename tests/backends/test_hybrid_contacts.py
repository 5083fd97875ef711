"""`hybrid` for articulated robots: MuJoCo where nothing touches, its teacher's contacts where something does."""

import pytest
import torch

from nerd_gym import make_backend
from nerd_gym.collision.models.contact_model import CONSTRAINT, PENALTY, ContactModel, packaged_contacts
from nerd_gym.physics.warp.constraint_params import ConstraintLaw
from tests.support.grid import LEGGED, ROBOTS, robot
from tests.support.states import backend_at, everyone, push, random_state, wide_state

ROWS = 24


@pytest.mark.parametrize("name", ROBOTS)
def test_frames_without_contact_are_mujocos_to_the_bit(name):
    model = robot(name)
    q, qd = random_state(model, ROWS, height=3.0)
    ground = (torch.tensor([0.0, 0.0, -9.0]).repeat(ROWS, 1), torch.tensor([0.0, 0.0, 1.0]).repeat(ROWS, 1))
    pair = [make_backend(backend, model, ROWS, threads=1) for backend in ("hybrid", "mujoco")]
    for frame in range(6):
        for backend in pair:
            if not frame:
                backend.reset(everyone(ROWS), q, qd, ground if model.ground is not None else None)
            backend.step(0.02 * push(model, ROWS, frame))
        joints, (low, high) = pair[1].q[:, model.joint_q], torch.as_tensor(model.joint_range).unbind(-1)
        assert bool(((joints > low) & (joints < high)).all()), "a joint is at its limit: no frame without contact"
        assert torch.equal(pair[0].q, pair[1].q) and torch.equal(pair[0].qd, pair[1].qd)
    assert not torch.equal(pair[0].q, q)


def errors(name: str, truth_of: str, frames: int, **options) -> tuple[float, float]:
    """Mean error of q after some frames from the ground, of `hybrid` and of the teacher with half its substeps."""
    own = robot(name)
    q, qd = wide_state(own, ROWS, height=-0.45)
    kinds = ((truth_of, {}), ("hybrid", options), (truth_of, {"substeps": own.substeps // 2}))
    truth, hybrid, half = batch = [make_backend(kind, own, ROWS, **given) for kind, given in kinds]
    truth.reset(everyone(ROWS), q, qd)
    q[:, 2] -= truth.contacts.distance.amin(1) + 0.01  # the lowest point is 1 cm inside the ground
    for backend in batch:
        backend.reset(everyone(ROWS), q, qd)
        for frame in range(frames):
            backend.step(push(own, ROWS, frame))
    assert bool(truth.healthy.all()) and bool((truth.contacts.distance < 0).any())
    return tuple(float((backend.q - truth.q).abs().mean()) for backend in (hybrid, half))


@pytest.mark.parametrize("name", LEGGED)
@pytest.mark.parametrize("teacher", ["warp", "mujoco"])
def test_packaged_contacts_err_less_than_half_the_substeps(name, teacher):
    hybrid, half = errors(name, teacher, 5, teacher=teacher)
    assert hybrid < 0.25 * half, (hybrid, half)


@pytest.mark.parametrize("teacher", ["warp", "mujoco"])
def test_with_the_teachers_own_law_it_is_the_teacher(teacher):
    """What separates the two is rounding, and for constraints the sweeps."""
    model = robot("ant")
    own = ContactModel(CONSTRAINT, ConstraintLaw(mu=0.625), limits=CONSTRAINT)
    law = ContactModel(PENALTY, model.contact_gains) if teacher == "warp" else own
    hybrid, half = errors("ant", teacher, 3, model=law)
    assert hybrid < (1e-3 if teacher == "warp" else 0.03) * half, (hybrid, half)


def test_contacts_beyond_the_data_are_flagged_and_not_trusted():
    model = robot("ant")
    q, qd = random_state(model, 2, height=-0.2)
    q[:, 3:7] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    qd[:] = 0.0
    qd[1, 2] = -30.0  # faster than anything that the data have
    backend = backend_at("hybrid", model, q, qd)
    for _ in range(4):
        backend.step(torch.zeros(2, model.nj))
        if bool(backend.info()["out_of_range"][1]):
            break
    assert backend.info()["out_of_range"].tolist() == [False, True]
    assert backend.info()["model_trust"][0] == 1 and backend.info()["model_trust"][1] < 1


def test_what_constraints_keep_comes_back_with_a_snapshot():
    model = robot("ant")
    q, qd = wide_state(model, 6, height=-0.45)
    backend = backend_at("hybrid", model, q, qd, teacher="mujoco")
    for frame in range(3):
        backend.step(push(model, 6, frame))
    kept, ends = backend.snapshot(), []
    for _ in range(2):
        backend.restore(kept)
        backend.step(push(model, 6, 9))
        ends.append((backend.q.clone(), backend.qd.clone()))
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_a_model_of_another_robot_is_refused(tmp_path):
    other = packaged_contacts(robot("anymal"), "warp")
    with pytest.raises(ValueError, match=r"anymal.*ant"):
        make_backend("hybrid", robot("ant"), 1, model=other)
    with pytest.raises(ValueError, match=r"teacher 'neural'; packaged: .*ant-warp"):
        make_backend("hybrid", robot("ant"), 1, teacher="neural")
    with pytest.raises(FileNotFoundError, match="nothing"):
        make_backend("hybrid", robot("ant"), 1, model=tmp_path / "nothing.safetensors")
