"""The QP: its cost is that of the motion it plans, and its solution is the best one within the limits."""

import sys

import numpy as np
import pytest
from scipy.optimize import nnls

from nerd_gym.control.srb_mpc import GRAVITY, MpcConfig, Problem, SrbMpc

MASS, INERTIA = 50.0, np.diag([3.5, 9.0, 8.0])
EXACT = MpcConfig(tolerance=1e-9, iterations=20_000)
FEET = np.array([[0.4, 0.25, -0.5], [0.4, -0.25, -0.5], [-0.4, 0.25, -0.5], [-0.4, -0.25, -0.5]])


def problem(seed: int, trots: bool = True, noise: float = 0.1) -> Problem:
    """A trot whose state is off the reference."""
    rng = np.random.default_rng(seed)
    steps = MpcConfig().steps
    state = np.zeros(12)
    state[5] = 0.58
    reference = np.tile(state, (steps, 1))
    reference[:, 9] = 0.5
    first = np.arange(steps)[:, None] < steps // 2
    stance = (first == [True, False, False, True]) if trots else np.ones((steps, 4), bool)
    arms = FEET + noise * rng.normal(size=(steps, 4, 3))
    return Problem(state + noise * rng.normal(size=12), reference, arms, stance)


def planned_cost(mpc: SrbMpc, p: Problem, u: np.ndarray) -> float:
    """Half the cost of forces in weights, by carrying the body through the steps."""
    c = mpc.config
    pose, rate, cost = p.state[:6].copy(), p.state[6:].copy(), c.effort * u @ u
    weights = np.array([*c.pose_weights, *c.rate_weights])
    for arms, force, wanted in zip(p.arms, MASS * GRAVITY * u.reshape(-1, 4, 3), p.reference):
        angular = np.linalg.solve(INERTIA, np.cross(arms, force).sum(0))
        acceleration = np.concatenate([angular, force.sum(0) / MASS - [0, 0, GRAVITY]])
        pose += c.dt * rate + c.dt**2 / 2 * acceleration
        rate += c.dt * acceleration
        cost += weights @ (np.concatenate([pose, rate]) - wanted) ** 2
    return cost / 2


def test_the_cost_is_that_of_the_planned_motion():
    mpc, p, rng = SrbMpc(MASS, INERTIA), problem(0), np.random.default_rng(1)
    matrix, vector = mpc.cost(p)
    one, two = rng.normal(size=(2, len(vector)))
    by_matrix = [u @ matrix @ u / 2 + vector @ u for u in (one, two)]
    by_motion = [planned_cost(mpc, p, u) for u in (one, two)]
    assert by_matrix[0] - by_matrix[1] == pytest.approx(by_motion[0] - by_motion[1], rel=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_solution_satisfies_the_optimality_conditions(seed):
    """The cost's gradient is a sum of the active limits' normals, none of which pulls."""
    mpc, p = SrbMpc(MASS, INERTIA, EXACT), problem(seed)
    u = mpc.solve(p).ravel() / mpc.weight
    matrix, vector = mpc.cost(p)
    cone, upper = mpc.cone.toarray(), mpc.upper(p.stance)
    rows = cone @ u
    assert rows.min() > -1e-6 and (rows - upper).max() < 1e-6
    normals = np.concatenate([cone[rows < 1e-5], -cone[rows > upper - 1e-5]])
    gradient = matrix @ u + vector
    _, residual = nnls(normals.T, gradient)
    assert residual < 1e-5 * np.linalg.norm(vector)


def test_limits_hold_where_they_bind():
    mpc, p = SrbMpc(MASS, INERTIA), problem(0)
    p.state[5], p.state[9] = 0.3, -2.0  # far too low and too slow
    force = mpc.solve(p) / mpc.weight
    normal, tangent = force[..., 2], np.abs(force[..., :2]).max(-1)
    assert not force[~p.stance].any()
    assert normal.max() == pytest.approx(mpc.config.limit, abs=1e-3)
    assert (tangent - mpc.config.friction * normal).max() == pytest.approx(0, abs=1e-3)


def test_standing_feet_share_the_weight():
    force = SrbMpc(MASS, INERTIA).solve(problem(0, trots=False, noise=0)._replace(reference=standing()))[0]
    np.testing.assert_allclose(force, np.tile([0, 0, MASS * GRAVITY / 4], (4, 1)), atol=2.5)


def standing() -> np.ndarray:
    reference = np.zeros((MpcConfig().steps, 12))
    reference[:, 5] = 0.58
    return reference


def test_a_solution_depends_on_what_came_before_within_the_tolerance_alone():
    mpc = SrbMpc(MASS, INERTIA, EXACT)
    first = mpc.solve(problem(1))
    mpc.solve(problem(2))
    np.testing.assert_allclose(mpc.solve(problem(1)), first, atol=0.05)
    mpc.forget([0])
    np.testing.assert_array_equal(mpc.solve(problem(1)), first)


def test_without_osqp_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "osqp", None)
    with pytest.raises(ImportError, match=r"this needs osqp, not installed: pip install 'nerd-gym\[mpc\]'"):
        SrbMpc(MASS, INERTIA)
