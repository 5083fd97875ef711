"""The equations of motion link by link, for the robots in the lanes of a thread (simd.py).

Motions (angular, linear) and forces (moment, force) are about one point that all links of a robot share, in one set of
axes, so that nothing needs to be transformed on the way along the tree. A symmetric matrix is its rows
xx, yy, zz, xy, xz, yz.
"""

from __future__ import annotations

from typing import Any

import warp as wp

from .simd import SMALLEST, cross, dot, product, product_one, scaled, times_one
from .tree import Tree

# Cody and Waite's parts of pi / 2, and the polynomials of the Cephes library for float32.
PART_1, PART_2, PART_3 = wp.constant(1.5703125), wp.constant(4.837512969970703e-4), wp.constant(7.549789948768648e-8)
SIN_1, SIN_2, SIN_3 = wp.constant(-1.6666654611e-1), wp.constant(8.3321608736e-3), wp.constant(-1.9515295891e-4)
COS_1, COS_2 = wp.constant(4.166664568298827e-2), wp.constant(-1.388731625493765e-3)
COS_3 = wp.constant(2.443315711809948e-5)
QUARTERS = wp.constant(0.6366197723675814)  # in a radian


@wp.func
def sine_versine(angle: Any):
    """[W] -> sin and 1 - cos; to an ulp or two up to some thousand turns, without a call that lanes would queue for."""
    sine = type(angle)()
    versine = type(angle)()
    r = wp.int32(0)
    while r < len(angle):
        quarter = wp.rint(angle[r] * QUARTERS)
        x = ((angle[r] - quarter * PART_1) - quarter * PART_2) - quarter * PART_3
        z = x * x
        s = x + x * z * (SIN_1 + z * (SIN_2 + z * SIN_3))
        v = z * (0.5 - z * (COS_1 + z * (COS_2 + z * COS_3)))
        c = 1.0 - v
        # Of the quarter turns, the lowest bit swaps sine and cosine, the next one turns the sign.
        half = quarter - 2.0 * wp.floor(0.5 * quarter)
        turned = quarter - 4.0 * wp.floor(0.25 * quarter)
        flip = wp.where(turned >= 2.0, -1.0, 1.0)
        odd = half > 0.5
        sine[r] = flip * wp.where(odd, c, s)
        versine[r] = wp.where(odd, 1.0 + flip * s, wp.where(turned >= 2.0, 2.0 - v, v))
        r += 1
    return sine, versine


@wp.func
def matrix_of(quat: Any, like: Any):
    """Rotation [9, W], of the type of `like`, of unit quaternions [4, W], w last."""
    x, y, z, w = quat[0], quat[1], quat[2], quat[3]
    one = type(x)(1.0)
    out = type(like)()
    out[0] = one - 2.0 * (wp.cw_mul(y, y) + wp.cw_mul(z, z))
    out[1] = 2.0 * (wp.cw_mul(x, y) - wp.cw_mul(w, z))
    out[2] = 2.0 * (wp.cw_mul(x, z) + wp.cw_mul(w, y))
    out[3] = 2.0 * (wp.cw_mul(x, y) + wp.cw_mul(w, z))
    out[4] = one - 2.0 * (wp.cw_mul(x, x) + wp.cw_mul(z, z))
    out[5] = 2.0 * (wp.cw_mul(y, z) - wp.cw_mul(w, x))
    out[6] = 2.0 * (wp.cw_mul(x, z) - wp.cw_mul(w, y))
    out[7] = 2.0 * (wp.cw_mul(y, z) + wp.cw_mul(w, x))
    out[8] = one - 2.0 * (wp.cw_mul(x, x) + wp.cw_mul(y, y))
    return out


@wp.func
def placed(up: Any, position: Any, angle: Any, tree: Tree, l: int):
    """Rotation [9, W], position [3, W] and joint axis [3, W] of link l on a parent of rotation `up` at `position`."""
    axis = times_one(up, tree.axis[l])
    here = position + times_one(up, tree.offset[l])
    joint = type(up)()
    fixed = tree.rotation[l]
    if tree.slide[l] == 1:
        here = here + scaled(axis, angle)
        for i in range(3):
            for j in range(3):
                joint[3 * i + j] = type(angle)(fixed[i, j])
    else:
        sine, versine = sine_versine(angle)
        by_sine = tree.rotation_sin[l]
        by_versine = tree.rotation_cos[l]
        for i in range(3):
            for j in range(3):
                joint[3 * i + j] = type(angle)(fixed[i, j]) + by_sine[i, j] * sine + by_versine[i, j] * versine
    return product(up, joint), here, axis


