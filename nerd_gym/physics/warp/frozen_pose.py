"""The frozen-pose prior: a frame of a robot with a free base, computed at few poses, for a network to correct.

A simulator computes poses, mass matrix and motion forces anew in every substep. Here the pose is updated a few times
per frame: at the pose half way through an update's substeps the mass matrix H is factored once, and each of the points
that may touch the ground has its Jacobian J. The substeps are then no more than

    velocity of a point = J u;    u += dt H^-1 (free + limits(q, u) + sum of J^T contact force);    q += dt u

with contacts and limits as stiff as they are, or constraints (constraint_law.py). What frozen poses get wrong is left
to the network. Inertias and the contact law come from data (dynamics/identify).

An update is in the axes that the base has half way, about its origin, in a world that moves with the base's velocity at
the update's start. A thread computes a few robots in SIMD lanes (simd.py).
"""

from __future__ import annotations

from functools import lru_cache

import warp as wp

from .constraint_law import ConstraintParams, constraint_substeps
from .constraint_rows import row_columns
from .dof_paths import DofPaths, Shape
from .simd import (
    any_positive,
    cross,
    dot,
    product,
    product_one,
    product_transposed,
    scaled,
    simd_types,
    times,
    times_one,
)
from .tree import PhysicsParams, Tree

AHEAD = wp.constant(1.5)  # a point counts that would touch within so many pose updates at its present speed,
CLOSE = wp.constant(0.01)  # or come as close as this, m
FAR = wp.constant(-1.0e6)  # depth of no point, m
SLOWEST = wp.constant(1.0e-20)  # m/s, against dividing by zero


