"""Forces of the ground on a point of the robots in the lanes of a thread: the analytical law, and a learned one."""

from __future__ import annotations

from typing import Any

import warp as wp

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
def silu(x: Any):
    """[W]."""
    out = type(x)()
    for r in range(len(x)):
        out[r] = x[r] / (1.0 + wp.exp(-x[r]))
    return out


@wp.func
def network_force(
    net: wp.array(dtype=wp.float32),
    depth: Any,
    velocity: Any,
    normal: Any,
    width: int,
    inputs: Any,
    first: Any,
    second: Any,
):
    """The same by a contact force network of so many hidden units, packed as force_networks.py has it.

    inputs [6, W], first and second [width, W] are room for its layers.
    """
    along = dot(velocity, normal)
    slide = velocity - scaled(normal, along)
    slip = dot(slide, slide)
    slow = net[2]
    for r in range(len(depth)):
        speed = wp.sqrt(slip[r])
        slip[r] = speed
        inputs[0, r] = depth[r] / net[0]
        inputs[1, r] = wp.max(-along[r], 0.0) / net[1]
        inputs[2, r] = wp.max(along[r], 0.0) / net[1]
        inputs[3, r] = speed / net[1]
        inputs[4, r] = speed / (speed + slow)
        inputs[5, r] = 0.25 * wp.log(1.0 + speed / slow)
    # Every row of a layer is followed by its bias.
    for i in range(width):
        at = 5 + 7 * i
        value = type(depth)(net[at + 6])
        for k in range(6):
            value += net[at + k] * inputs[k]
        first[i] = silu(value)
    for i in range(width):
        at = 5 + 7 * width + (width + 1) * i
        value = type(depth)(net[at + width])
        for k in range(width):
            value += net[at + k] * first[k]
        second[i] = silu(value)
    for i in range(3):
        at = 5 + (8 + width + i) * width + i
        value = type(depth)(net[at + width])
        for k in range(width):
            value += net[at + k] * second[k]
        first[i] = value
    at = 5 + (11 + width) * width + 3
    size = first[0] + type(depth)(net[at + 6])
    for k in range(6):
        size += net[at + k] * inputs[k]
    push = type(depth)()
    drag = type(depth)()
    sharp = net[4]
    for r in range(len(depth)):
        press = wp.where(depth[r] > 0.0, net[3] * wp.max(size[r], 0.0), 0.0)
        grip = wp.exp(first[1, r]) / slow
        z = grip * slip[r]
        large = wp.max(z, 1.0)
        bend = wp.pow(wp.pow(large, -sharp) + wp.pow(z / large, sharp), 1.0 / sharp)
        hold = press * wp.exp(first[2, r]) * grip / (large * bend)
        push[r] = press
        drag[r] = wp.where(depth[r] > 0.0, hold, 0.0)
    return scaled(normal, push) - scaled(slide, drag)
