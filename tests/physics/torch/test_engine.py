"""The equations of motion in torch, against MuJoCo's, the Warp kernel's and finite differences."""

import copy

import mujoco
import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from nerd_gym import RobotModel
from nerd_gym.physics.torch.engine import Articulated, read_parameters
from tests.support.grid import ROBOTS, ROOT, robot
from tests.support.states import backend_at, fixed_base_state, ground, wide_state

EXAMPLES = ("critter", "three_link_arm")


def model_of(name: str) -> RobotModel:
    return RobotModel.from_mjcf(ROOT / "examples" / f"{name}.xml") if name in EXAMPLES else robot(name)


def random_motion(model: RobotModel, n: int) -> tuple[torch.Tensor, ...]:
    """Any pose, speeds and forces, float64."""
    generator = torch.Generator().manual_seed(0)
    q, qd = (torch.randn(n, size, generator=generator, dtype=torch.float64) for size in (model.nq, model.nv))
    if model.free_base:
        q[:, 3:7] = normalize(q[:, 3:7], dim=-1)
    force = 10 * torch.randn(n, model.nj, generator=generator, dtype=torch.float64)
    return q, 3 * qd, force


def mujoco_accelerations(model: RobotModel, q: torch.Tensor, qd: torch.Tensor, force: torch.Tensor) -> np.ndarray:
    """mj_forward without contacts and limits."""
    free = copy.copy(model.mj_model)
    free.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    data, out = mujoco.MjData(free), []
    for row in range(len(q)):
        data.qpos[:], data.qvel[:] = q[row], qd[row]
        data.qfrc_applied[model.joint_qd] = force[row]
        mujoco.mj_forward(free, data)
        out.append(data.qacc.copy())
    return np.stack(out)


@pytest.mark.parametrize("name", [*ROBOTS, *EXAMPLES])
def test_accelerations_are_mujocos(name):
    """1000 states, by the articulated-body recursion and by the mass matrix."""
    model = model_of(name)
    q, qd, force = random_motion(model, 1000)
    engine = Articulated(
        model, read_parameters(model).but(lower=torch.tensor(-torch.inf), upper=torch.tensor(torch.inf))
    )
    pose = engine.pose(q)
    pull = engine.on_joints(force) + engine.joint_force(q, qd)
    expected = torch.as_tensor(mujoco_accelerations(model, q, qd, force))
    mass, bias = engine.mass_and_bias(pose, qd)
    for qdd in (engine.acceleration(pose, qd, pull), torch.linalg.solve(mass, pull - bias)):
        off = (qdd - expected).abs().amax(-1) / expected.abs().amax(-1)
        assert off.max() < 1e-9, off.max()


@pytest.mark.parametrize("name", ROBOTS)
def test_a_frame_is_the_warp_kernels(name):
    """Over a frame with contacts and limits, for every robot and its own ground."""
    model = robot(name)
    if model.free_base:
        q, qd = wide_state(model, 256)
        force = torch.randn(256, model.nj, generator=torch.Generator().manual_seed(0)) * 10
        plane = ground(model, 256)
    else:
        q, qd, force, *plane = fixed_base_state(model, 256)
    teacher = backend_at("warp", model, q, qd, tuple(plane))
    if model.ground is not None:
        assert (teacher.contacts.distance.amin(-1) < 0).float().mean() > 0.2
    teacher.step(force)
    engine = Articulated(model)
    law = engine.penalty() if model.ground is not None else None
    next_q, next_qd = engine.frame(*(x.double() for x in (q, qd, force)), tuple(x.double() for x in plane), law)
    off = (next_qd - teacher.qd).abs().amax(-1) / (1 + teacher.qd.abs().amax(-1))
    assert off.median() < 1e-5 and off.quantile(0.95) < 2e-4, off.quantile(torch.tensor([0.5, 0.95, 1.0]).double())
    assert (next_q - teacher.q).abs().median() < 1e-6


@pytest.mark.parametrize("name", ["ant", "anymal", "pendulum_contact"])
def test_gradients_are_finite_differences(name):
    """Of 20 substeps in contact by state, force, mass, inertia, friction and stiffness of contact."""
    model, n = robot(name), 3
    parameters = read_parameters(model)
    q, qd, force = standing(model, n)
    plane = tuple(x.double() for x in ground(model, n)) if model.free_base else below(model, q)
    names = ("q", "qd", "force", "mass", "inertia", "contact_gains", "damping")
    start = {"q": q, "qd": qd, "force": force}
    start |= {name: getattr(parameters, name) for name in names if name not in start}
    generator = torch.Generator().manual_seed(1)

    def value(**changed: torch.Tensor) -> torch.Tensor:
        given = start | changed
        own = {name: given[name] for name in names if name not in ("q", "qd", "force")}
        engine = Articulated(model, parameters.but(**own))
        state = given["q"], given["qd"]
        for _ in range(20):
            state = engine.substep(*state, given["force"], 2e-4, plane, engine.penalty())
        return torch.cat(state, -1).mul(weights).sum()

    weights = torch.randn(n, model.nq + model.nv, generator=generator, dtype=torch.float64)
    touching = Articulated(model).contact_force(q, Articulated(model).pose(q), qd, plane, Articulated(model).penalty())
    assert touching.abs().amax(-1).min() > 1  # every robot is in contact
    for name in names:
        x = start[name].clone().requires_grad_()
        (slope,) = torch.autograd.grad(value(**{name: x}), x)
        way = torch.randn(x.shape, generator=generator, dtype=torch.float64) * start[name].abs().clamp(min=0.1)
        h = 3e-5  # where rounding and curvature cost about the same
        ahead, back = (value(**{name: start[name] + sign * h * way}) for sign in (1, -1))
        expected, found = (ahead - back) / (2 * h), (slope * way).sum()
        assert found == pytest.approx(expected.item(), rel=1e-5), name


def standing(model: RobotModel, n: int) -> tuple[torch.Tensor, ...]:
    """A little inside the ground and slipping, so that no contact opens or closes."""
    generator = torch.Generator().manual_seed(2)
    q = torch.as_tensor(model.mj_model.qpos0.copy()).repeat(n, 1)
    qd = 0.3 * torch.randn(n, model.nv, generator=generator, dtype=torch.float64)
    force = 3 * torch.randn(n, model.nj, generator=generator, dtype=torch.float64)
    if model.free_base:
        from nerd_gym.robots.contacts import candidate_places

        lowest = candidate_places(model, q.numpy())[0, :, 2] - model.candidates.radius
        q[:, 2] -= lowest.min() + 0.01
        qd[:, 0] += 0.5
    else:
        q += torch.tensor([0.4, 0.3])
    return q, qd, force


def below(model: RobotModel, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A plane through the lowest point of a fixed base's arm."""
    from nerd_gym.robots.contacts import candidate_places

    height = candidate_places(model, q.numpy())[..., 2] - model.candidates.radius
    point = torch.zeros(len(q), 3, dtype=torch.float64)
    point[:, 2] = torch.as_tensor(height.min(-1)) + 0.01
    return point, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).repeat(len(q), 1)


def test_single_precision_follows():
    model = robot("anymal")
    q, qd, force = random_motion(model, 16)
    double = Articulated(model).frame(q, qd, force)
    single = Articulated(model, read_parameters(model, dtype=torch.float32)).frame(*(x.float() for x in (q, qd, force)))
    assert single[1].dtype == torch.float32
    torch.testing.assert_close(single[1].double(), double[1], rtol=1e-3, atol=1e-3)
