"""Vectors and matrices of several robots at once, for kernels of which a thread moves a few robots in step.

A lane is one robot. A number of every lane is a Warp vector [W], three of them a matrix [3, W], a rotation a matrix
[9, W] by its rows. On a CPU the compiler makes each operation on W lanes one instruction; on an accelerator, where the
threads are what is many, W is 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import warp as wp

CPU_LANES = 8  # floats in a register of AVX2


class LaneTypes(NamedTuple):
    """The types of W lanes."""

    number: type  # [W]
    vector: type  # [3, W]
    quat: type  # [4, W], w last
    matrix: type  # [9, W]


def lane_types(width: int) -> LaneTypes:
    """Of so many lanes."""
    rows = (wp.types.matrix((count, width), wp.float32) for count in (3, 4, 9))
    return LaneTypes(wp.types.vector(width, wp.float32), *rows)


@wp.func
def dot(a: Any, b: Any):
    """[3, W], [3, W] -> [W]."""
    return wp.cw_mul(a[0], b[0]) + wp.cw_mul(a[1], b[1]) + wp.cw_mul(a[2], b[2])


@wp.func
def cross(a: Any, b: Any):
    """[3, W], [3, W] -> [3, W]."""
    return wp.matrix_from_rows(
        wp.cw_mul(a[1], b[2]) - wp.cw_mul(a[2], b[1]),
        wp.cw_mul(a[2], b[0]) - wp.cw_mul(a[0], b[2]),
        wp.cw_mul(a[0], b[1]) - wp.cw_mul(a[1], b[0]),
    )


@wp.func
def scaled(a: Any, s: Any):
    """[3, W], [W] -> [3, W]."""
    return wp.matrix_from_rows(wp.cw_mul(a[0], s), wp.cw_mul(a[1], s), wp.cw_mul(a[2], s))


@wp.func
def times(m: Any, v: Any):
    """[9, W], [3, W] -> [3, W]."""
    return wp.matrix_from_rows(
        wp.cw_mul(m[0], v[0]) + wp.cw_mul(m[1], v[1]) + wp.cw_mul(m[2], v[2]),
        wp.cw_mul(m[3], v[0]) + wp.cw_mul(m[4], v[1]) + wp.cw_mul(m[5], v[2]),
        wp.cw_mul(m[6], v[0]) + wp.cw_mul(m[7], v[1]) + wp.cw_mul(m[8], v[2]),
    )


@wp.func
def times_one(m: Any, v: wp.vec3):
    """[9, W], a vector that all lanes share -> [3, W]."""
    return wp.matrix_from_rows(
        v[0] * m[0] + v[1] * m[1] + v[2] * m[2],
        v[0] * m[3] + v[1] * m[4] + v[2] * m[5],
        v[0] * m[6] + v[1] * m[7] + v[2] * m[8],
    )


@wp.func
def product_transposed(a: Any, m: Any):
    """[9, W], [9, W] -> [9, W], the first times the second transposed."""
    x = wp.matrix_from_rows(m[0], m[1], m[2])
    y = wp.matrix_from_rows(m[3], m[4], m[5])
    z = wp.matrix_from_rows(m[6], m[7], m[8])
    u = times(a, x)
    v = times(a, y)
    w = times(a, z)
    return wp.matrix_from_rows(u[0], v[0], w[0], u[1], v[1], w[1], u[2], v[2], w[2])


@wp.func
def product(a: Any, b: Any):
    """[9, W], [9, W] -> [9, W]."""
    u = times(a, wp.matrix_from_rows(b[0], b[3], b[6]))
    v = times(a, wp.matrix_from_rows(b[1], b[4], b[7]))
    w = times(a, wp.matrix_from_rows(b[2], b[5], b[8]))
    return wp.matrix_from_rows(u[0], v[0], w[0], u[1], v[1], w[1], u[2], v[2], w[2])


@wp.func
def product_one(a: Any, b: wp.mat33):
    """[9, W], a matrix that all lanes share -> [9, W]."""
    u = times_one(a, wp.vec3(b[0, 0], b[1, 0], b[2, 0]))
    v = times_one(a, wp.vec3(b[0, 1], b[1, 1], b[2, 1]))
    w = times_one(a, wp.vec3(b[0, 2], b[1, 2], b[2, 2]))
    return wp.matrix_from_rows(u[0], v[0], w[0], u[1], v[1], w[1], u[2], v[2], w[2])
