"""A network's inputs as a Warp kernel with a thread per environment.

It gives what models/residual.py gives in torch, where every operation is a pass over the batch. Poses and velocities
are in the axes of a free base about its origin, or in the world's for a fixed base, so that nothing depends on where a
robot walks.
"""

from __future__ import annotations

from functools import lru_cache

import warp as wp

from .contacts import COARSE, DEEPEST, DEEPEST_PREDICTED, FINE
from .kernel_tables import FREE_FALL, FROZEN_POSE, Body, Scale, Sizes, Views, kernel_of, matrix_of
from .normaliser import BUSY, INPUT_LIMIT, STILL, TOUCHING

NEAR, TOUCH = wp.constant(COARSE), wp.constant(FINE)
DEEP, DEEP_PREDICTED = wp.constant(DEEPEST), wp.constant(DEEPEST_PREDICTED)
FARTHEST = wp.constant(INPUT_LIMIT)
BUSY_SHARE, TOUCH_SHARE, STILL_SHARE = wp.constant(BUSY), wp.constant(TOUCHING), wp.constant(STILL)


@wp.func
def put(inputs: wp.array2d(dtype=wp.float32), env: int, at: int, value: float, scale: Scale):
    """Write a feature, normalised; what is no number becomes 0."""
    x = (value - scale.input_mean[at]) / scale.input_std[at]
    inputs[env, at] = wp.where(x == x, wp.clamp(x, -FARTHEST, FARTHEST), 0.0)


@wp.func
def put_predicted(inputs: wp.array2d(dtype=wp.float32), env: int, at: int, later: float, scale: Scale):
    """Write a distance expected a frame later, close up."""
    put(inputs, env, at, wp.clamp(later / TOUCH, -DEEP_PREDICTED, 1.0), scale)


@wp.func
def put_near(
    inputs: wp.array2d(dtype=wp.float32),
    env: int,
    at: int,
    count: int,
    distance: float,
    speed: float,
    dt: float,
    predicted_distance: int,
    scale: Scale,
) -> float:
    """Write the four features of one of `count` distances, or five with `predicted_distance`; gives how near it is."""
    later = distance + dt * speed
    coarse = wp.clamp(distance / NEAR, -DEEP, 1.0)
    ahead = wp.clamp(later / NEAR, -DEEP, 1.0)
    near = 1.0 - wp.max(wp.min(coarse, ahead), 0.0)
    put(inputs, env, at, coarse, scale)
    put(inputs, env, at + count, ahead, scale)
    put(inputs, env, at + 2 * count, wp.clamp(distance / TOUCH, -1.0, 1.0), scale)
    put(inputs, env, at + 3 * count, near * speed, scale)
    if predicted_distance == 1:
        put_predicted(inputs, env, at + 4 * count, later, scale)
    return near


