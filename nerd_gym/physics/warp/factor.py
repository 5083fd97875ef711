"""The mass matrix factored along the tree, H = L^T D L, so that no zero is stored or touched; and systems solved by it.

H [entries, W] is packed: the lower triangle of the base's six degrees of freedom by rows, if there is a free base, then
for every joint the base's columns and those of the joints between the base and it, its own the last. Factored, it has L
in place of the entries off the diagonal and 1 / D on it.
"""

from __future__ import annotations

from typing import Any

import warp as wp

from .tree import Tree


@wp.func
def factored(H: Any, tree: Tree, base: int):
    """L and 1 / D in place of H; `base` is 6 or 0."""
    links = tree.depth.shape[0]
    one = type(H[0])(1.0)
    for back in range(links):
        l = links - 1 - back
        depth = tree.depth[l]
        if depth > 0:
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
    return H


@wp.func
def solved(H: Any, x: Any, tree: Tree, base: int):
    """The solution [nv, W] of H y = x with H factored; a link's joint is the dof that follows those before it."""
    links = tree.depth.shape[0]
    shift = wp.where(base > 0, base - 1, 0)  # link l's dof is l + shift
    for back in range(links):
        l = links - 1 - back
        depth = tree.depth[l]
        if depth > 0:
            row = tree.row[l]
            value = x[l + shift]
            for s in range(depth - 1):
                i = tree.path[l, s] + shift
                x[i] = x[i] - wp.cw_mul(H[row + base + s], value)
            for i in range(base):
                x[i] = x[i] - wp.cw_mul(H[row + i], value)
            x[l + shift] = wp.cw_mul(value, H[row + base + depth - 1])
    for back in range(base):
        k = base - 1 - back
        row = k * (k + 1) / 2
        value = x[k]
        for i in range(k):
            x[i] = x[i] - wp.cw_mul(H[row + i], value)
        x[k] = wp.cw_mul(value, H[row + k])
    for k in range(1, base):
        row = k * (k + 1) / 2
        value = x[k]
        for i in range(k):
            value = value - wp.cw_mul(H[row + i], x[i])
        x[k] = value
    for l in range(links):
        depth = tree.depth[l]
        if depth > 0:
            row = tree.row[l]
            value = x[l + shift]
            for i in range(base):
                value = value - wp.cw_mul(H[row + i], x[i])
            for s in range(depth - 1):
                value = value - wp.cw_mul(H[row + base + s], x[tree.path[l, s] + shift])
            x[l + shift] = value
    return x