@lru_cache(maxsize=32)
def frozen_pose_kernel(shape: Shape, width: int, constraint: bool = False, paired: bool = False) -> wp.Kernel:
    """Step and change of velocity [N, nv] of rows `first`, ..., in the base's axes at the frame's start.

    And how far over the ground the candidates [N, C] would be at its end, if nothing happened until then. A thread
    computes `width` robots. Contacts and limits are springs and dampers, or MuJoCo's constraints; a kernel has the code
    of one law only. `paired`, H holds other links' inertias (tree.inertia_of), the forces of motion the right ones, as
    in the published simulator: there H multiplies spatial accelerations, and the base's w x v no longer cancels.
    """
    links, contacts = len(shape.parents), shape.contacts
    nv = links + 5
    deepest = max(1, shape.deepest)
    points = max(1, contacts)
    entries, motions, coordinates, edges, levers = nv * nv, 3 * nv, 3 * points, 4 * points, 3 * points * deepest
    row_entries, edge_columns = (3 * points + links) * row_columns(shape), 12 * points
    Number, Vector, Quat, Matrix = simd_types(width)

    def rows(size: int) -> type:
        return wp.types.matrix((size, width), wp.float32)

    per_base, per_dof, per_link, per_entry = rows(6), rows(nv), rows(links), rows(nv * nv)
    per_point, per_position, per_reach = rows(points), rows(3 * points), rows(3 * points * deepest)
    links_of = wp.types.vector(points, wp.int32)
    constraint_steps = constraint_substeps(shape, width)

    def frozen_pose(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        force: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        physics: PhysicsParams,
        paths: DofPaths,
        law: ConstraintParams,
        pose_updates: int,
        step: wp.array2d(dtype=wp.float32),
        change: wp.array2d(dtype=wp.float32),
        ahead: wp.array2d(dtype=wp.float32),
        first: int,
    ):
        begin = wp.tid() * width + first
        last = q.shape[0] - 1  # lanes beyond it repeat this row
        dt = physics.dt
        # Loops up to these stay loops; those up to numbers that Python knows are written out.
        all_links = int(links)
        all_contacts = int(contacts)
        all_dofs = int(nv)
        all_base = wp.int32(6)
        lanes = int(width)

        rotation = wp.zeros(shape=(links,), dtype=Matrix)
        origin = wp.zeros(shape=(links,), dtype=Vector)
        axis_w = wp.zeros(shape=(links,), dtype=Vector)
        axis_v = wp.zeros(shape=(links,), dtype=Vector)
        vel_w = wp.zeros(shape=(links,), dtype=Vector)
        vel_v = wp.zeros(shape=(links,), dtype=Vector)
        acc_w = wp.zeros(shape=(links,), dtype=Vector)
        acc_v = wp.zeros(shape=(links,), dtype=Vector)
        bias_m = wp.zeros(shape=(links,), dtype=Vector)
        bias_f = wp.zeros(shape=(links,), dtype=Vector)
        mass = wp.zeros(shape=(links,), dtype=wp.float32)  # the same in all lanes
        first_moment = wp.zeros(shape=(links,), dtype=Vector)
        inertia_o = wp.zeros(shape=(links,), dtype=Matrix)
        if constraint:  # arrays, which functions take without copying them
            H = wp.zeros(shape=(entries,), dtype=Number)
            depth = wp.zeros(shape=(points,), dtype=Number)
            position_of = wp.zeros(shape=(coordinates,), dtype=Number)
            tangent_of = wp.zeros(shape=(coordinates,), dtype=Number)
            reach = wp.zeros(shape=(levers,), dtype=Number)
            link_of = wp.zeros(shape=(points,), dtype=wp.int32)
            candidate_of = wp.zeros(shape=(points,), dtype=wp.int32)
            pressed = wp.zeros(shape=(edges,), dtype=Number)
            stopped = wp.zeros(shape=(links,), dtype=Number)
            motion = wp.zeros(shape=(motions,), dtype=Number)
            whitened_rows = wp.zeros(shape=(row_entries,), dtype=Number)
            columns_of = wp.zeros(shape=(edge_columns,), dtype=Number)
            own_of = wp.zeros(shape=(edges,), dtype=Number)
            inverse_of = wp.zeros(shape=(edges,), dtype=Number)
            soft_of = wp.zeros(shape=(points,), dtype=Number)
            velocity_of = wp.zeros(shape=(coordinates,), dtype=Number)
            target_of = wp.zeros(shape=(coordinates,), dtype=Number)
        else:
            H = per_entry()
            depth = per_point()
            position_of = per_position()
            reach = per_reach()
            link_of = links_of()
        free = per_dof()  # what moves it but for contacts, limits, damping and springs
        u = per_dof()
        x = per_dof()
        displacement = per_dof()
        angle = per_link()
        tau = per_link()
        base = per_base()
        one = Number(1.0)
        none = Number(0.0)

        # Where the frame starts, and how far it has come since then.
        start = Quat()
        w = Vector()
        start_v = Vector()
        plane = Vector()
        height = Number()
        come = Quat()
        come_v = Vector()
        moved = Vector()
        for r in range(lanes):
            env = wp.min(begin + r, last)
            for i in range(3):
                start[i, r] = q[env, 4 + i]
                start_v[i, r] = qd[env, i]
                w[i, r] = qd[env, 3 + i]
                plane[i, r] = ground_normal[env][i]
            start[3, r] = q[env, 3]
            come[3, r] = 1.0
            height[r] = wp.dot(ground_normal[env], wp.vec3(q[env, 0], q[env, 1], q[env, 2]) - ground_point[env])
            for l in range(1, all_links):
                angle[l, r] = q[env, l + 6] - tree.zero[l]
                tau[l, r] = force[env, l - 1] + tree.stiffness[l] * tree.rest[l]
                u[l + 5, r] = qd[env, l + 5]

        for update in range(pose_updates):
            substeps = physics.substeps * (update + 1) / pose_updates - physics.substeps * update / pose_updates
            span = dt * float(substeps)
            half = 0.5 * span
            base_v = Vector()
            gravity = Vector()
            normal = Vector()
            sideways = Vector()  # first tangent of a contact without an axis of its own
            turned = Quat()
            for r in range(lanes):
                spinning = wp.vec3(w[0, r], w[1, r], w[2, r])  # the same in the axes half way
                turning = wp.quat_from_axis_angle(wp.normalize(spinning), half * wp.length(spinning))
                now = wp.quat(start[0, r], start[1, r], start[2, r], start[3, r])
                now = now * wp.quat(come[0, r], come[1, r], come[2, r], come[3, r])
                into = wp.transpose(wp.quat_to_matrix(wp.normalize(now * turning)))  # from the world
                now_v = into * wp.vec3(
                    start_v[0, r] + come_v[0, r], start_v[1, r] + come_v[1, r], start_v[2, r] + come_v[2, r]
                )
                down = into * physics.gravity
                up = into * wp.vec3(plane[0, r], plane[1, r], plane[2, r])
                if constraint:
                    # As MuJoCo chooses it: the world's y, or z if the normal is near to that.
                    side = wp.where(wp.abs(plane[1, r]) < 0.5, wp.vec3(0.0, 1.0, 0.0), wp.vec3(0.0, 0.0, 1.0))
                    side = into * side
                    for i in range(3):
                        sideways[i, r] = side[i]
                for i in range(3):
                    base_v[i, r] = now_v[i]
                    gravity[i, r] = down[i]
                    normal[i, r] = up[i]
                for i in range(4):
                    turned[i, r] = turning[i]
            over = height + dot(plane, moved)

            # Poses, motion axes, velocities and the forces that the motion needs, root to leaves.
            identity = Matrix()
            identity[0] = one
            identity[4] = one
            identity[8] = one
            rotation[0] = identity
            vel_w[0] = w
            acc_v[0] = -gravity
            drift = Vector()
            if paired:
                drift = cross(w, base_v)
                acc_v[0] = drift - gravity
            for l in range(all_links):
                if l > 0:
                    p = tree.parent[l]
                    from_p = rotation[p]
                    pw = vel_w[p]
                    pv = vel_v[p]
                    axis = times_one(from_p, tree.axis[l])
                    position = origin[p] + times_one(from_p, tree.offset[l])
                    rate = u[l + 5]
                    there = angle[l] + half * rate
                    if tree.slide[l] == 1:
                        rotation[l] = product_one(from_p, tree.rotation[l])
                        position = position + scaled(axis, there)
                        axis_w[l] = Vector()
                        axis_v[l] = axis
                        vel_w[l] = pw
                        vel_v[l] = pv + scaled(axis, rate)
                        acc_w[l] = acc_w[p]
                        acc_v[l] = acc_v[p] + scaled(cross(pw, axis), rate)
                    else:
                        sine = Number()
                        versine = Number()
                        for r in range(lanes):
                            sine[r] = wp.sin(there[r])
                            versine[r] = 1.0 - wp.cos(there[r])
                        t = tree.rotation[l]
                        t_sin = tree.rotation_sin[l]
                        t_cos = tree.rotation_cos[l]
                        joint_rotation = Matrix()
                        for i in range(3):
                            for j in range(3):
                                joint_rotation[3 * i + j] = Number(t[i, j]) + t_sin[i, j] * sine + t_cos[i, j] * versine
                        rotation[l] = product(from_p, joint_rotation)
                        swing = cross(position, axis)
                        axis_w[l] = axis
                        axis_v[l] = swing
                        vel_w[l] = pw + scaled(axis, rate)
                        vel_v[l] = pv + scaled(swing, rate)
                        acc_w[l] = acc_w[p] + scaled(cross(pw, axis), rate)
                        acc_v[l] = acc_v[p] + scaled(cross(pw, swing) + cross(pv, axis), rate)
                    origin[l] = position
                m = tree.mass[l]
                own = rotation[l]
                com = origin[l] + times_one(own, tree.com[l])
                h = m * com
                about = product_transposed(product_one(own, tree.inertia[l]), own)
                square = dot(com, h)
                for i in range(3):
                    for j in range(3):
                        about[3 * i + j] = about[3 * i + j] - wp.cw_mul(com[i], h[j])
                    about[4 * i] = about[4 * i] + square
                mass[l] = m
                first_moment[l] = h
                inertia_o[l] = about
                lw = vel_w[l]
                lv = vel_v[l]
                momentum_m = times(about, lw) + cross(h, lv)
                momentum_f = m * lv - cross(h, lw)
                aw = acc_w[l]
                av = acc_v[l]
                bias_m[l] = times(about, aw) + cross(h, av) + cross(lw, momentum_m) + cross(lv, momentum_f)
                bias_f[l] = m * av - cross(h, aw) + cross(lw, momentum_f)

            if paired:
                # Swapped in pairs, so that nothing is overwritten before it is read.
                for l in range(all_links):
                    j = tree.inertia_of[l]
                    if j > l:
                        m = mass[l]
                        h = first_moment[l]
                        about = inertia_o[l]
                        mass[l] = mass[j]
                        first_moment[l] = first_moment[j]
                        inertia_o[l] = inertia_o[j]
                        mass[j] = m
                        first_moment[j] = h
                        inertia_o[j] = about

            # Forces but for contacts and limits, and the mass matrix, leaves to root.
            for back in range(1, all_links):
                l = links - back
                p = tree.parent[l]
                lw = axis_w[l]
                lv = axis_v[l]
                free[l + 5] = tau[l] - dot(lw, bias_m[l]) - dot(lv, bias_f[l])
                bias_m[p] = bias_m[p] + bias_m[l]
                bias_f[p] = bias_f[p] + bias_f[l]
                mass[p] = mass[p] + mass[l]
                first_moment[p] = first_moment[p] + first_moment[l]
                inertia_o[p] = inertia_o[p] + inertia_o[l]
                need_m = times(inertia_o[l], lw) + cross(first_moment[l], lv)
                need_f = mass[l] * lv - cross(first_moment[l], lw)
                if paired:
                    free[l + 5] = free[l + 5] + dot(need_f, drift)
                row = (l + 5) * nv
                H[row + l + 5] = dot(lw, need_m) + dot(lv, need_f) + Number(tree.armature[l])
                if constraint:
                    # Springs and dampers of joints are implicit over the whole update.
                    there = angle[l] + half * u[l + 5]
                    free[l + 5] = free[l + 5] - tree.damping[l] * u[l + 5] - tree.stiffness[l] * there
                    implicit = span * (tree.damping[l] + 0.25 * span * tree.stiffness[l])
                    H[row + l + 5] = H[row + l + 5] + Number(implicit)
                while p >= 1:
                    H[row + p + 5] = dot(axis_w[p], need_m) + dot(axis_v[p], need_f)
                    p = tree.parent[p]
                for i in range(3):
                    H[row + i] = need_m[i]
                    H[row + i + 3] = need_f[i]
            bias_mass = bias_m[0]
            bias_force = bias_f[0]
            whole = inertia_o[0]
            h = first_moment[0]
            if paired:
                bias_mass = bias_mass - cross(h, drift)
                bias_force = bias_force - mass[0] * drift
            for i in range(3):
                free[i] = -bias_mass[i]
                free[i + 3] = -bias_force[i]
                u[i] = w[i]
                u[i + 3] = none
                displacement[i] = none
                displacement[i + 3] = none
                for j in range(3):
                    H[i * nv + j] = whole[3 * i + j]
                    H[(i + 3) * nv + j] = none
                    H[(i + 3) * nv + j + 3] = none
                H[(i + 3) * nv + i + 3] = Number(mass[0])
            H[3 * nv + 1] = h[2]
            H[3 * nv + 2] = -h[1]
            H[4 * nv + 0] = -h[2]
            H[4 * nv + 2] = h[0]
            H[5 * nv + 0] = h[1]
            H[5 * nv + 1] = -h[0]

            # H = L^T D L, in place: L below the diagonal, 1 / D on it. First the joints, then the base.
            for back in range(1, all_links):
                l = links - back
                row = (l + 5) * nv
                inverse = wp.cw_div(one, H[row + l + 5])
                for s in range(paths.depth[l] - 1):
                    i = paths.dof[l, s]
                    ratio = wp.cw_mul(H[row + i], inverse)
                    for other in range(s + 1):
                        k = paths.dof[l, other]
                        H[i * nv + k] = H[i * nv + k] - wp.cw_mul(ratio, H[row + k])
                    for j in range(all_base):
                        H[i * nv + j] = H[i * nv + j] - wp.cw_mul(ratio, H[row + j])
                for i in range(all_base):
                    ratio = wp.cw_mul(H[row + i], inverse)
                    for j in range(i + 1):
                        H[i * nv + j] = H[i * nv + j] - wp.cw_mul(ratio, H[row + j])
                H[row + l + 5] = inverse
            for back in range(all_base):
                row = (5 - back) * nv
                inverse = wp.cw_div(one, H[row + 5 - back])
                for i in range(5 - back):
                    ratio = wp.cw_mul(H[row + i], inverse)
                    for j in range(i + 1):
                        H[i * nv + j] = H[i * nv + j] - wp.cw_mul(ratio, H[row + j])
                H[row + 5 - back] = inverse
            for k in range(all_dofs):
                for i in range(k):
                    H[k * nv + i] = wp.cw_mul(H[k * nv + i], H[k * nv + k])

            # Jacobians of the points that may touch the ground in this update, in any of the lanes.
            toward = dot(normal, base_v)
            touching = wp.int32(0)
            for n in range(all_contacts):
                l = tree.contact_link[n]
                point = origin[l] + times_one(rotation[l], tree.contact_point[n]) - tree.contact_radius[n] * normal
                approach = dot(normal, vel_v[l] + cross(vel_w[l], point))
                deep = half * approach - over - dot(normal, point)  # at the update's start
                approach = approach + toward
                if update == 0:
                    for r in range(lanes):
                        env = wp.min(begin + r, last)
                        ahead[env, n] = dt * float(physics.substeps) * approach[r] - deep[r]
                close = deep - (AHEAD * span) * wp.min(approach, none) + Number(CLOSE)
                if constraint:
                    # Forces of a point that was far away start at zero again.
                    for e in range(4):
                        force_e = pressed[4 * n + e]
                        r = wp.int32(0)
                        while r < width:
                            force_e[r] = wp.where(close[r] > 0.0, force_e[r], 0.0)
                            r += 1
                        pressed[4 * n + e] = force_e
                if any_positive(close):
                    # No lane shall know what happens in another.
                    r = wp.int32(0)
                    while r < width:
                        deep[r] = wp.where(close[r] > 0.0, deep[r], FAR)
                        r += 1
                    if constraint:
                        # MuJoCo's forces act half way between the two surfaces.
                        point = point + scaled(normal, 0.5 * wp.max(deep, none))
                    depth[touching] = deep
                    link_of[touching] = l
                    for i in range(3):
                        position_of[3 * touching + i] = point[i]
                    if constraint:
                        candidate_of[touching] = n
                        tangent = sideways
                        if wp.length_sq(law.axis[n]) > 0.0:
                            tangent = times_one(rotation[l], law.axis[n])
                        tangent = tangent - scaled(normal, dot(normal, tangent))
                        shorten = dot(tangent, tangent)
                        for r in range(lanes):
                            shorten[r] = 1.0 / wp.max(wp.sqrt(shorten[r]), SLOWEST)
                        for i in range(3):
                            tangent_of[3 * touching + i] = wp.cw_mul(tangent[i], shorten)
                    for s in range(paths.depth[l]):
                        k = paths.dof[l, s] - 5
                        lever = axis_v[k] + cross(axis_w[k], point)
                        for i in range(3):
                            reach[3 * (touching * deepest + s) + i] = lever[i]
                    touching += 1

            if constraint:
                for k in range(all_dofs):
                    motion[k] = free[k]
                    motion[nv + k] = u[k]
                constraint_steps(
                    substeps,
                    dt,
                    touching,
                    H,
                    motion,
                    angle,
                    depth,
                    link_of,
                    candidate_of,
                    position_of,
                    tangent_of,
                    reach,
                    pressed,
                    stopped,
                    whitened_rows,
                    columns_of,
                    own_of,
                    inverse_of,
                    soft_of,
                    velocity_of,
                    target_of,
                    normal,
                    base_v,
                    tree,
                    paths,
                    law,
                )
                for k in range(all_dofs):
                    u[k] = motion[nv + k]
                    displacement[k] = displacement[k] + motion[2 * nv + k]
                    if k > 5:
                        angle[k - 5] = angle[k - 5] + motion[2 * nv + k]
            else:
                for sub in range(substeps):
                    for l in range(1, all_links):
                        rate = u[l + 5]
                        there = angle[l]
                        push = free[l + 5] - tree.damping[l] * rate - tree.stiffness[l] * there
                        past = wp.min(there - Number(tree.lower[l]), none) + wp.max(there - Number(tree.upper[l]), none)
                        stop = physics.limit_ke * past + physics.limit_kd * rate
                        r = wp.int32(0)
                        while r < width:
                            stop[r] = wp.where(past[r] == 0.0, 0.0, stop[r])
                            r += 1
                        x[l + 5] = push - stop
                    push_m = wp.matrix_from_rows(free[0], free[1], free[2])
                    push_f = wp.matrix_from_rows(free[3], free[4], free[5])
                    new_w = wp.matrix_from_rows(u[0], u[1], u[2])
                    new_v = base_v + wp.matrix_from_rows(u[3], u[4], u[5])
                    for n in range(touching):
                        l = link_of[n]
                        point = wp.matrix_from_rows(position_of[3 * n], position_of[3 * n + 1], position_of[3 * n + 2])
                        velocity = new_v + cross(new_w, point)
                        for s in range(paths.depth[l]):
                            slot = 3 * (n * deepest + s)
                            lever = wp.matrix_from_rows(reach[slot], reach[slot + 1], reach[slot + 2])
                            velocity = velocity + scaled(lever, u[paths.dof[l, s]])
                        deep = depth[n]
                        along = dot(velocity, normal)
                        if sub > 0:
                            deep = deep - dt * along
                            depth[n] = deep
                        if any_positive(deep):
                            # The law of contact_force in frame.py.
                            slip = velocity - scaled(normal, along)
                            speed = dot(slip, slip)
                            press = physics.ke * deep - physics.kd * wp.min(along, none)
                            r = wp.int32(0)
                            while r < width:
                                press[r] = wp.where(deep[r] > 0.0, press[r], 0.0)
                                size = wp.sqrt(speed[r])
                                if physics.huber == 1:
                                    size = wp.where(size <= 1.0, 0.5 * size * size, size - 0.5)
                                speed[r] = size
                                r += 1
                            hold = wp.cw_div(physics.mu * press, wp.max(speed, Number(SLOWEST)))
                            push_n = scaled(normal, press) - scaled(slip, wp.min(Number(physics.kf), hold))
                            push_f = push_f + push_n
                            push_m = push_m + cross(point, push_n)
                            for s in range(paths.depth[l]):
                                slot = 3 * (n * deepest + s)
                                k = paths.dof[l, s]
                                lever = wp.matrix_from_rows(reach[slot], reach[slot + 1], reach[slot + 2])
                                x[k] = x[k] + dot(lever, push_n)
                    for i in range(3):
                        base[i] = push_m[i]
                        base[i + 3] = push_f[i]
                    for back in range(1, all_links):
                        l = links - back
                        row = (l + 5) * nv
                        rate = x[l + 5]
                        for s in range(paths.depth[l] - 1):
                            i = paths.dof[l, s]
                            x[i] = x[i] - wp.cw_mul(H[row + i], rate)
                        for i in range(6):
                            base[i] = base[i] - wp.cw_mul(H[row + i], rate)
                        x[l + 5] = wp.cw_mul(rate, H[row + l + 5])
                    for back in range(5):
                        for i in range(5 - back):
                            base[i] = base[i] - wp.cw_mul(H[(5 - back) * nv + i], base[5 - back])
                    for k in range(6):
                        base[k] = wp.cw_mul(base[k], H[k * nv + k])
                        for i in range(k):
                            base[k] = base[k] - wp.cw_mul(H[k * nv + i], base[i])
                        x[k] = base[k]
                    for l in range(1, all_links):
                        row = (l + 5) * nv
                        rate = x[l + 5]
                        for i in range(6):
                            rate = rate - wp.cw_mul(H[row + i], base[i])
                        for s in range(paths.depth[l] - 1):
                            i = paths.dof[l, s]
                            rate = rate - wp.cw_mul(H[row + i], x[i])
                        x[l + 5] = rate
                    u = u + dt * x
                    displacement = displacement + dt * u
                    for l in range(1, all_links):
                        angle[l] = angle[l] + dt * u[l + 5]

            for r in range(lanes):
                turning = wp.quat(turned[0, r], turned[1, r], turned[2, r], turned[3, r])
                came = wp.quat(come[0, r], come[1, r], come[2, r], come[3, r])
                now = wp.quat(start[0, r], start[1, r], start[2, r], start[3, r]) * came
                old_w = wp.vec3(w[0, r], w[1, r], w[2, r])
                end_w = wp.vec3(u[0, r], u[1, r], u[2, r])
                went = wp.vec3(displacement[3, r], displacement[4, r], displacement[5, r])
                # The axes are still, the point that they are about is not.
                gained = wp.vec3(u[3, r], u[4, r], u[5, r]) + wp.cross(0.5 * (old_w + end_w), went)
                went = went + span * wp.vec3(base_v[0, r], base_v[1, r], base_v[2, r])
                gained = wp.quat_rotate(now, wp.quat_rotate(turning, gained))
                went = wp.quat_rotate(now, wp.quat_rotate(turning, went))
                swept = wp.quat_rotate(turning, wp.vec3(displacement[0, r], displacement[1, r], displacement[2, r]))
                turning_on = wp.quat_from_axis_angle(wp.normalize(swept), wp.length(swept))
                end_w = wp.quat_rotate_inv(turning_on, wp.quat_rotate(turning, end_w))
                came = wp.normalize(came * turning_on)
                for i in range(3):
                    come_v[i, r] = come_v[i, r] + gained[i]
                    moved[i, r] = moved[i, r] + went[i]
                    w[i, r] = end_w[i]
                for i in range(4):
                    come[i, r] = came[i]

        for r in range(lanes):
            env = wp.min(begin + r, last)
            now = wp.quat(start[0, r], start[1, r], start[2, r], start[3, r])
            came = wp.quat(come[0, r], come[1, r], come[2, r], come[3, r])
            went = wp.quat_rotate_inv(now, wp.vec3(moved[0, r], moved[1, r], moved[2, r]))
            gained = wp.quat_rotate_inv(now, wp.vec3(come_v[0, r], come_v[1, r], come_v[2, r]))
            end_w = wp.quat_rotate(came, wp.vec3(w[0, r], w[1, r], w[2, r]))
            swept = wp.vec3(came[0], came[1], came[2])
            size = wp.length(swept)
            share = 2.0
            if size > 1.0e-7:
                share = 2.0 * wp.atan2(size, came[3]) / size
            for i in range(3):
                step[env, i] = went[i]
                step[env, i + 3] = share * swept[i]
                change[env, i] = gained[i]
                change[env, i + 3] = end_w[i] - qd[env, 3 + i]
            for k in range(6, all_links + 5):
                step[env, k] = displacement[k, r]
                change[env, k] = u[k, r] - qd[env, k]

    name = "frozen_pose_constraint" if constraint else "frozen_pose"
    if paired:
        name += "_paired"
    key = "_".join([name, *map(str, shape.parents), str(nv), str(contacts), str(width)]).replace("-", "m")
    module = wp.get_module(f"nerd_gym.frozen_pose.{key}")
    module.options["enable_backward"] = False
    module.options["max_unroll"] = 6
    return wp.Kernel(frozen_pose, key=key, module=module)
