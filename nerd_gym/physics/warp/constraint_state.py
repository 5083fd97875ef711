"""What MuJoCo's constraints keep of the robots in a thread's lanes, and work on, as arrays over the kernel's memory."""

from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import warp as wp

from .constraint_rows import row_columns
from .simd import rows, simd_types, views
from .tree import TreeShape


class ConstraintMemory(NamedTuple):
    """Of robots of one shape, so many in a thread."""

    state: type
    room: type  # memory of a ConstraintState
    opened: wp.Function


@lru_cache(maxsize=32)
def constraint_memory(shape: TreeShape, width: int) -> ConstraintMemory:
    """For kernels of robots of this shape."""
    links, slots, nv, columns = len(shape.parents), max(1, shape.contacts), shape.nv, row_columns(shape)
    Number = simd_types(width).number
    numbers = views(Number, width)
    edges, triples, edge_columns, row_entries = 4 * slots, 3 * slots, 12 * slots, (3 * slots + links) * columns

    @wp.struct
    class ConstraintState:
        pressed: wp.array(dtype=Number)  # [4 C], forces of edges by candidate, kept from pose to pose
        stopped: wp.array(dtype=Number)  # [L], signed forces of limits, likewise
        G: wp.array(dtype=Number)  # rows of contacts, then of limits; from here on nothing is kept
        columns: wp.array(dtype=Number)  # what an edge's force does to its contact
        own: wp.array(dtype=Number)  # what it does along the edge itself
        inverse: wp.array(dtype=Number)  # of that and R; 0 where nothing touches
        soft: wp.array(dtype=Number)  # R of slots
        velocity: wp.array(dtype=Number)  # of the rows of contacts
        target: wp.array(dtype=Number)  # aref
        scale: wp.array(dtype=Number)  # [nv], D^-1/2
        z_free: wp.array(dtype=Number)  # [nv], without constraints
        z: wp.array(dtype=Number)
        once: wp.array(dtype=Number)  # [nv], sum of z over the substeps
        twice: wp.array(dtype=Number)  # and of these sums
        here: wp.array(dtype=Number)  # [L], of joints with limits
        rate: wp.array(dtype=Number)
        limit_own: wp.array(dtype=Number)
        limit_inverse: wp.array(dtype=Number)
        limit_soft: wp.array(dtype=Number)
        limit_target: wp.array(dtype=Number)
        least: wp.array(dtype=Number)
        most: wp.array(dtype=Number)

    sizes = [edges, links, row_entries, edge_columns, edges, edges, slots, triples, triples]
    sizes += 5 * [nv] + 8 * [links]
    starts = list(accumulate(sizes, initial=0))
    at_stopped, at_G, at_columns, at_own, at_inverse, at_soft, at_velocity, at_target, at_dofs = starts[1:10]
    at_limits = starts[14]

    @wp.func
    def opened(room: wp.uint64):
        """The state in a kernel's own memory."""
        c = ConstraintState()
        c.pressed = numbers(room, 0, edges)
        c.stopped = numbers(room, at_stopped, links)
        c.G = numbers(room, at_G, row_entries)
        c.columns = numbers(room, at_columns, edge_columns)
        c.own = numbers(room, at_own, edges)
        c.inverse = numbers(room, at_inverse, edges)
        c.soft = numbers(room, at_soft, slots)
        c.velocity = numbers(room, at_velocity, triples)
        c.target = numbers(room, at_target, triples)
        c.scale = numbers(room, at_dofs, nv)
        c.z_free = numbers(room, at_dofs + nv, nv)
        c.z = numbers(room, at_dofs + 2 * nv, nv)
        c.once = numbers(room, at_dofs + 3 * nv, nv)
        c.twice = numbers(room, at_dofs + 4 * nv, nv)
        c.here = numbers(room, at_limits, links)
        c.rate = numbers(room, at_limits + links, links)
        c.limit_own = numbers(room, at_limits + 2 * links, links)
        c.limit_inverse = numbers(room, at_limits + 3 * links, links)
        c.limit_soft = numbers(room, at_limits + 4 * links, links)
        c.limit_target = numbers(room, at_limits + 5 * links, links)
        c.least = numbers(room, at_limits + 6 * links, links)
        c.most = numbers(room, at_limits + 7 * links, links)
        return c

    return ConstraintMemory(ConstraintState, rows(starts[-1], width), opened)
