"""The frame kernel: lanes that know nothing of each other, and functions of its own."""

import numpy as np
import pytest
import torch
import warp as wp

from nerd_gym import make_backend
from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.physics.warp.launch import WIDEST, Launcher
from nerd_gym.physics.warp.simd import simd_types
from nerd_gym.physics.warp.spatial import sine_versine
from nerd_gym.physics.warp.tree import Networks, make_params, make_tree, shape_of
from nerd_gym.robots.links import published_inertia_pairing, read_links
from tests.support.grid import robot
from tests.support.states import everyone, fixed_base_state, ground, push, wide_state

Number = simd_types(WIDEST).number


@wp.kernel(enable_backward=False)
def sines(angle: wp.array(dtype=Number), sine: wp.array(dtype=Number), versine: wp.array(dtype=Number)):
    i = wp.tid()
    s, v = sine_versine(angle[i])
    sine[i] = s
    versine[i] = v


def test_sine_and_versine_are_right_to_rounding():
    """Over a thousand turns, and close to zero, where 1 - cos must not lose its digits."""
    rng = np.random.default_rng(0)
    parts = [rng.uniform(-7000, 7000, 40_000), rng.uniform(-4, 4, 40_000), np.geomspace(1e-6, 1, 4000)]
    angle = np.concatenate([*parts, np.arange(-40, 40) * np.pi / 4])
    angle = np.resize(angle, (-(-len(angle) // WIDEST), WIDEST)).astype(np.float32)
    given = wp.array(angle, dtype=Number, device="cpu")
    sine, versine = (wp.zeros(len(angle), dtype=Number, device="cpu") for _ in range(2))
    wp.launch(sines, dim=len(angle), inputs=[given, sine, versine], device="cpu")
    exact = angle.astype(np.float64)
    np.testing.assert_allclose(sine.numpy(), np.sin(exact), rtol=3e-7, atol=1.5e-7)
    np.testing.assert_allclose(versine.numpy(), 2 * np.sin(exact / 2) ** 2, rtol=5e-7, atol=1.5e-7)


def state_of(model, n):
    if not model.free_base:
        q, qd, force, *plane = fixed_base_state(model, n)
        return q, qd, force, tuple(plane)
    return *wide_state(model, n), push(model, n), ground(model, n)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("name", ["pendulum_contact", "ant", "anymal"])
def test_lanes_move_as_one_robot_alone(name, reference):
    """The kernel of width 1, as CUDA runs it, and of eight lanes, for a batch that eight do not divide."""
    model, n = robot(name), 2 * WIDEST + 3
    q, qd, force, plane = state_of(model, n)
    links = read_links(model)
    if reference:
        links["inertia_of"] = published_inertia_pairing(model, links)
    tree = make_tree(links, model, wp.get_device("cpu"))
    ends = []
    for width in (1, WIDEST):
        kernel = frame_kernel(shape_of(model, links), width, published=reference)
        state = [q.clone(), qd.clone(), *(x.clone() for x in plane)]
        constants = [tree, make_params(model, model.substeps), Networks()]
        launcher = Launcher(kernel, width, constants, model.nj, *state, threads=1)
        for _ in range(3):
            launcher(force)
        launcher.close()
        ends.append(torch.cat(state[:2], 1))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["franka", "ant"])
def test_a_wild_robot_does_not_disturb_the_lanes_beside_it(name):
    model, n = robot(name), WIDEST
    q, qd, force, plane = state_of(model, n)
    calm, wild = (make_backend("warp", model, n, threads=1) for _ in range(2))
    calm.reset(everyone(n), q, qd, plane)
    qd = qd.clone()
    qd[3] = 1e20
    wild.reset(everyone(n), q, qd, plane)
    others = [row for row in range(n) if row != 3]
    for _ in range(5):
        calm.step(force)
        wild.step(force)
    assert not wild.healthy[3] and wild.healthy[others].all()
    assert torch.equal(calm.q[others], wild.q[others]) and torch.equal(calm.qd[others], wild.qd[others])
