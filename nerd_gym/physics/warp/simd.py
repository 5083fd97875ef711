"""Vectors and matrices of several robots at once, for kernels of which a thread moves a few robots in step.

A lane is one robot. A number of every lane is a Warp vector [W], three of them a matrix [3, W], a rotation a matrix
[9, W] by its rows. On a CPU the compiler makes each operation on W lanes one instruction; on an accelerator, where the
threads are what is many, W is 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import warp as wp

SMALLEST = wp.constant(1.0e-20)  # a speed or a length, against dividing by zero


class SimdTypes(NamedTuple):
    """The types of W lanes."""

    number: type  # [W]
    vector: type  # [3, W]
    quat: type  # [4, W], w last
    matrix: type  # [9, W]


def rows(count: int, width: int) -> type:
    """So many numbers of every lane, [count, W]."""
    return wp.types.matrix((count, width), wp.float32)


def simd_types(width: int) -> SimdTypes:
    """Of so many lanes."""
    return SimdTypes(wp.types.vector(width, wp.float32), *(rows(count, width) for count in (3, 4, 9)))


@lru_cache(maxsize=64)
def views(dtype: type, width: int) -> wp.Function:
    """A function (address, start, count) that gives an array of `dtype` over a kernel's own memory, from row `start`.

    The memory is a matrix of `rows`. A function takes an array without copying it, which Warp does with a matrix; and
    an array that Warp makes in a kernel takes twice its memory on CUDA.
    """
    bytes_of_row = 4 * width

    @wp.func
    def view(room: wp.uint64, start: int, count: int):
        at = room + wp.uint64(bytes_of_row) * wp.uint64(start)
        return wp.array(ptr=at, shape=(count,), dtype=dtype)

    return view


@wp.func
def any_positive(x: Any):
    """Whether a number [W] of any lane is positive; not a number is not."""
    found = wp.bool(False)
    for r in range(len(x)):
        if x[r] > 0.0:
            found = True
    return found


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
def times_one(m: Any, v: wp.vec3):
    """[9, W], a vector that all lanes share -> [3, W]."""
    return wp.matrix_from_rows(
        v[0] * m[0] + v[1] * m[1] + v[2] * m[2],
        v[0] * m[3] + v[1] * m[4] + v[2] * m[5],
        v[0] * m[6] + v[1] * m[7] + v[2] * m[8],
    )


@wp.func
def product(a: Any, b: Any):
    """[9, W], [9, W] -> [9, W]."""
    out = type(a)()
    for i in range(3):
        for j in range(3):
            out[3 * i + j] = (
                wp.cw_mul(a[3 * i], b[j]) + wp.cw_mul(a[3 * i + 1], b[3 + j]) + wp.cw_mul(a[3 * i + 2], b[6 + j])
            )
    return out


@wp.func
def product_one(a: Any, b: wp.mat33):
    """[9, W], a matrix that all lanes share -> [9, W]."""
    out = type(a)()
    for i in range(3):
        for j in range(3):
            out[3 * i + j] = b[0, j] * a[3 * i] + b[1, j] * a[3 * i + 1] + b[2, j] * a[3 * i + 2]
    return out