@lru_cache(maxsize=32)
def encode_kernel(sizes: Sizes) -> wp.Kernel:
    """Normalised inputs [N, D], elements [N] and what a network's word counts [N], of environments `first`, ...

    Contacts are as the prior tells them: distances at the frame's end if poses are frozen, else how the candidates move
    over the ground (physics/warp/distance.py).
    """
    nj, free, gravity, ground, candidates, distinct, shown, limited, elements, prior, near_features = sizes
    free_fall, frozen_pose, predicted_distance = prior == FREE_FALL, prior == FROZEN_POSE, int(near_features == 5)
    q_shift, dof_shift = (7, 6) if free else (0, 0)
    view_size, points, per_element = sizes.view, max(distinct, 1), wp.types.vector(elements, wp.float32)
    at_gravity = 4 * nj
    at_normal = at_gravity + 3 * gravity
    at_spin = at_normal + 3 * ground
    hidden = 4 * nj - shown  # the rest of the view stands so much earlier among the inputs
    at_near = view_size - hidden
    at_slip = at_near + near_features * distinct
    at_limits = at_slip + (0 if frozen_pose else 3 * distinct)
    at_prior = at_limits + 2 * near_features * limited

    def encode(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        force: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        body: Body,
        views: Views,
        scale: Scale,
        functional: wp.array(dtype=per_element),
        change: wp.array2d(dtype=wp.float32),
        ahead: wp.array2d(dtype=wp.float32),
        inputs: wp.array2d(dtype=wp.float32),
        element: wp.array(dtype=wp.int32),
        gate: wp.array(dtype=wp.float32),
        distances: wp.array2d(dtype=wp.float32),
        speeds: wp.array2d(dtype=wp.float32),
        slips: wp.array2d(dtype=wp.float32),
        turned: wp.array2d(dtype=wp.float32),
        first: int,
    ):
        env = wp.tid() + first
        dt = body.dt
        size = wp.float32(STILL_SHARE)
        touch = wp.float32(0.0)
        limit = wp.float32(0.0)
        view = wp.zeros(shape=(view_size,), dtype=wp.float32)
        distance = wp.zeros(shape=(points,), dtype=wp.float32)
        speed = wp.zeros(shape=(points,), dtype=wp.float32)
        slip = wp.zeros(shape=(points,), dtype=wp.vec3)

        # From world axes into the robot's own.
        world = wp.identity(n=3, dtype=wp.float32)
        base_w = wp.vec3(0.0, 0.0, 0.0)
        if wp.static(free):
            world = wp.transpose(matrix_of(q[env, 3], q[env, 4], q[env, 5], q[env, 6]))
            base_w = wp.vec3(qd[env, 3], qd[env, 4], qd[env, 5])
        elif wp.static(not frozen_pose):
            for i in range(3):
                for j in range(3):
                    world[i, j] = turned[env, 3 * j + i]

        # The view from the robot's frame.
        for j in range(nj):
            position = q[env, j + q_shift]
            if body.unlimited[j] == 1:
                view[j] = wp.sin(position)
                view[nj + j] = wp.cos(position)
            else:
                view[j] = position
            view[2 * nj + j] = qd[env, j + dof_shift]
            view[3 * nj + j] = force[env, j]
        down = world * body.gravity
        outward = world * ground_normal[env]
        for i in range(3):
            if wp.static(gravity):
                view[at_gravity + i] = down[i]
            if wp.static(ground):
                view[at_normal + i] = outward[i]
            if wp.static(free):
                view[at_spin + i] = base_w[i]
        if wp.static(ground and not frozen_pose):
            for k in range(candidates):
                slot = body.slot[k]
                if slot >= 0:
                    distance[slot] = distances[env, k]
                    speed[slot] = speeds[env, k]
                    slip[slot] = world * wp.vec3(slips[env, 3 * k], slips[env, 3 * k + 1], slips[env, 3 * k + 2])

        # The canonical one of its equivalents, the first if several are as good.
        e = wp.int32(0)
        if wp.static(elements > 1):
            values = per_element()
            for i in range(view_size):
                values += view[i] * functional[i]
            best = values[0]
            for g in range(1, elements):
                if values[g] > best:
                    best = values[g]
                    e = g
        element[env] = e

        for i in range(shown):
            k = body.shown[i]
            row = k // nj
            value = view[row * nj + views.permutation[e, k - row * nj]] * views.joint_sign[e, k]
            put(inputs, env, i, value, scale)
            if wp.static(free_fall) and row >= 2:
                value = value / scale.input_std[i]
                size += BUSY_SHARE * value * value / float(nj)
        rotation_f = views.vector[e]
        down = rotation_f * down
        outward = rotation_f * outward
        base_w = views.pseudo[e] * base_w
        for i in range(3):
            if wp.static(gravity):
                put(inputs, env, at_gravity - hidden + i, down[i], scale)
            if wp.static(ground):
                put(inputs, env, at_normal - hidden + i, outward[i], scale)
            if wp.static(free):
                put(inputs, env, at_spin - hidden + i, base_w[i], scale)
            if wp.static(free_fall):
                value = base_w[i] / scale.input_std[at_spin - hidden + i]
                size += BUSY_SHARE * value * value / 3.0
        if wp.static(ground):
            for k in range(distinct):
                at = views.candidates[e, k]
                if wp.static(frozen_pose):
                    put_predicted(inputs, env, at_near + k, ahead[env, body.distinct[at]], scale)
                else:
                    near = put_near(
                        inputs, env, at_near + k, distinct, distance[at], speed[at], dt, predicted_distance, scale
                    )
                    touch = wp.max(touch, near)
                    sliding = near * (rotation_f * slip[at])
                    for i in range(3):
                        put(inputs, env, at_slip + i * distinct + k, sliding[i], scale)
        for k in range(limited):
            j = body.limited[k]
            at = views.permutation[e, j]
            position = view[at] * views.joint_sign[e, j]
            rate = view[2 * nj + at] * views.joint_sign[e, 2 * nj + j]
            if wp.static(frozen_pose):
                put_predicted(inputs, env, at_limits + k, position - body.lower[k] + dt * rate, scale)
                put_predicted(inputs, env, at_limits + limited + k, body.upper[k] - position - dt * rate, scale)
            else:
                gap = position - body.lower[k]
                lower = put_near(inputs, env, at_limits + k, 2 * limited, gap, rate, dt, predicted_distance, scale)
                gap = body.upper[k] - position
                upper = put_near(
                    inputs, env, at_limits + limited + k, 2 * limited, gap, -rate, dt, predicted_distance, scale
                )
                limit = wp.max(limit, wp.max(lower, upper))
        if wp.static(frozen_pose):
            # The prior's change beyond free fall; where there is none the output is gated.
            prior_v = rotation_f * wp.vec3(change[env, 0], change[env, 1], change[env, 2]) - body.fall * down
            prior_w = views.pseudo[e] * wp.vec3(change[env, 3], change[env, 4], change[env, 5])
            for j in range(6 + nj):
                if j < 3:
                    value = prior_v[j]
                elif j < 6:
                    value = prior_w[j - 3]
                else:
                    value = views.sign[e, j - 6] * change[env, 6 + views.permutation[e, j - 6]]
                put(inputs, env, at_prior + j, value, scale)
                value = value / scale.input_std[at_prior + j]
                size += BUSY_SHARE * value * value / float(6 + nj)
            gate[env] = wp.sqrt(wp.min(1.0, size))
        if wp.static(free_fall):
            touch = wp.max(0.0, 1.0 - (1.0 - touch) / TOUCH_SHARE)
            limit = wp.max(0.0, 1.0 - (1.0 - limit) / TOUCH_SHARE)
            gate[env] = wp.sqrt(wp.min(1.0, size + touch * touch + limit * limit))

    return kernel_of(encode, "encode", sizes)
