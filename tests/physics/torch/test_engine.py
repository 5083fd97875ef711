"""The equations of motion in torch, against MuJoCo's, the Warp kernel's and finite differences."""

import copy

import mujoco
import numpy as np
import pytest
import torch

from nerd_gym import RobotModel
from nerd_gym.physics.torch.contact import hunt_crossley
from nerd_gym.physics.torch.engine import Articulated, read_parameters
from nerd_gym.physics.torch.impulse import Impulses
from nerd_gym.robots.contacts import candidate_places
from tests.support.grid import ROBOTS, robot
from tests.support.motions import EXAMPLES, model_of, random_motion
from tests.support.states import backend_at, fixed_base_state, ground, wide_state


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


GROUPS = (
    "mass",
    "com",
    "inertia",
    "offset",
    "rotation",
    "axis",
    "armature",
    "damping",
    "dry_friction",
    "stiffness",
    "rest",
)
GROUPS += ("limit_gains", "lower", "upper", "gravity", "candidate", "radius")
LAWS = {
    "penalty": lambda engine, gains: engine.penalty(),
    "hunt_crossley": lambda engine, gains: hunt_crossley(gains),
    "impulses": lambda engine, gains: Impulses(*gains, sweeps=4),
}
GAINS = {"penalty": [0.0], "hunt_crossley": [2e4, 1.5, 0.5, 0.6, 0.8, 0.1], "impulses": [0.6, 0.3, 0.2, 1e-3]}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "name, law",
    [
        *(("pendulum_contact", law) for law in LAWS),
        *(("ant", law) for law in ("penalty", "hunt_crossley")),
        slow("ant", "impulses"),
        *(slow("anymal", law) for law in LAWS),
    ],
)
def test_gradients_are_finite_differences(name, law):
    """Of 20 substeps in contact and beyond a limit by state, force, and every group of parameters."""
    model, n = robot(name), 1
    q, qd, force = standing(model, n)
    parameters = read_parameters(model)
    bent = q[0, model.joint_q]
    parameters = parameters.but(  # every joint has a spring, and is beyond its lower limit
        stiffness=torch.full_like(parameters.damping, 3.0),
        damping=torch.full_like(parameters.damping, 0.5),
        lower=bent + 0.2,
        upper=bent + 3.0,
    )
    plane = tuple(x.double() for x in ground(model, n)) if model.free_base else below(model, q)
    start = {"q": q, "qd": qd, "force": force, "gains": torch.tensor(GAINS[law], dtype=torch.float64)}
    start |= {name: getattr(parameters, name) for name in (*GROUPS, "contact_gains")}
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(n, model.nq + model.nv, generator=generator, dtype=torch.float64)

    def value(given: dict[str, torch.Tensor]) -> torch.Tensor:
        own = {name: given[name] for name in (*GROUPS, "contact_gains")}
        engine = Articulated(model, parameters.but(**own))
        state = given["q"], given["qd"]
        for _ in range(20):
            state = engine.substep(*state, given["force"], 2e-4, plane, LAWS[law](engine, given["gains"]))
        return torch.cat(state, -1).mul(weights).sum()

    engine = Articulated(model, parameters)
    points = engine.contact_points(q, engine.pose(q), qd, plane)
    assert (points.depth.amax(-1) > 1e-3).all()  # every robot is in contact
    asked = {name: x.clone().requires_grad_() for name, x in start.items()}
    found = torch.autograd.grad(value(asked), list(asked.values()), allow_unused=True)
    unused = {"penalty": {"gains"}, "hunt_crossley": {"contact_gains"}, "impulses": {"contact_gains"}}[law]
    for (name, x), slope in zip(start.items(), found, strict=True):
        assert (slope is None) == (name in unused), name
        if slope is None:
            continue
        way = torch.randn(x.shape, generator=generator, dtype=torch.float64) * x.abs().clamp(min=0.1)
        h = 3e-5
        with torch.no_grad():
            at = {k: value(start | {name: x + k * h * way}).item() for k in (-2, -1, 1, 2)}
        expected = (8 * (at[1] - at[-1]) - at[2] + at[-2]) / (12 * h)  # right to the fourth order
        assert (slope * way).sum().item() == pytest.approx(expected, rel=1e-5, abs=1e-9), name


@pytest.mark.parametrize(
    "law, count", [("penalty", 10_000), ("hunt_crossley", 10_000), ("impulses", 500), slow("impulses", 10_000)]
)
def test_gradients_are_finite_in_any_contact(law, count):
    """States of Ant, some of them deep in the ground, at rest, or just touching."""
    model = robot("ant")
    q, qd = (x.double() for x in wide_state(model, count))
    qd[::7] = 0.0
    plane = tuple(x.double() for x in ground(model, len(q)))
    height = candidate_places(model, q.numpy())[..., 2] - model.candidates.radius
    q[::5, 2] -= torch.as_tensor(height.min(-1))[::5]  # to the last bit
    engine = Articulated(model)
    assert (engine.contact_points(q, engine.pose(q), qd, plane).depth > 0).any(-1).float().mean() > 0.3
    q.requires_grad_()
    qd.requires_grad_()
    gains = torch.tensor(GAINS[law], dtype=torch.float64, requires_grad=True)
    after = engine.substep(q, qd, torch.zeros(len(q), model.nj).double(), 2e-3, plane, LAWS[law](engine, gains))
    torch.cat(after, -1).sum().backward()
    assert all(x.isfinite().all() for x in (*after, q.grad, qd.grad))
    assert law == "penalty" or gains.grad.isfinite().all()


def standing(model: RobotModel, n: int) -> tuple[torch.Tensor, ...]:
    """A little inside the ground and slipping, so that no contact opens or closes."""
    generator = torch.Generator().manual_seed(2)
    q = torch.as_tensor(model.mj_model.qpos0.copy()).repeat(n, 1)
    qd = 0.3 * torch.randn(n, model.nv, generator=generator, dtype=torch.float64)
    force = 3 * torch.randn(n, model.nj, generator=generator, dtype=torch.float64)
    if model.free_base:
        lowest = candidate_places(model, q.numpy())[0, :, 2] - model.candidates.radius
        q[:, 2] -= lowest.min() + 0.01
        qd[:, 0] += 0.5
    else:
        q -= torch.tensor([0.4, 0.3])  # the far end is the lowest
    return q, qd, force


def below(model: RobotModel, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A plane through the lowest point of a fixed base's arm."""
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
