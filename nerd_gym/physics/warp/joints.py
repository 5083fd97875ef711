"""Forces in the joints of the robots in the lanes of a thread: limits, and what a network has learned."""

from __future__ import annotations

from typing import Any

import warp as wp

from .contact import silu
from .tree import PhysicsParams, Tree


@wp.func
def limit_torque(position: Any, rate: Any, lower: float, upper: float, physics: PhysicsParams):
    """Of the springs at a joint's limits, [W]."""
    out = type(position)()
    r = wp.int32(0)
    while r < len(position):
        past = wp.min(position[r] - lower, 0.0) + wp.max(position[r] - upper, 0.0)
        out[r] = wp.where(past != 0.0, -physics.limit_ke * past - physics.limit_kd * rate[r], 0.0)
        r += 1
    return out


@wp.func
def network_torques(
    net: wp.array(dtype=wp.float32),
    position: Any,
    speed: Any,
    tree: Tree,
    first_joint: int,
    width: int,
    inputs: Any,
    first: Any,
    second: Any,
):
    """Forces [L, W] by a joint force network of so many hidden units, packed as force_networks.py has it.

    inputs [4 joints, W], first and second [width, W] are room for its layers.
    """
    links = tree.depth.shape[0]
    joints = links - first_joint
    for l in range(first_joint, links):
        k = 4 * (l - first_joint)
        for r in range(len(first[0])):
            angle = position[l, r]
            slides = tree.slide[l] == 1
            inputs[k, r] = wp.where(slides, angle, wp.sin(angle))
            inputs[k + 1, r] = wp.where(slides, 0.0, wp.cos(angle))
            rate = speed[l, r] / net[l - first_joint]
            inputs[k + 2, r] = rate
            inputs[k + 3, r] = rate / (wp.abs(rate) + 0.1)
    size = 4 * joints
    for i in range(width):
        at = 2 * joints + (size + 1) * i
        value = type(first[0])(net[at + size])
        for j in range(size):
            value += net[at + j] * inputs[j]
        first[i] = silu(value)
    for i in range(width):
        at = 2 * joints + width * (size + 1) + (width + 1) * i
        value = type(first[0])(net[at + width])
        for j in range(width):
            value += net[at + j] * first[j]
        second[i] = silu(value)
    out = type(position)()
    for row in range(joints):
        at = 2 * joints + width * (size + width + 2) + (width + 1) * row
        value = type(first[0])(net[at + width])
        for j in range(width):
            value += net[at + j] * second[j]
        out[row + first_joint] = net[joints + row] * value
    return out
