"""Functions of numbers in lanes against numpy's, in double precision."""

import numpy as np
import pytest
import torch
import warp as wp

from nerd_gym.physics.torch.contact_net import ContactForceNet
from nerd_gym.physics.warp.contact import network_force
from nerd_gym.physics.warp.functions import exponential, logarithm, network_blocks, power
from nerd_gym.physics.warp.simd import rows, simd_types, views

WIDTH, UNITS = 8, 10  # hidden units that four does not divide
Number, Vector, _, _ = simd_types(WIDTH)
FOURS = network_blocks(6, UNITS)
SIZE = 4 * FOURS
Room = rows(SIZE, WIDTH)
numbers, blocks = views(Number, WIDTH), views(rows(4, WIDTH), WIDTH)
wides = views(wp.types.vector(4 * WIDTH, wp.float32), WIDTH)


@wp.kernel(enable_backward=False)
def functions(x: wp.array(dtype=Number), e: wp.array(dtype=Number), l: wp.array(dtype=Number)):
    i = wp.tid()
    e[i] = exponential(x[i])
    l[i] = logarithm(x[i])


@wp.kernel(enable_backward=False)
def powers(x: wp.array(dtype=Number), exponent: float, out: wp.array(dtype=Number)):
    i = wp.tid()
    out[i] = power(x[i], exponent)


@wp.kernel(enable_backward=False)
def contacts(
    net: wp.array(dtype=wp.vec4),
    depth: wp.array(dtype=Number),
    velocity: wp.array(dtype=Vector),
    force: wp.array(dtype=Vector),
):
    i = wp.tid()
    room = Room()
    at = wp.address_of(room)
    normal = Vector()
    normal[2] = Number(1.0)
    force[i] = network_force(
        net, depth[i], velocity[i], normal, UNITS, numbers(at, 0, SIZE), blocks(at, 0, FOURS), wides(at, 0, FOURS)
    )


def in_lanes(x: np.ndarray) -> wp.array:
    return wp.array(x.astype(np.float32).reshape(-1, WIDTH), dtype=Number, device="cpu")


def computed(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    given = in_lanes(x)
    out = [wp.zeros(len(given), dtype=Number, device="cpu") for _ in range(2)]
    wp.launch(functions, dim=len(given), inputs=[given, *out], device="cpu")
    e, l = (array.numpy().ravel() for array in out)
    return e, l


def test_exponential_and_logarithm_are_right_to_rounding():
    rng = np.random.default_rng(0)
    x = rng.uniform(-86, 87, 80_000).astype(np.float32)
    np.testing.assert_allclose(computed(x)[0], np.exp(x.astype(float)), rtol=3e-7)
    small = np.linspace(-1e-3, 1e-3, 8000).astype(np.float32)
    np.testing.assert_allclose(computed(small)[0], np.exp(small.astype(float)), rtol=1.5e-7)
    y = np.concatenate([np.exp(rng.uniform(-80, 80, 80_000)), 1 + np.linspace(-1e-3, 1e-3, 8000)]).astype(np.float32)
    np.testing.assert_allclose(computed(y)[1], np.log(y.astype(float)), rtol=3e-7, atol=1e-9)


def test_beyond_their_range_they_end_and_what_is_no_number_stays_none():
    e, l = computed(np.array([np.nan, np.inf, -np.inf, 1e9, -1e9, 0.0, 1.0, 2.0]))
    assert np.isnan(e[0]) and np.isnan(l[0])
    assert np.isfinite(e[1:]).all() and e[1] == e[3] > 1e38 and e[2] == e[4] < 1e-37
    assert e[5] == 1.0 and l[6] == 0.0 and l[5] < -87  # the logarithm of 0 is that of the smallest normal number


@pytest.mark.parametrize("exponent", [-3.0, 0.4, 2.5])
def test_powers(exponent):
    x = np.exp(np.linspace(-8, 8, 8000)).astype(np.float32)
    given = in_lanes(x)
    out = wp.zeros(len(given), dtype=Number, device="cpu")
    wp.launch(powers, dim=len(given), inputs=[given, exponent, out], device="cpu")
    np.testing.assert_allclose(out.numpy().ravel(), x.astype(float) ** exponent, rtol=5e-6)


def test_a_contact_network_of_any_width_gives_what_torch_gives():
    torch.manual_seed(0)
    net = ContactForceNet(UNITS)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    depth = 0.1 * torch.rand(64) - 0.02
    velocity = torch.randn(64, 3)
    slide = velocity * torch.tensor([1.0, 1.0, 0.0])
    with torch.no_grad():
        push, drag = net(depth.clamp(min=0.0), velocity[:, 2], slide.norm(dim=-1))
    expected = torch.where(depth[:, None] > 0, push[:, None] * torch.tensor([0.0, 0.0, 1.0]) - drag[:, None] * slide, 0)
    packed = wp.array(net.packed().numpy(), dtype=wp.vec4, device="cpu")
    lanes = velocity.view(-1, WIDTH, 3).transpose(1, 2).contiguous()
    given = [in_lanes(depth.numpy()), wp.array(lanes.numpy(), dtype=Vector, device="cpu")]
    force = wp.zeros(len(lanes), dtype=Vector, device="cpu")
    wp.launch(contacts, dim=len(lanes), inputs=[packed, *given, force], device="cpu")
    found = torch.from_numpy(force.numpy()).transpose(1, 2).reshape(-1, 3)
    assert (depth > 0).any() and (depth <= 0).any()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2)
