"""Strikes in MuJoCo: symmetric, repeatable, and what mechanics says of them."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from nerd_gym.collision.scenes.columns import COLUMNS, OUTCOME, draw, ranges
from nerd_gym.collision.scenes.mjcf import scene_model
from nerd_gym.collision.scenes.shapes import DENSITY, HEIGHT, SHAPES, STRIKER_MASS, shape_named
from nerd_gym.collision.scenes.simulate import CollisionSimulator

PARITY = np.array([1, -1, -1, 1, -1, -1, 1])


@pytest.fixture(scope="module", params=list(SHAPES))
def simulator(request):
    return CollisionSimulator(shape_named(request.param), 64, threads=1)


def strikes(simulator, count=64, seed=0, wide=False):
    return draw(simulator.shape, count, np.random.default_rng(seed), wide)


def test_a_mirrored_strike_has_the_mirrored_outcome(simulator):
    pre = strikes(simulator)
    mirror = pre.copy()
    mirror[:, 1:3] *= -1
    np.testing.assert_allclose(simulator(mirror) * PARITY, simulator(pre), atol=1e-7)


def test_an_outcome_depends_on_its_own_row_alone(simulator):
    pre = strikes(simulator)
    whole = simulator(pre)
    np.testing.assert_array_equal(simulator(pre[10:20]), whole[10:20])
    simulator(strikes(simulator, wide=True))  # other cones and time constants do not stay behind
    np.testing.assert_array_equal(simulator(pre), whole)


def test_more_strikes_than_simulations_are_split(simulator):
    pre = strikes(simulator, 150)
    np.testing.assert_array_equal(simulator(pre)[64:128], simulator(pre[64:128]))


def test_a_straight_strike_gives_the_momentum_of_two_masses(simulator):
    """Without friction, in the middle: between no bounce, m2 / (m1 + m2), and a full one, twice that."""
    pre = np.tile([[0.5, 0.0, 0.0, 0.05, 0.1, 0.1, 1.0]], (2, 1))
    pre[1, 5] = 1.2
    bouncing, dull = simulator(pre)
    common = 0.5 * STRIKER_MASS / (STRIKER_MASS + simulator.shape.mass)
    assert 1.5 * common < bouncing[0] < 2 * common and 0.9 * common < dull[0] < 1.2 * common
    np.testing.assert_allclose([bouncing[1:3], dull[1:3]], 0, atol=1e-9)


def test_more_damping_bounces_less(simulator):
    pre = np.tile([[0.5, 0.0, 0.0, 0.3, 0.3, 0.0, 1.0]], (6, 1))
    pre[:, 5] = np.linspace(0.1, 1.1, 6)
    assert (np.diff(simulator(pre)[:, 0]) < 0).all()


def test_a_strike_beside_the_middle_turns_the_block(simulator):
    """On the left of the normal's axis it turns right."""
    reach = simulator.shape.reach
    pre = np.tile([[0.5, 0.5 * reach, 0.0, 0.1, 0.3, 0.3, 1.0]], (2, 1))
    pre[1, 1] *= -1
    left, right = simulator(pre)[:, 2]
    assert abs(left) > 1 and left == pytest.approx(-right)


def test_masses_and_inertias_are_those_of_a_prism():
    """MuJoCo's own, from the mesh; its arc has facets."""
    for shape in SHAPES.values():
        text = " ".join(map(str, scene_model(shape).mesh("prism").vertadr))
        assert text == "0"
        mesh = scene_model(shape)
        spec = mujoco.MjSpec()
        vertices = mesh.mesh_vert.copy()
        spec.add_mesh(name="prism", uservert=vertices.flatten())
        body = spec.worldbody.add_body()
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="prism", density=DENSITY)
        made = spec.compile()
        assert shape.mass == pytest.approx(made.body_mass[1], rel=2e-3)
        np.testing.assert_allclose(sorted(shape.inertia()), sorted(made.body_inertia[1]), rtol=5e-3)
        assert shape.mass == pytest.approx(DENSITY * shape.area * HEIGHT)


def test_the_block_rests_before_a_strike(simulator):
    """Settled on its feet, so that it does not drop or rise during the collision."""
    pre = np.tile([[0.1, 0.0, 0.0, 0.3, 0.3, 1.0, zeta] for zeta in (0.3, 1.5)], (1, 1))
    slow, other = simulator(pre)
    assert slow[0] == pytest.approx(other[0], rel=0.1)


def test_points_and_normals_agree_with_the_gap(simulator):
    shape = simulator.shape
    point = torch.linspace(-shape.reach, shape.reach, 9, dtype=torch.float64)
    place, normal = shape.contact_point(point), shape.normal(point)
    zero = torch.zeros(9, 2, dtype=torch.float64)
    for distance in (0.0, 0.003):
        striker = place - normal * (0.012 + distance)
        gap = shape.striker_gap(zero, zero[:, 0], striker)
        torch.testing.assert_close(gap, torch.full_like(gap, distance), atol=1e-12, rtol=0)


def test_ranges_hold_what_is_drawn():
    for shape in SHAPES.values():
        for wide in (False, True):
            rows, bounds = draw(shape, 1000, np.random.default_rng(0), wide), ranges(shape, wide)
            low, high = np.array(list(bounds.values())).T
            assert ((rows >= low) & (rows <= high)).all()


def test_wrong_columns_are_named(simulator):
    with pytest.raises(ValueError, match=r"shape \(3, 5\).*speed"):
        simulator(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="unknown shape 'cube'; valid: semicylinder, square, triangle"):
        shape_named("cube")
    assert len(COLUMNS) == 7 and len(OUTCOME) == 7
