"""Forces of the ground on a point of the robots in the lanes of a thread: the analytical law, and a learned one."""

from __future__ import annotations

from typing import Any

import warp as wp

from .functions import activate, affine, exponential, logarithm, power
from .simd import SMALLEST, dot, scaled
from .tree import PhysicsParams


@wp.func
def penalty_force(depth: Any, velocity: Any, normal: Any, physics: PhysicsParams):
    """Force [3, W] on a point that is `depth` [W] inside the ground; none where the depth is not positive."""
    along = dot(velocity, normal)
    slip = velocity - scaled(normal, along)
    speed = dot(slip, slip)
    push = type(depth)()
    hold = type(depth)()
    r = wp.int32(0)
    while r < len(depth):
        press = physics.ke * depth[r] - physics.kd * wp.min(along[r], 0.0)
        press = wp.where(depth[r] > 0.0, press, 0.0)
        size = wp.sqrt(speed[r])
        # Huber: the smoothed slip |vt|^2 / 2 (|vt| - 1/2 above 1 m/s) stands where Coulomb has |vt|.
        smooth = wp.where(size <= 1.0, 0.5 * size * size, size - 0.5)
        size = wp.where(physics.huber == 1, smooth, size)
        push[r] = press
        drag = wp.min(physics.kf, physics.mu * press / wp.max(size, SMALLEST))
        hold[r] = wp.where(depth[r] > 0.0, drag, 0.0)
        r += 1
    return scaled(normal, push) - scaled(slip, hold)


@wp.func
def network_force(
    net: wp.array(dtype=wp.vec4),
    depth: Any,
    velocity: Any,
    normal: Any,
    width: int,
    layers: Any,
    blocks: Any,
    wide: Any,
):
    """The same by a contact force network of so many hidden units, packed as contact_net.py has it.

    layers are the numbers of its inputs and hidden layers, each with zeros and a 1 after it; blocks and wide are the
    same memory in fours, as matrices [4, W] and as vectors [4 W].
    """
    along = dot(velocity, normal)
    slide = velocity - scaled(normal, along)
    slip = dot(slide, slide)
    scales = net[0]
    slow = scales[2]
    one = type(depth)(1.0)
    none = type(depth)(0.0)
    r = wp.int32(0)
    while r < len(slip):
        slip[r] = wp.sqrt(slip[r])
        r += 1
    layers[0] = depth / scales[0]
    layers[1] = wp.max(-along, none) / scales[1]
    layers[2] = wp.max(along, none) / scales[1]
    layers[3] = slip / scales[1]
    layers[4] = wp.cw_div(slip, slip + type(depth)(slow))
    layers[5] = 0.25 * logarithm(one + slip / slow)
    layers[7] = one
    hidden = width / 4 + 1  # blocks of a row
    for i in range(width):
        layers[8 + i] = affine(net, 2 + 2 * i, 2, blocks, 0)
    activate(layers, wide, 2, width)
    for i in range(width):
        layers[8 + 4 * hidden + i] = affine(net, 2 + 2 * width + hidden * i, hidden, blocks, 2)
    activate(layers, wide, 2 + hidden, width)
    at = 2 + (2 + hidden) * width
    size = affine(net, at, hidden, blocks, 2 + hidden)
    log_grip = affine(net, at + hidden, hidden, blocks, 2 + hidden)
    log_cap = affine(net, at + 2 * hidden, hidden, blocks, 2 + hidden)
    size = size + affine(net, at + 3 * hidden, 2, blocks, 0)
    # Friction saturates with slip: z / (1 + z^p)^(1/p) by powers of numbers up to 1, so that none overflows.
    sharp = net[1][0]
    grip = exponential(log_grip) / slow
    z = wp.cw_mul(grip, slip)
    large = wp.max(z, one)
    bend = power(power(large, -sharp) + power(wp.cw_div(z, large), sharp), 1.0 / sharp)
    hold = wp.cw_div(wp.cw_mul(exponential(log_cap), grip), wp.cw_mul(large, bend))
    push = scales[3] * wp.max(size, none)
    r = wp.int32(0)
    while r < len(depth):
        push[r] = wp.where(depth[r] > 0.0, push[r], 0.0)
        hold[r] = wp.where(depth[r] > 0.0, hold[r], 0.0)
        r += 1
    return scaled(normal, push) - scaled(slide, wp.cw_mul(push, hold))


@wp.func
def furthest(depth: wp.float32, speed: wp.float32, span: wp.vec2, before: wp.float32):
    """The largest part that a contact has had of the depths and speeds that a law is known for."""
    if depth > 0.0:
        return wp.max(before, wp.max(depth / span[0], speed / span[1]))
    return before