@wp.func
def motion_axis(axis: Any, position: Any, slide: int):
    """Angular and linear part of a joint's motion axis, [3, W] each."""
    turning = axis
    moving = axis
    if slide == 1:
        turning = type(axis)()
    else:
        moving = cross(position, axis)
    return turning, moving


@wp.func
def acceleration_of(omega: Any, velocity: Any, turning: Any, moving: Any, rate: Any):
    """What a joint's rate adds to the acceleration of what it carries: the parent's motion x axis x rate."""
    return scaled(cross(omega, turning), rate), scaled(cross(omega, moving) + cross(velocity, turning), rate)


@wp.func
def symmetric_times(m: Any, v: Any):
    """[6, W], [3, W] -> [3, W]."""
    return wp.matrix_from_rows(
        wp.cw_mul(m[0], v[0]) + wp.cw_mul(m[3], v[1]) + wp.cw_mul(m[4], v[2]),
        wp.cw_mul(m[3], v[0]) + wp.cw_mul(m[1], v[1]) + wp.cw_mul(m[5], v[2]),
        wp.cw_mul(m[4], v[0]) + wp.cw_mul(m[5], v[1]) + wp.cw_mul(m[2], v[2]),
    )


@wp.func
def inertia_about(rotation: Any, inertia: wp.mat33, com: Any, first_moment: Any):
    """[6, W] about the common point, of a link with `inertia` about its com, in its own axes."""
    half = product_one(rotation, inertia)
    xx = wp.cw_mul(com[0], first_moment[0])
    yy = wp.cw_mul(com[1], first_moment[1])
    zz = wp.cw_mul(com[2], first_moment[2])
    return wp.matrix_from_rows(
        turned_entry(half, rotation, 0, 0) + yy + zz,
        turned_entry(half, rotation, 1, 1) + xx + zz,
        turned_entry(half, rotation, 2, 2) + xx + yy,
        turned_entry(half, rotation, 0, 1) - wp.cw_mul(com[0], first_moment[1]),
        turned_entry(half, rotation, 0, 2) - wp.cw_mul(com[0], first_moment[2]),
        turned_entry(half, rotation, 1, 2) - wp.cw_mul(com[1], first_moment[2]),
    )


@wp.func
def turned_entry(half: Any, rotation: Any, i: int, j: int):
    """Entry i, j of half times the rotation transposed."""
    return (
        wp.cw_mul(half[3 * i], rotation[3 * j])
        + wp.cw_mul(half[3 * i + 1], rotation[3 * j + 1])
        + wp.cw_mul(half[3 * i + 2], rotation[3 * j + 2])
    )


@wp.func
def moment_of(inertia: Any, first_moment: Any, omega: Any, velocity: Any):
    """Angular part of inertia times motion."""
    return symmetric_times(inertia, omega) + cross(first_moment, velocity)


@wp.func
def impulse_of(mass: float, first_moment: Any, omega: Any, velocity: Any):
    """Linear part of inertia times motion."""
    return mass * velocity - cross(first_moment, omega)


@wp.func
def turned(quat: Any, omega: Any, dt: float):
    """exp(dt omega) quat [4, W], of unit length again."""
    speed = dot(omega, omega)
    half = type(speed)()
    r = wp.int32(0)
    while r < len(speed):
        speed[r] = wp.sqrt(speed[r])
        half[r] = 0.5 * dt * speed[r]
        r += 1
    sine, versine = sine_versine(half)
    share = type(speed)()
    r = wp.int32(0)
    while r < len(speed):
        share[r] = wp.where(speed[r] > SMALLEST, sine[r] / wp.max(speed[r], SMALLEST), 0.5 * dt)
        r += 1
    return unit_quat(quat_times(scaled(omega, share), type(speed)(1.0) - versine, quat))


@wp.func
def quat_times(v: Any, real: Any, quat: Any):
    """The quaternion of vector part v [3, W] and real part [W] times another [4, W], w last."""
    other = wp.matrix_from_rows(quat[0], quat[1], quat[2])
    out = scaled(other, real) + scaled(v, quat[3]) + cross(v, other)
    return wp.matrix_from_rows(out[0], out[1], out[2], wp.cw_mul(real, quat[3]) - dot(v, other))


@wp.func
def unit_quat(quat: Any):
    """[4, W] of length 1."""
    scale = type(quat[0])()
    r = wp.int32(0)
    while r < len(scale):
        square = quat[0, r] * quat[0, r] + quat[1, r] * quat[1, r] + quat[2, r] * quat[2, r] + quat[3, r] * quat[3, r]
        scale[r] = 1.0 / wp.sqrt(square)
        r += 1
    return wp.matrix_from_rows(
        wp.cw_mul(quat[0], scale), wp.cw_mul(quat[1], scale), wp.cw_mul(quat[2], scale), wp.cw_mul(quat[3], scale)
    )
