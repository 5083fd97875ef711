"""Forces in the joints of the robots in the lanes of a thread: limits, and what a network has learned."""

from __future__ import annotations

from typing import Any

import warp as wp

from .functions import activate, affine
from .spatial import sine_versine
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
    net: wp.array(dtype=wp.vec4),
    position: Any,
    speed: Any,
    tree: Tree,
    first_joint: int,
    width: int,
    layers: Any,
    blocks: Any,
    wide: Any,
):
    """Forces [L, W] by a joint force network of so many hidden units, packed as force_networks.py has it.

    layers, blocks and wide are the memory of its inputs and hidden layers, as network_force has them.
    """
    links = tree.depth.shape[0]
    joints = links - first_joint
    one = type(layers[0])(1.0)
    none = type(layers[0])(0.0)
    for l in range(first_joint, links):
        k = l - first_joint
        angle = position[l]
        rate = speed[l] / net[k][0]
        if tree.slide[l] == 1:
            layers[4 * k] = angle
            layers[4 * k + 1] = none
        else:
            sine, versine = sine_versine(angle)
            layers[4 * k] = sine
            layers[4 * k + 1] = one - versine
        layers[4 * k + 2] = rate
        layers[4 * k + 3] = wp.cw_div(rate, wp.max(rate, -rate) + 0.1 * one)
    inputs = joints + 1  # blocks of a row
    hidden = width / 4 + 1
    second = inputs + hidden
    layers[4 * inputs - 1] = one
    for i in range(width):
        layers[4 * inputs + i] = affine(net, joints + inputs * i, inputs, blocks, 0)
    activate(layers, wide, inputs, width)
    for i in range(width):
        layers[4 * second + i] = affine(net, joints + inputs * width + hidden * i, hidden, blocks, inputs)
    activate(layers, wide, second, width)
    out = type(position)()
    at = joints + second * width
    for k in range(joints):
        out[k + first_joint] = net[k][1] * affine(net, at + hidden * k, hidden, blocks, second)
    return out
