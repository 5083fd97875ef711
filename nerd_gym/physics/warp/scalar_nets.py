"""Small networks on joint forces and on contact forces inside the frame kernel: what an augmented engine adds.

Both are two hidden layers, with everything that scales signals and scalars folded into the weights. Rows are packed in
blocks of four, as functions.py reads them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import warp as wp

from .contact import penalty_force
from .functions import affine, blocks_for, exponential
from .simd import SMALLEST, dot, scaled
from .tree import PhysicsParams, Tree

KINDS = {"elu": 0, "tanh": 1, "silu": 2}
STICTION = wp.constant(0.01)  # m/s, as augmented/models/model.py has it


class ScalarNet(NamedTuple):
    """The hidden layers of a network in the frame kernel."""

    first: int
    second: int
    kind: int  # of its activation, of KINDS

    def blocks(self, inputs: int) -> int:
        """Blocks of four numbers that its inputs and hidden layers take."""
        return blocks_for(inputs) + blocks_for(self.first) + blocks_for(self.second)

    @property
    def key(self) -> str:
        """For names of kernels."""
        return f"{self.first}_{self.second}_{self.kind}"


@wp.func
def activated(x: Any, kind: int):
    """[W] of one unit."""
    one = type(x)(1.0)
    if kind == 0:
        return wp.max(x, type(x)(0.0)) + exponential(wp.min(x, type(x)(0.0))) - one
    if kind == 1:
        # Beyond 9 the hyperbolic tangent is 1 in float32, and its exponential would overflow.
        e = exponential(2.0 * wp.min(wp.max(x, type(x)(-9.0)), type(x)(9.0)))
        return wp.cw_div(e - one, e + one)
    return wp.cw_div(x, one + exponential(-x))


@wp.func
def hidden_layers(
    net: wp.array(dtype=wp.vec4), inputs: int, first: int, second: int, kind: int, layers: Any, blocks: Any
):
    """Fill both hidden layers from `inputs` blocks that are set; gives the block in which the second begins."""
    begin = inputs + first / 4 + 1
    for i in range(first):
        layers[4 * inputs + i] = activated(affine(net, inputs * i, inputs, blocks, 0), kind)
    layers[4 * begin - 1] = type(layers[0])(1.0)
    at = inputs * first
    size = first / 4 + 1
    for i in range(second):
        layers[4 * begin + i] = activated(affine(net, at + size * i, size, blocks, inputs), kind)
    layers[4 * (begin + second / 4 + 1) - 1] = type(layers[0])(1.0)
    return begin


@wp.func
def scalar_torques(
    net: wp.array(dtype=wp.vec4),
    position: Any,
    speed: Any,
    tree: Tree,
    first_joint: int,
    first: int,
    second: int,
    kind: int,
    layers: Any,
    blocks: Any,
):
    """Forces [L, W] on the joints from all angles, counted from where the MJCF draws them, and all rates."""
    links = tree.depth.shape[0]
    joints = links - first_joint
    for l in range(first_joint, links):
        layers[l - first_joint] = position[l]
        layers[joints + l - first_joint] = speed[l]
    inputs = 2 * joints / 4 + 1
    layers[4 * inputs - 1] = type(layers[0])(1.0)
    begin = hidden_layers(net, inputs, first, second, kind, layers, blocks)
    size = second / 4 + 1
    at = inputs * first + (first / 4 + 1) * second
    out = type(position)()
    for k in range(joints):
        out[k + first_joint] = affine(net, at + size * k, size, blocks, begin)
    return out


@wp.func
def scalar_contact(
    net: wp.array(dtype=wp.vec4),
    depth: Any,
    velocity: Any,
    normal: Any,
    physics: PhysicsParams,
    first: int,
    second: int,
    kind: int,
    layers: Any,
    blocks: Any,
):
    """The penalty law's force [3, W] with what a network adds to normal force and friction."""
    along = dot(velocity, normal)
    slide = velocity - scaled(normal, along)
    slip = dot(slide, slide)
    r = wp.int32(0)
    while r < len(slip):
        slip[r] = wp.sqrt(slip[r])
        r += 1
    layers[0] = depth
    layers[1] = along
    layers[2] = slip
    layers[3] = type(depth)(1.0)
    begin = hidden_layers(net, 1, first, second, kind, layers, blocks)
    size = second / 4 + 1
    at = first + (first / 4 + 1) * second
    more = affine(net, at, size, blocks, begin)
    held = affine(net, at + size, size, blocks, begin)
    law = penalty_force(depth, velocity, normal, physics)
    push = dot(law, normal)
    across = law - scaled(normal, push)
    drag = dot(across, across)
    r = wp.int32(0)
    while r < len(depth):
        # No pull, and no friction along the slip. Where the network gives zero, so does this, to the bit.
        hold = wp.sqrt(drag[r]) / wp.max(slip[r], SMALLEST)
        more[r] = wp.where(depth[r] > 0.0, wp.max(more[r], -push[r]), 0.0)
        held[r] = wp.where(depth[r] > 0.0, wp.max(held[r] / (slip[r] + STICTION), -hold), 0.0)
        r += 1
    return law + scaled(normal, more) - scaled(slide, held)
