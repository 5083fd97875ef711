"""Rows of constraints in whitened coordinates, as constraint_law.py has them: G = J L^-1 D^-1/2 and z = D^1/2 L a.

A row has the columns that its link's row of the mass matrix has (factor.py): six of the base and one for each joint on
the way to the link. A contact has three rows in turn.
"""

from typing import NamedTuple

import warp as wp

from .factor import factor_functions
from .simd import simd_types
from .tree import Tree, TreeShape


class RowFunctions(NamedTuple):
    """Of a robot's rows, over the lanes of a thread."""

    whiten: wp.Function
    along: wp.Function
    push: wp.Function
    push_one: wp.Function
    whitened: wp.Function
    unwhitened: wp.Function


def row_columns(shape: TreeShape) -> int:
    """Columns of a row."""
    return 6 + max(1, shape.deepest)


def row_functions(shape: TreeShape, width: int) -> RowFunctions:
    """Each says what it does."""
    nv, columns = shape.nv, row_columns(shape)
    upwards, downwards = factor_functions(shape, width).upwards, factor_functions(shape, width).downwards
    Number = simd_types(width).number
    Numbers = wp.array(dtype=Number)

    @wp.func
    def whiten(G: Numbers, at: int, l: int, H: Numbers, scale: Numbers, tree: Tree):
        """J of a link at `at` becomes G."""
        depth = tree.depth[l]
        for back in range(depth):
            s = depth - 1 - back
            k = tree.path[l, s]
            row = tree.row[k]
            value = G[at + 6 + s]
            for j in range(6 + s):
                G[at + j] = G[at + j] - wp.cw_mul(value, H[row + j])
            G[at + 6 + s] = wp.cw_mul(value, scale[k + 5])
        for back in range(6):
            j = 5 - back
            value = G[at + j]
            for i in range(j):
                G[at + i] = G[at + i] - wp.cw_mul(value, H[j * (j + 1) / 2 + i])
            G[at + j] = wp.cw_mul(value, scale[j])

    @wp.func
    def along(G: Numbers, at: int, l: int, z: Numbers, tree: Tree):
        """G z of a row: [W]."""
        total = wp.cw_mul(G[at], z[0])
        for j in range(1, 6):
            total = total + wp.cw_mul(G[at + j], z[j])
        for s in range(tree.depth[l]):
            total = total + wp.cw_mul(G[at + 6 + s], z[tree.path[l, s] + 5])
        return total

    @wp.func
    def push(G: Numbers, at: int, l: int, z: Numbers, tree: Tree, f0: Number, f1: Number, f2: Number):
        """z += G^T f for the three rows of a contact."""
        for j in range(6):
            z[j] = (
                z[j]
                + wp.cw_mul(G[at + j], f0)
                + wp.cw_mul(G[at + columns + j], f1)
                + wp.cw_mul(G[at + 2 * columns + j], f2)
            )
        for s in range(tree.depth[l]):
            k = tree.path[l, s] + 5
            z[k] = (
                z[k]
                + wp.cw_mul(G[at + 6 + s], f0)
                + wp.cw_mul(G[at + columns + 6 + s], f1)
                + wp.cw_mul(G[at + 2 * columns + 6 + s], f2)
            )

    @wp.func
    def push_one(G: Numbers, at: int, l: int, z: Numbers, tree: Tree, f: Number):
        """z += G^T f for one row."""
        for j in range(6):
            z[j] = z[j] + wp.cw_mul(G[at + j], f)
        for s in range(tree.depth[l]):
            k = tree.path[l, s] + 5
            z[k] = z[k] + wp.cw_mul(G[at + 6 + s], f)

    @wp.func
    def whitened(H: Numbers, x: Numbers, scale: Numbers, tree: Tree):
        """Forces x [nv] become D^-1/2 L^-T x, which is what they add to z."""
        all_dofs = int(nv)
        upwards(H, x, tree)
        for k in range(all_dofs):
            x[k] = wp.cw_mul(x[k], scale[k])

    @wp.func
    def unwhitened(H: Numbers, z: Numbers, scale: Numbers, tree: Tree):
        """z [nv] becomes the acceleration L^-1 D^-1/2 z."""
        all_dofs = int(nv)
        for k in range(all_dofs):
            z[k] = wp.cw_mul(z[k], scale[k])
        downwards(H, z, tree)

    return RowFunctions(whiten, along, push, push_one, whitened, unwhitened)
