"""The contact candidates that may touch the ground while a pose is frozen, with their Jacobians.

Each has a slot, the first `touching` of which are filled. A slot's levers are the Jacobian's columns of the joints
between the base and its link; those of the base are the axes and the position itself.
"""

from functools import lru_cache
from typing import NamedTuple

import warp as wp

from .simd import cross, rows, scaled, simd_types, views
from .tree import Tree, TreeShape


class NearFunctions(NamedTuple):
    """Of robots of one shape, so many in a thread; each says what it does."""

    contacts: type
    room: type  # memory of the slots' numbers
    index_room: type  # and of their indices
    opened: wp.Function
    velocity: wp.Function


@lru_cache(maxsize=32)
def near_functions(shape: TreeShape, width: int) -> NearFunctions:
    """For kernels of robots of this shape."""
    slots, deepest, shift = max(1, shape.contacts), max(1, shape.deepest), 5 * shape.free
    Number, Vector, _, _ = simd_types(width)
    Numbers = wp.array(dtype=Number)
    levers, after_links = slots * deepest, 4 * slots
    numbers, vectors = views(Number, width), views(Vector, width)

    @wp.struct
    class NearContacts:
        depth: wp.array(dtype=Number)  # of slots
        position: wp.array(dtype=Vector)
        tangent: wp.array(dtype=Vector)  # the first one, of unit length
        lever: wp.array(dtype=Vector)  # [slots x deepest]
        link: wp.array(dtype=wp.int32)
        candidate: wp.array(dtype=wp.int32)

    @wp.func
    def opened(room: wp.uint64, indices: wp.uint64):
        """The slots in a kernel's own memory."""
        near = NearContacts()
        near.depth = numbers(room, 0, slots)
        near.position = vectors(room, slots, slots)
        near.tangent = vectors(room, 4 * slots, slots)
        near.lever = vectors(room, 7 * slots, levers)
        near.link = wp.array(ptr=indices, shape=(slots,), dtype=wp.int32)
        near.candidate = wp.array(ptr=indices + wp.uint64(after_links), shape=(slots,), dtype=wp.int32)
        return near

    @wp.func
    def velocity(near: NearContacts, n: int, omega: Vector, base_v: Vector, u: Numbers, tree: Tree):
        """Of the point in slot n, [3, W], with the base's motion and the joints' rates among u [nv]."""
        l = near.link[n]
        total = base_v + cross(omega, near.position[n])
        for s in range(tree.depth[l]):
            total = total + scaled(near.lever[n * deepest + s], u[tree.path[l, s] + shift])
        return total

    room = rows(slots * (7 + 3 * deepest), width)
    return NearFunctions(NearContacts, room, wp.types.vector(2 * slots, wp.int32), opened, velocity)
