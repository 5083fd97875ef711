"""Rows of constraints in whitened coordinates, as constraint_law.py has them: G = J L^-1 D^-1/2 and z = D^1/2 L a.

A row has six columns of the base and one for each joint on the way to its link; a contact has three rows in turn.
"""

from typing import NamedTuple

import warp as wp

from .dof_paths import DofPaths, Shape
from .simd import simd_types


class RowFunctions(NamedTuple):
    """Of a robot's rows, over the lanes of a thread."""

    whiten: wp.Function
    along: wp.Function
    push: wp.Function
    push_one: wp.Function
    unwhiten: wp.Function


def row_columns(shape: Shape) -> int:
    """Columns of a row."""
    return 6 + max(1, shape.deepest)


def row_functions(shape: Shape, width: int) -> RowFunctions:
    """Each says what it does."""
    links, columns = len(shape.parents), row_columns(shape)
    nv = links + 5
    Number = simd_types(width).number
    Numbers = wp.array(dtype=Number)

    @wp.func
    def whiten(G: Numbers, at: int, l: int, H: Numbers, scale: Numbers, paths: DofPaths):
        """J of a link at `at` becomes G."""
        depth = paths.depth[l]
        for back in range(depth):
            s = depth - 1 - back
            k = paths.dof[l, s]
            value = G[at + 6 + s]
            for o in range(s):
                G[at + 6 + o] = G[at + 6 + o] - wp.cw_mul(value, H[k * nv + paths.dof[l, o]])
            for j in range(6):
                G[at + j] = G[at + j] - wp.cw_mul(value, H[k * nv + j])
            G[at + 6 + s] = wp.cw_mul(value, scale[k])
        for back in range(6):
            j = 5 - back
            value = G[at + j]
            for i in range(j):
                G[at + i] = G[at + i] - wp.cw_mul(value, H[j * nv + i])
            G[at + j] = wp.cw_mul(value, scale[j])

    @wp.func
    def along(G: Numbers, at: int, l: int, z: Numbers, paths: DofPaths):
        """G z of a row: [W]."""
        total = wp.cw_mul(G[at], z[0])
        for j in range(1, 6):
            total = total + wp.cw_mul(G[at + j], z[j])
        for s in range(paths.depth[l]):
            total = total + wp.cw_mul(G[at + 6 + s], z[paths.dof[l, s]])
        return total

    @wp.func
    def push(
        G: Numbers,
        at: int,
        l: int,
        z: Numbers,
        paths: DofPaths,
        f0: Number,
        f1: Number,
        f2: Number,
    ):
        """z += G^T f for the three rows of a contact."""
        for j in range(6):
            z[j] = (
                z[j]
                + wp.cw_mul(G[at + j], f0)
                + wp.cw_mul(G[at + columns + j], f1)
                + wp.cw_mul(G[at + 2 * columns + j], f2)
            )
        for s in range(paths.depth[l]):
            k = paths.dof[l, s]
            z[k] = (
                z[k]
                + wp.cw_mul(G[at + 6 + s], f0)
                + wp.cw_mul(G[at + columns + 6 + s], f1)
                + wp.cw_mul(G[at + 2 * columns + 6 + s], f2)
            )

    @wp.func
    def push_one(G: Numbers, at: int, l: int, z: Numbers, paths: DofPaths, f: Number):
        """z += G^T f for one row."""
        for j in range(6):
            z[j] = z[j] + wp.cw_mul(G[at + j], f)
        for s in range(paths.depth[l]):
            k = paths.dof[l, s]
            z[k] = z[k] + wp.cw_mul(G[at + 6 + s], f)

    @wp.func
    def unwhiten(x: Numbers, H: Numbers, scale: Numbers, paths: DofPaths):
        """z becomes L^-1 D^-1/2 z."""
        for k in range(6):
            x[k] = wp.cw_mul(x[k], scale[k])
            for i in range(k):
                x[k] = x[k] - wp.cw_mul(H[k * nv + i], x[i])
        all_links = int(links)
        for l in range(1, all_links):
            row = (l + 5) * nv
            value = wp.cw_mul(x[l + 5], scale[l + 5])
            for i in range(6):
                value = value - wp.cw_mul(H[row + i], x[i])
            for s in range(paths.depth[l] - 1):
                k = paths.dof[l, s]
                value = value - wp.cw_mul(H[row + k], x[k])
            x[l + 5] = value

    return RowFunctions(whiten, along, push, push_one, unwhiten)
