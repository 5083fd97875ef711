"""Forces of contacts and limits alone: against the engine in torch, and against MuJoCo's own constraints."""

import copy

import mujoco
import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from nerd_gym.collision.models.contact_forces import ContactForces
from nerd_gym.collision.models.contact_model import CONSTRAINT, NETWORK, PENALTY, ContactModel
from nerd_gym.physics.torch.contact_net import ContactForceNet
from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.physics.warp.constraint_params import ConstraintLaw
from tests.support.grid import LEGGED, robot
from tests.support.states import wide_state

ROWS = 65  # the last thread has one row


def states(name: str, height: float = -0.5):
    """In the ground and beyond limits; a fixed base over a plane through its first link."""
    model = robot(name)
    q, qd = wide_state(model, ROWS, height=height)
    if model.free_base:
        q[:, 2] += torch.linspace(0.0, 0.5, ROWS)  # some touch nothing
    point, normal = torch.zeros(ROWS, 3), normalize(torch.tensor([0.1, -0.2, 1.0]), dim=0).repeat(ROWS, 1)
    if not model.free_base:
        point[:, 2] = 2.0
    return model, q, qd, (point, normal)


def forces_at(model, law: ContactModel, q, qd, ground, times: int = 1) -> ContactForces:
    forces = ContactForces(model, law, len(q), model.substeps, threads=1)
    forces.q.copy_(q)
    forces.qd.copy_(qd)
    forces.point.copy_(ground[0])
    forces.normal.copy_(ground[1])
    for _ in range(times):
        forces()
    forces.close()
    return forces


@pytest.mark.parametrize("name", [*LEGGED, "pendulum_contact"])
@pytest.mark.parametrize("kind", [PENALTY, NETWORK])
def test_local_laws_give_the_engines_forces(name, kind):
    model, q, qd, ground = states(name)
    engine = Articulated(model)
    if kind == NETWORK:
        torch.manual_seed(0)
        network = ContactForceNet(8, depth=0.2, speed=3.0, slow=0.1, force=500.0)
        torch.nn.init.normal_(network.last.weight, std=0.3)
        law, model_of_law = network.double(), ContactModel(NETWORK, network=copy.deepcopy(network).float())
    else:
        law, model_of_law = engine.penalty(), ContactModel(PENALTY, model.contact_gains)
    given = q.double(), engine.pose(q.double()), qd.double(), (ground[0].double(), ground[1].double())
    with torch.no_grad():
        contact = engine.contact_force(*given, law)
    inert = engine.parameters.but(damping=0 * engine.parameters.damping, stiffness=0 * engine.parameters.stiffness)
    expected = contact + Articulated(model, inert).joint_force(q.double(), qd.double())
    found = forces_at(model, model_of_law, q, qd, ground).force.double()
    touching = contact.abs().amax(1) > 0
    assert int(touching.sum()) > 10 and (not model.free_base or int(touching.sum()) < ROWS)
    assert torch.equal(found[expected.abs().amax(1) == 0], 0 * found[expected.abs().amax(1) == 0])
    off = (found - expected).abs().amax(1) / expected.abs().amax(1).clamp(min=1.0)
    assert off.max() < 2e-4, off.max()


@pytest.mark.parametrize("name", LEGGED)
def test_constraints_give_mujocos_forces(name):
    """At random states, with MuJoCo's parameters, after enough sweeps."""
    model, q, qd, _ = states(name)
    ground = torch.zeros(ROWS, 3), torch.tensor([0.0, 0.0, 1.0]).repeat(ROWS, 1)
    law = ContactModel(CONSTRAINT, ConstraintLaw(mu=float(model.mj_model.geom_friction[0, 0])), limits=CONSTRAINT)
    found = forces_at(model, law, q, qd, ground, times=40).force.double()
    m = copy.copy(model.mj_model)
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
    data, expected = mujoco.MjData(m), []
    for row in range(ROWS):
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = q[row], qd[row], 0
        mujoco.mj_forward(m, data)
        expected.append(data.qfrc_constraint.copy())
    expected = torch.as_tensor(np.stack(expected))
    size = expected.abs().amax(1)
    assert int((size > 0).sum()) > 20 and torch.equal(found[size == 0], torch.zeros_like(found[size == 0]))
    off = (found - expected).abs().amax(1) / size.clamp(min=1.0)
    assert off.median() < 1e-4 and off.quantile(0.9) < 1e-2, (off.median(), off.quantile(0.9))


def test_reach_counts_depths_and_speeds_over_the_span():
    model, q, qd, ground = states("ant")
    law = ContactModel(PENALTY, model.contact_gains, span=(0.01, 1e6))
    reached = forces_at(model, law, q, qd, ground).reached
    engine = Articulated(model)
    points = engine.contact_points(q.double(), engine.pose(q.double()), qd.double(), [x.double() for x in ground])
    expected = points.depth.amax(1).clamp(min=0.0) / 0.01
    assert torch.allclose(reached.double(), expected, rtol=1e-4, atol=1e-4)


def test_a_row_does_not_depend_on_its_neighbours():
    """Other rows of the thread touch the ground, or do not."""
    model, q, qd, ground = states("anymal")
    law = ContactModel(CONSTRAINT, ConstraintLaw(), limits=CONSTRAINT)
    together = forces_at(model, law, q, qd, ground, times=3).force
    row = 12
    alone = forces_at(model, law, *(x[row : row + 1] for x in (q, qd)), [x[row : row + 1] for x in ground], times=3)
    assert torch.equal(together[row], alone.force[0])
