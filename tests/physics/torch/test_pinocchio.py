"""The equations of motion in torch against Pinocchio: accelerations, and their analytical derivatives."""

import numpy as np
import pytest
import torch

from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.robots.links import read_links
from nerd_gym.robots.rotations import quat_exp, quat_multiply, quat_to_matrix
from tests.support.grid import ROBOTS
from tests.support.motions import EXAMPLES, model_of, random_motion

pin = pytest.importorskip("pinocchio", reason="pip install -e '.[test]'")


def converted(model, q, v, tau, acceleration=None):
    """Our q; qd and force from Pinocchio's, whose free base has its linear velocity and force in its own axes."""
    if not model.free_base:
        return (v, tau) if acceleration is None else acceleration
    rotation = quat_to_matrix(q[:, 3:7])

    def turned(matrix, x):
        return torch.cat([(matrix @ x[:, :3, None])[..., 0], x[:, 3:]], -1)

    if acceleration is None:
        return turned(rotation, v), turned(rotation, tau)
    own = turned(rotation.mT, acceleration)
    return torch.cat([own[:, :3] - torch.linalg.cross(v[:, 3:6], v[:, :3]), own[:, 3:]], -1)


def accelerations(model, engine, q, v, tau):
    """Pinocchio's [B, nv], by our recursion."""
    qd, force = converted(model, q, v, tau)
    return converted(model, q, v, tau, engine.acceleration(engine.pose(q), qd, force))


def peer_of(model):
    peer = pin.buildModelFromMJCF(str(model.path))
    peer.gravity.linear = model.mj_model.opt.gravity  # which it does not read
    links = read_links(model)  # MuJoCo's: of capsules it has other inertias
    for l in range(peer.njoints - 1):
        peer.inertias[l + 1] = pin.Inertia(links["mass"][l], links["com"][l], links["inertia"][l])
    return peer


def motion(model, n):
    q, v, force = random_motion(model, n)
    tau = 5 * torch.randn(v.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    tau[:, model.joint_qd] = force
    theirs = q.clone()
    if model.free_base:
        theirs[:, 3:7] = q[:, [4, 5, 6, 3]]  # w last
    return q, v, tau, theirs.numpy()


@pytest.mark.parametrize("name", [*ROBOTS, *EXAMPLES])
def test_accelerations_are_pinocchios(name):
    model = model_of(name)
    peer = peer_of(model)
    assert tuple(peer.names)[-model.nj :] == model.joint_names
    data = peer.createData()
    q, v, tau, theirs = motion(model, 1000)
    expected = np.stack([pin.aba(peer, data, *row) for row in zip(theirs, v.numpy(), tau.numpy(), strict=True)])
    off = (accelerations(model, Articulated(model), q, v, tau) - torch.as_tensor(expected)).abs().amax(-1)
    assert (off / torch.as_tensor(np.abs(expected).max(-1))).max() < 1e-9


@pytest.mark.parametrize("name", [*ROBOTS, *EXAMPLES])
def test_derivatives_are_pinocchios(name):
    """By position, velocity and force, at 20 states."""
    model, n = model_of(name), 20
    peer = peer_of(model)
    data, engine = peer.createData(), Articulated(model)
    q, v, tau, theirs = motion(model, n)

    def of(step, v, tau):
        moved = q + step if not model.free_base else stepped(q, step)
        return accelerations(model, engine, moved, v, tau).sum(0)

    found = torch.autograd.functional.jacobian(of, (torch.zeros_like(v), v, tau))
    for row in range(n):
        pin.computeABADerivatives(peer, data, theirs[row], v[row].numpy(), tau[row].numpy())
        upper = np.triu(data.Minv)
        inverse = upper + upper.T - np.diag(np.diag(upper))
        for slope, expected in zip(found, (data.ddq_dq, data.ddq_dv, inverse), strict=True):
            torch.testing.assert_close(
                slope[:, row], torch.as_tensor(expected), rtol=1e-5, atol=1e-8 * np.abs(expected).max()
            )


def stepped(q, step):
    """Along Pinocchio's directions, to first order: the base moves in its own axes."""
    place = q[:, :3] + (quat_to_matrix(q[:, 3:7]) @ step[:, :3, None])[..., 0]
    return torch.cat([place, quat_multiply(q[:, 3:7], quat_exp(step[:, 3:6])), q[:, 7:] + step[:, 6:]], -1)
