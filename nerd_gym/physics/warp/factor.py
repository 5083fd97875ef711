"""The mass matrix factored along the tree, H = L^T D L, so that no zero is stored or touched; and systems solved by it.

H [entries] is packed: the lower triangle of the base's six degrees of freedom by rows, if there is a free base, then
for every joint the base's columns and those of the joints between the base and it, its own the last. Factored, it has L
in place of the entries off the diagonal and 1 / D on it. All numbers are those of a thread's lanes (simd.py).
"""

from functools import lru_cache
from typing import NamedTuple

import warp as wp

from .simd import simd_types
from .tree import Tree, TreeShape


class FactorFunctions(NamedTuple):
    """Each says what it does."""

    factor: wp.Function
    diagonal: wp.Function
    upwards: wp.Function
    downwards: wp.Function
    solve: wp.Function


@lru_cache(maxsize=32)
def factor_functions(shape: TreeShape, width: int) -> FactorFunctions:
    """For the mass matrix of robots of this shape, so many in a thread."""
    links, nv, first_joint = len(shape.parents), shape.nv, int(shape.free)
    base = 6 * shape.free
    shift = 5 * shape.free  # link l's dof is l + shift
    Number = simd_types(width).number
    Numbers = wp.array(dtype=Number)

    @wp.func
    def factor(H: Numbers, tree: Tree):
        """L and 1 / D in place of H."""
        all_links = int(links)
        one = Number(1.0)
        for back in range(first_joint, all_links):
            l = links - 1 - back + first_joint
            depth = tree.depth[l]
            row = tree.row[l]
            own = row + base + depth - 1
            inverse = wp.cw_div(one, H[own])
            for s in range(depth - 1):
                ratio = wp.cw_mul(H[row + base + s], inverse)
                other = tree.row[tree.path[l, s]]
                for j in range(base + s + 1):
                    H[other + j] = H[other + j] - wp.cw_mul(ratio, H[row + j])
            for i in range(base):
                ratio = wp.cw_mul(H[row + i], inverse)
                for j in range(i + 1):
                    at = i * (i + 1) / 2 + j
                    H[at] = H[at] - wp.cw_mul(ratio, H[row + j])
            for j in range(base + depth - 1):
                H[row + j] = wp.cw_mul(H[row + j], inverse)
            H[own] = inverse
        for back in range(base):
            k = base - 1 - back
            row = k * (k + 1) / 2
            inverse = wp.cw_div(one, H[row + k])
            for i in range(k):
                ratio = wp.cw_mul(H[row + i], inverse)
                for j in range(i + 1):
                    at = i * (i + 1) / 2 + j
                    H[at] = H[at] - wp.cw_mul(ratio, H[row + j])
            for i in range(k):
                H[row + i] = wp.cw_mul(H[row + i], inverse)
            H[row + k] = inverse

    @wp.func
    def diagonal(tree: Tree, dof: int):
        """Where a degree of freedom's own entry is."""
        at = dof * (dof + 3) / 2
        if dof >= base:
            l = dof - shift
            at = tree.row[l] + base + tree.depth[l] - 1
        return at

    @wp.func
    def upwards(H: Numbers, x: Numbers, tree: Tree):
        """x [nv] becomes L^-T x: leaves to root."""
        all_links = int(links)
        for back in range(first_joint, all_links):
            l = links - 1 - back + first_joint
            row = tree.row[l]
            value = x[l + shift]
            for s in range(tree.depth[l] - 1):
                i = tree.path[l, s] + shift
                x[i] = x[i] - wp.cw_mul(H[row + base + s], value)
            for i in range(base):
                x[i] = x[i] - wp.cw_mul(H[row + i], value)
        for back in range(base):
            k = base - 1 - back
            row = k * (k + 1) / 2
            for i in range(k):
                x[i] = x[i] - wp.cw_mul(H[row + i], x[k])

    @wp.func
    def downwards(H: Numbers, x: Numbers, tree: Tree):
        """x [nv] becomes L^-1 x: root to leaves."""
        all_links = int(links)
        for k in range(1, base):
            row = k * (k + 1) / 2
            value = x[k]
            for i in range(k):
                value = value - wp.cw_mul(H[row + i], x[i])
            x[k] = value
        for l in range(first_joint, all_links):
            row = tree.row[l]
            value = x[l + shift]
            for i in range(base):
                value = value - wp.cw_mul(H[row + i], x[i])
            for s in range(tree.depth[l] - 1):
                value = value - wp.cw_mul(H[row + base + s], x[tree.path[l, s] + shift])
            x[l + shift] = value

    @wp.func
    def solve(H: Numbers, x: Numbers, tree: Tree):
        """x [nv] becomes the solution y of H y = x."""
        all_dofs = int(nv)
        upwards(H, x, tree)
        for k in range(all_dofs):
            x[k] = wp.cw_mul(x[k], H[diagonal(tree, k)])
        downwards(H, x, tree)

    return FactorFunctions(factor, diagonal, upwards, downwards, solve)
