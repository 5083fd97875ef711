"""Functions of the numbers in a thread's lanes: exponential, logarithm, power, and what a layer of a network needs.

They are right to two or three units in the last place. The compiler makes vector instructions of the polynomials; a
call of the C library's functions would be one per lane.
"""

from __future__ import annotations

from typing import Any

import warp as wp

# Of the Cephes library for float32.
PER_OCTAVE = wp.constant(1.44269504088896341)
OCTAVE_1, OCTAVE_2 = wp.constant(0.693359375), wp.constant(-2.12194440e-4)  # the logarithm of 2 in two parts
EXP_0, EXP_1, EXP_2 = wp.constant(5.0000001201e-1), wp.constant(1.6666665459e-1), wp.constant(4.1665795894e-2)
EXP_3, EXP_4, EXP_5 = wp.constant(8.3334519073e-3), wp.constant(1.3981999507e-3), wp.constant(1.9875691500e-4)
LOG_0, LOG_1, LOG_2 = wp.constant(3.3333331174e-1), wp.constant(-2.4999993993e-1), wp.constant(2.0000714765e-1)
LOG_3, LOG_4, LOG_5 = wp.constant(-1.6668057665e-1), wp.constant(1.4249322787e-1), wp.constant(-1.2420140846e-1)
LOG_6, LOG_7, LOG_8 = wp.constant(1.1676998740e-1), wp.constant(-1.1514610310e-1), wp.constant(7.0376836292e-2)
HALF_ROOT = wp.constant(0.70710678118654752)
LOWEST, HIGHEST = wp.constant(-87.0), wp.constant(88.0)  # exponents of normal numbers
LEAST = wp.constant(1.17549435e-38)  # the smallest normal number


@wp.func
def exponential(x: Any):
    """[W]; from exp(-87) to exp(88), what is no number stays none."""
    out = type(x)()
    r = wp.int32(0)
    while r < len(x):
        bounded = wp.min(wp.max(x[r], LOWEST), HIGHEST)
        octaves = wp.floor(bounded * PER_OCTAVE + 0.5)
        y = (bounded - octaves * OCTAVE_1) - octaves * OCTAVE_2
        p = EXP_0 + y * (EXP_1 + y * (EXP_2 + y * (EXP_3 + y * (EXP_4 + y * EXP_5))))
        scale = wp.cast((wp.int32(octaves) + 127) * 8388608, wp.float32)
        out[r] = wp.where(x[r] == x[r], (1.0 + y + y * y * p) * scale, x[r])
        r += 1
    return out


@wp.func
def logarithm(x: Any):
    """[W] of positive numbers; of smaller ones than the smallest normal number, that one's."""
    out = type(x)()
    r = wp.int32(0)
    while r < len(x):
        bits = wp.cast(wp.max(x[r], LEAST), wp.int32)
        octaves = wp.float32((bits >> 23) - 126)
        part = wp.cast((bits & 8388607) | 1056964608, wp.float32)  # from 1/2 to 1
        low = part < HALF_ROOT
        octaves = wp.where(low, octaves - 1.0, octaves)
        y = wp.where(low, part + part - 1.0, part - 1.0)
        z = y * y
        p = LOG_3 + y * (LOG_4 + y * (LOG_5 + y * (LOG_6 + y * (LOG_7 + y * LOG_8))))
        p = LOG_0 + y * (LOG_1 + y * (LOG_2 + y * p))
        value = y * z * p + octaves * OCTAVE_2 - 0.5 * z
        value = y + value + octaves * OCTAVE_1
        out[r] = wp.where(x[r] == x[r], value, x[r])
        r += 1
    return out


@wp.func
def power(x: Any, exponent: float):
    """[W], positive numbers to one power."""
    return exponential(exponent * logarithm(x))


def blocks_for(inputs: int) -> int:
    """Blocks of four that a layer's row takes: its weights, zeros, and last the bias, which a 1 multiplies."""
    return inputs // 4 + 1


def network_blocks(inputs: int, width: int) -> int:
    """Blocks of four numbers that the inputs and the two hidden layers of a network take, each with its 1."""
    return blocks_for(inputs) + 2 * blocks_for(width)


@wp.func
def activate(layers: Any, wide: Any, start: int, width: int):
    """SiLU of a hidden layer of so many units from block `start`, and its last number, a 1.

    wide is the memory of `layers` with the four numbers of a block in one vector: the steps of an exponential wait for
    each other, and those of four vectors do not.
    """
    count = width / 4 + 1
    for k in range(start, start + count):
        x = wide[k]
        wide[k] = wp.cw_div(x, type(x)(1.0) + exponential(-x))
    layers[4 * (start + count) - 1] = type(layers[0])(1.0)


@wp.func
def affine(weights: wp.array(dtype=wp.vec4), at: int, blocks: int, x: Any, start: int):
    """[W]: the weights of `blocks` blocks of four, from block `at`, times those of x [..., 4, W] from block `start`.

    Reading four at a time, and adding in four sums, is what makes it fast: an index costs more than a product.
    """
    block = x[start]
    four = weights[at]
    a = four[0] * block[0]
    b = four[1] * block[1]
    c = four[2] * block[2]
    d = four[3] * block[3]
    for k in range(1, blocks):
        block = x[start + k]
        four = weights[at + k]
        a = a + four[0] * block[0]
        b = b + four[1] * block[1]
        c = c + four[2] * block[2]
        d = d + four[3] * block[3]
    return (a + b) + (c + d)
