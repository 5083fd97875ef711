"""Inertial parameters and contact gains of robots with a free base, from data."""

import numpy as np
import pytest
import torch

from nerd_gym.backends.warp import WarpBackend
from nerd_gym.dynamics.identify.contact_law import fit_contact_gains
from nerd_gym.dynamics.identify.free_base import identify_free
from nerd_gym.dynamics.identify.pairing import swaps
from nerd_gym.dynamics.models.inertias import Inertias
from nerd_gym.physics.torch.regressor import Regressor
from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.links import published_inertia_pairing, read_links
from nerd_gym.robots.model import RobotModel
from tests.support.grid import robot
from tests.support.states import everyone, random_state, true_parameters


def mass_matrices(model, parameters, n=64):
    """[n, nv, nv] over random configurations."""
    q = random_state(model, n, seed=5)[0].double()
    regressor, still = Regressor(model), torch.zeros(n, model.nv, dtype=q.dtype)
    return regressor.mass(regressor.moving(q, still), parameters)


def frames_of(teacher, forces, q, qd):
    """One frame of a teacher from given states, over its ground."""
    teacher.reset(everyone(len(q)), q, qd)
    ground = {name: getattr(teacher, name).clone() for name in ("ground_point", "ground_normal")}
    teacher.step(forces)
    return {"q": q, "qd": qd, "force": forces, "next_q": teacher.q.clone(), "next_qd": teacher.qd.clone()} | ground


def random_forces(model, n, share=0.5):
    force = torch.as_tensor(model.force_limit, dtype=torch.float32)
    return share * force * (2 * torch.rand(n, model.nj, generator=torch.Generator().manual_seed(1)) - 1)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ant", {'mass="31.65': 'mass="20.65', 'pos="0.1 0.1 0" mass="7.83': 'pos="0.1 0.1 0" mass="3.83'}),
        ("anymal", {'mass="27.99': 'mass="40.99', 'pos="0.0562497973 -0.0115': 'pos="0.0962497973 -0.0515'}),
    ],
)
def test_inertias_follow_the_data(name, changes, tmp_path):
    """The teacher's masses, armature and damping change, the description does not."""
    model = robot(name)
    text = model.path.read_text()
    for old, new in (changes | {' armature="0.0': ' damping="0.3" armature="0.1'}).items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / f"{name}.xml"
    path.write_text(text)
    teacher_model = RobotModel.from_mjcf(path)
    q, qd = random_state(model, 300, speed=8.0, height=3.0)
    inertias = identify_free(
        model, frames_of(WarpBackend(teacher_model, 300, threads=1), random_forces(model, 300), q, qd)
    )
    true, described = (mass_matrices(model, true_parameters(x)) for x in (teacher_model, model))
    found = mass_matrices(model, inertias.parameters)
    off, wrong = ((x - true).norm(dim=(1, 2)) / true.norm(dim=(1, 2)) for x in (found, described))
    assert inertias.residual < 1e-3 and off.max() < 1e-3 < 0.1 < wrong.min(), (inertias.residual, off, wrong)
    links = inertias.links()
    assert links["mass"].min() > 0 and torch.linalg.eigvalsh(found).min() > 0
    assert len(links["armature"]) == len(links["damping"]) == model.nj
    np.testing.assert_allclose(links["mass"].sum(), teacher_model.mj_model.body_mass.sum(), rtol=1e-3)
    np.testing.assert_allclose(links["damping"], 0.3, atol=0.03)


def test_a_mass_matrix_with_inertias_of_other_links_is_found():
    """The published simulator carries the inertia of the leg diagonally opposite; data tell, and right data do not."""
    model, n = robot("anymal"), 300
    q, qd = random_state(model, n, speed=1.0, height=3.0)
    forces = random_forces(model, n, 0.2)
    right, published = (
        identify_free(model, frames_of(WarpBackend(model, n, reference=reference, threads=1), forces, q, qd))
        for reference in (False, True)
    )
    assert right.inertia_of is None and right.residual < 1e-3
    np.testing.assert_array_equal(published.inertia_of, published_inertia_pairing(model, read_links(model)))
    assert published.residual < 0.1
    np.testing.assert_array_equal(published.links()["inertia_of"], published.inertia_of)


def test_every_way_to_swap_four_legs_is_tried_once():
    found = {tuple(order.tolist()) for order in swaps(robot("anymal"))}
    assert len(found) == len(list(swaps(robot("anymal")))) == 9  # six with two legs, three with all four
    assert all(order[0] == 0 and [order[l] for l in order] == list(range(13)) for order in found)
    assert (0, 4, 5, 6, 1, 2, 3, 7, 8, 9, 10, 11, 12) in found


@pytest.mark.parametrize("gains", [(2e4, 200.0, 300.0, 0.3), (1e5, 1000.0, 550.0, 1.2)])
@pytest.mark.parametrize("name", ["ant", "anymal"])
def test_contact_gains_follow_the_data(name, gains):
    """Gains at which the teacher's substeps suffice: where contacts chatter (ANYmal, kf 1000) the fit is lost."""
    model, n = robot(name), 600
    backend = WarpBackend(model, n, threads=1)

    def advance(gains, frames):
        backend.change_params(**dict(zip(("ke", "kd", "kf", "mu"), map(float, gains), strict=True)))
        return frames_of(backend, frames["force"], frames["q"], frames["qd"])["next_qd"]

    q, qd = random_state(model, n, speed=4.0)
    q[:, 3:7] = torch.as_tensor(model.mj_model.qpos0[3:7])
    find = ContactFinder(model, Kinematics(model))
    backend.reset(everyone(n), q, qd)
    depth = 0.02 * torch.rand(n, generator=torch.Generator().manual_seed(2)) - 0.005
    q[:, 2] -= find(q, backend.ground_point, backend.ground_normal).distance.amin(-1) + depth
    frames = {"q": q, "qd": qd, "force": random_forces(model, n)}
    frames["next_qd"] = advance(gains, frames)
    inertias = Inertias(model, true_parameters(model))
    found = fit_contact_gains(model, inertias.links(), frames, advance)
    np.testing.assert_allclose(found, gains, rtol=0.01)
