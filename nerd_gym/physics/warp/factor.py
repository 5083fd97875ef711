"""The mass matrix factored along the tree, H = L^T D L, so that no zero is ever touched; and systems solved by it.

H [nv * nv, W] holds the lower triangle by its rows. Factored, it has L below the diagonal and 1 / D on it. The first
`base` degrees of freedom, six or none, are coupled to all others.
"""

from __future__ import annotations

from typing import Any

import warp as wp

from .tree import Tree


@wp.func
def factored(H: Any, tree: Tree, nv: int, base: int):
    """L and 1 / D in place of H."""
    joints = nv - base
    shift = nv - tree.depth.shape[0]  # link l's dof is l + shift
    one = type(H[0])(1.0)
    for back in range(joints):
        k = nv - 1 - back
        row = k * nv
        l = k - shift
        inverse = wp.cw_div(one, H[row + k])
        for s in range(tree.depth[l] - 1):
            i = tree.path[l, s]
            ratio = wp.cw_mul(H[row + i], inverse)
            for other in range(s + 1):
                j = tree.path[l, other]
                H[i * nv + j] = H[i * nv + j] - wp.cw_mul(ratio, H[row + j])
            for j in range(base):
                H[i * nv + j] = H[i * nv + j] - wp.cw_mul(ratio, H[row + j])
        for i in range(base):
            ratio = wp.cw_mul(H[row + i], inverse)
            for j in range(i + 1):
                H[i * nv + j] = H[i * nv + j] - wp.cw_mul(ratio, H[row + j])
        for s in range(tree.depth[l] - 1):
            i = tree.path[l, s]
            H[row + i] = wp.cw_mul(H[row + i], inverse)
        for i in range(base):
            H[row + i] = wp.cw_mul(H[row + i], inverse)
        H[row + k] = inverse
    for back in range(base):
        k = base - 1 - back
        row = k * nv
        inverse = wp.cw_div(one, H[row + k])
        for i in range(k):
            ratio = wp.cw_mul(H[row + i], inverse)
            for j in range(i + 1):
                H[i * nv + j] = H[i * nv + j] - wp.cw_mul(ratio, H[row + j])
        for i in range(k):
            H[row + i] = wp.cw_mul(H[row + i], inverse)
        H[row + k] = inverse
    return H


@wp.func
def solved(H: Any, x: Any, tree: Tree, nv: int, base: int):
    """The solution [nv, W] of H y = x with H factored."""
    joints = nv - base
    shift = nv - tree.depth.shape[0]
    for back in range(joints):
        k = nv - 1 - back
        row = k * nv
        value = x[k]
        for s in range(tree.depth[k - shift] - 1):
            i = tree.path[k - shift, s]
            x[i] = x[i] - wp.cw_mul(H[row + i], value)
        for i in range(base):
            x[i] = x[i] - wp.cw_mul(H[row + i], value)
        x[k] = wp.cw_mul(value, H[row + k])
    for back in range(base):
        k = base - 1 - back
        value = x[k]
        for i in range(k):
            x[i] = x[i] - wp.cw_mul(H[k * nv + i], value)
        x[k] = wp.cw_mul(value, H[k * nv + k])
    for k in range(1, base):
        value = x[k]
        for i in range(k):
            value = value - wp.cw_mul(H[k * nv + i], x[i])
        x[k] = value
    for k in range(base, nv):
        value = x[k]
        for i in range(base):
            value = value - wp.cw_mul(H[k * nv + i], x[i])
        for s in range(tree.depth[k - shift] - 1):
            i = tree.path[k - shift, s]
            value = value - wp.cw_mul(H[k * nv + i], x[i])
        x[k] = value
    return x
