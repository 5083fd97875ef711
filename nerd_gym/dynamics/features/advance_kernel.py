"""The step that a network's output means, as a Warp kernel with a thread per environment."""

from __future__ import annotations

from functools import lru_cache

import warp as wp

from .kernel_tables import CONSTANT_VELOCITY, FREE_FALL, FROZEN_POSE, Body, Scale, Sizes, Views, kernel_of, matrix_of


@lru_cache(maxsize=32)
def advance_kernel(sizes: Sizes) -> wp.Kernel:
    """Moves q and qd of environments `first`, ... in position_f by what a network's output [N, 2 nv] means."""
    nj, free, prior = sizes.joints, sizes.free, sizes.prior
    gated, free_fall, frozen_pose = prior != CONSTANT_VELOCITY, prior == FREE_FALL, prior == FROZEN_POSE
    q_shift, dof_shift = (7, 6) if free else (0, 0)
    nv = nj + dof_shift
    size = 2 * nv

    def advance(
        outputs: wp.array2d(dtype=wp.float32),
        element: wp.array(dtype=wp.int32),
        gate: wp.array(dtype=wp.float32),
        prior_step: wp.array2d(dtype=wp.float32),
        prior_change: wp.array2d(dtype=wp.float32),
        body: Body,
        views: Views,
        scale: Scale,
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        first: int,
    ):
        env = wp.tid() + first
        dt = body.dt
        out = wp.zeros(shape=(size,), dtype=wp.float32)
        for i in range(size):
            value = outputs[env, i] * scale.output_std[i]
            if wp.static(gated):
                value = gate[env] * value
            value = scale.output_mean[i] + value
            limit = scale.output_limit[i]
            if value > limit:
                value = limit
            if value < -limit:
                value = -limit
            out[i] = value

        e = views.inverse[element[env]]
        for j in range(nj):
            at = dof_shift + views.permutation[e, j]
            sign = views.sign[e, j]
            change = sign * out[nv + at]
            rate = qd[env, dof_shift + j]
            displacement = sign * out[at] + dt * 0.5 * change
            if wp.static(frozen_pose):
                displacement += prior_step[env, dof_shift + j]
                change += prior_change[env, dof_shift + j]
            else:
                displacement += dt * rate
            q[env, q_shift + j] = q[env, q_shift + j] + displacement
            qd[env, dof_shift + j] = rate + change
        if wp.static(free):
            rotation_f = views.vector[e]
            pseudo = views.pseudo[e]
            residual_v = rotation_f * wp.vec3(out[0], out[1], out[2])
            residual_w = pseudo * wp.vec3(out[3], out[4], out[5])
            change_v = rotation_f * wp.vec3(out[nv], out[nv + 1], out[nv + 2])
            change_w = pseudo * wp.vec3(out[nv + 3], out[nv + 4], out[nv + 5])
            quat = wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3])
            rotation = matrix_of(quat[3], quat[0], quat[1], quat[2])
            velocity = wp.vec3(qd[env, 0], qd[env, 1], qd[env, 2])
            w = wp.vec3(qd[env, 3], qd[env, 4], qd[env, 5])
            if wp.static(free_fall):
                change_v = change_v + body.fall * (wp.transpose(rotation) * body.gravity)
            moved = residual_v + 0.5 * dt * change_v
            step = residual_w + 0.5 * dt * change_w
            if wp.static(frozen_pose):
                moved += wp.vec3(prior_step[env, 0], prior_step[env, 1], prior_step[env, 2])
                step += wp.vec3(prior_step[env, 3], prior_step[env, 4], prior_step[env, 5])
                change_v += wp.vec3(prior_change[env, 0], prior_change[env, 1], prior_change[env, 2])
                change_w += wp.vec3(prior_change[env, 3], prior_change[env, 4], prior_change[env, 5])
            else:
                moved += dt * (wp.transpose(rotation) * velocity)
                step += dt * w
            moved = rotation * moved
            velocity = velocity + rotation * change_v
            angle = wp.length(step)
            share = 0.5
            if angle > 1.0e-6:
                share = wp.sin(0.5 * angle) / angle
            whole = wp.cos(0.5 * angle)
            part = share * step
            quat = wp.normalize(quat * wp.quat(part[0], part[1], part[2], whole))
            w = wp.transpose(matrix_of(whole, part[0], part[1], part[2])) * (w + change_w)
            for i in range(3):
                q[env, i] = q[env, i] + moved[i]
                q[env, 4 + i] = quat[i]
                qd[env, i] = velocity[i]
                qd[env, 3 + i] = w[i]
            q[env, 3] = quat[3]

    return kernel_of(advance, "advance", sizes)
