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
from .constraint_state import constraint_memory
from .factor import factor_functions
from .links import link_functions
from .near_contacts import near_functions
from .penalty_substeps import penalty_substeps
from .simd import SMALLEST, any_positive, cross, dot, rows, scaled, simd_types, times_one, views
from .tree import PhysicsParams, Tree, TreeShape

AHEAD = wp.constant(1.5)  # a point counts that would touch within so many pose updates at its present speed,
CLOSE = wp.constant(0.01)  # or come as close as this, m
FAR = wp.constant(-1.0e6)  # depth of no point, m


@lru_cache(maxsize=32)
def frozen_pose_kernel(shape: TreeShape, width: int, constraint: bool = False, paired: bool = False) -> wp.Kernel:
    """Step and change of velocity [N, nv] of rows `first`, ..., in the base's axes at the frame's start.

    And how far over the ground the candidates [N, C] would be at its end, if nothing happened until then. A thread
    computes `width` robots. Contacts and limits are springs and dampers, or MuJoCo's constraints; a kernel has the code
    of one law only. `paired`, H holds other links' inertias (tree.inertia_of), the forces of motion the right ones, as
    in the published simulator: there H multiplies spatial accelerations, and the base's w x v no longer cancels.
    """
    links, contacts, nv, deepest = len(shape.parents), shape.contacts, shape.nv, max(1, shape.deepest)
    entries = shape.rows()[-1]
    Number, Vector, Quat, Matrix = simd_types(width)
    per_dof, per_link, per_entry = (rows(size, width) for size in (nv, links, entries))
    numbers = views(Number, width)
    of_links, of_matrix = link_functions(shape, width), factor_functions(shape, width)
    of_near = near_functions(shape, width)
    Room, links_in, move, weigh = of_links.room, of_links.opened, of_links.move, of_links.weigh
    point_of, velocity_at, bias_of, swap = of_links.point, of_links.velocity, of_links.bias, of_links.swap
    add_inertia, add_base, factor, diagonal = of_links.inertia, of_links.base, of_matrix.factor, of_matrix.diagonal
    NearRoom, NearIndices, near_in = of_near.room, of_near.index_room, of_near.opened
    if constraint:
        _, ConstraintRoom, constraints_in = constraint_memory(shape, width)
        take_substeps = constraint_substeps(shape, width)
    else:
        take_substeps = penalty_substeps(shape, width)

    def frozen_pose(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        force: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        physics: PhysicsParams,
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
        lanes = int(width)

        link_room = Room()
        s = links_in(wp.address_of(link_room))
        near_room = NearRoom()
        near_indices = NearIndices()
        near = near_in(wp.address_of(near_room), wp.address_of(near_indices))
        H_room = per_entry()
        H = numbers(wp.address_of(H_room), 0, entries)
        free_room = per_dof()  # what moves it but for contacts, limits, damping and springs
        free = numbers(wp.address_of(free_room), 0, nv)
        u_room = per_dof()
        u = numbers(wp.address_of(u_room), 0, nv)
        went_room = per_dof()
        displacement = numbers(wp.address_of(went_room), 0, nv)
        angle_room = per_link()
        angle = numbers(wp.address_of(angle_room), 0, links)
        tau = per_link()
        if wp.static(constraint):
            constraint_room = ConstraintRoom()
            c = constraints_in(wp.address_of(constraint_room))
        else:
            x_room = per_dof()
            x = numbers(wp.address_of(x_room), 0, nv)
        one = Number(1.0)
        none = Number(0.0)
        identity = Matrix()
        identity[0] = one
        identity[4] = one
        identity[8] = one

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
                angle_room[l, r] = q[env, l + 6] - tree.zero[l]
                tau[l, r] = force[env, l - 1] + tree.stiffness[l] * tree.rest[l]
                u_room[l + 5, r] = qd[env, l + 5]

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
                if wp.static(constraint):
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

            # Poses, motions, inertias and the forces that the motion needs, root to leaves.
            s.rotation[0] = identity
            s.vel_w[0] = w
            s.vel_v[0] = Vector()
            s.acc_w[0] = Vector()
            drift = Vector()
            if wp.static(paired):
                drift = cross(w, base_v)
            s.acc_v[0] = drift - gravity
            weigh(s, tree, 0)
            for l in range(1, all_links):
                move(s, tree, l, angle[l] + half * u[l + 5], u[l + 5], -gravity)
                weigh(s, tree, l)
            if wp.static(paired):
                swap(s, tree)

            # Forces but for contacts and limits, and the mass matrix, leaves to root.
            for back in range(1, all_links):
                l = links - back
                free[l + 5] = tau[l] - bias_of(s, tree, l)
                add_inertia(s, tree, l, H)
                if wp.static(paired):
                    row = tree.row[l] + 3
                    for i in range(3):
                        free[l + 5] = free[l + 5] + wp.cw_mul(H[row + i], drift[i])
                if wp.static(constraint):
                    # Springs and dampers of joints are implicit over the whole update.
                    there = angle[l] + half * u[l + 5]
                    free[l + 5] = free[l + 5] - tree.damping[l] * u[l + 5] - tree.stiffness[l] * there
                    implicit = span * (tree.damping[l] + 0.25 * span * tree.stiffness[l])
                    own = diagonal(tree, l + 5)
                    H[own] = H[own] + Number(implicit)
            add_base(s, tree, H)
            moment = s.bias_m[0]
            thrust = s.bias_f[0]
            if wp.static(paired):
                moment = moment - cross(s.first_moment[0], drift)
                thrust = thrust - tree.composite_mass[0] * drift
            for i in range(3):
                free[i] = -moment[i]
                free[i + 3] = -thrust[i]
                u[i] = w[i]
                u[i + 3] = none
                displacement[i] = none
                displacement[i + 3] = none
            factor(H, tree)

            # Jacobians of the points that may touch the ground in this update, in any of the lanes.
            toward = dot(normal, base_v)
            touching = wp.int32(0)
            for n in range(all_contacts):
                l = tree.contact_link[n]
                point = point_of(s, tree, n) - tree.contact_radius[n] * normal
                approach = dot(normal, velocity_at(s, l, point))
                deep = half * approach - over - dot(normal, point)  # at the update's start
                approach = approach + toward
                if update == 0:
                    for r in range(lanes):
                        env = wp.min(begin + r, last)
                        ahead[env, n] = dt * float(physics.substeps) * approach[r] - deep[r]
                close = deep - (AHEAD * span) * wp.min(approach, none) + Number(CLOSE)
                if wp.static(constraint):
                    # Forces of a point that was far away start at zero again.
                    for e in range(4):
                        force_e = c.pressed[4 * n + e]
                        r = wp.int32(0)
                        while r < width:
                            force_e[r] = wp.where(close[r] > 0.0, force_e[r], 0.0)
                            r += 1
                        c.pressed[4 * n + e] = force_e
                if any_positive(close):
                    # No lane shall know what happens in another.
                    r = wp.int32(0)
                    while r < width:
                        deep[r] = wp.where(close[r] > 0.0, deep[r], FAR)
                        r += 1
                    if wp.static(constraint):
                        # MuJoCo's forces act half way between the two surfaces.
                        point = point + scaled(normal, 0.5 * wp.max(deep, none))
                        tangent = sideways
                        if wp.length_sq(law.axis[n]) > 0.0:
                            tangent = times_one(s.rotation[l], law.axis[n])
                        tangent = tangent - scaled(normal, dot(normal, tangent))
                        shorten = dot(tangent, tangent)
                        for r in range(lanes):
                            shorten[r] = 1.0 / wp.max(wp.sqrt(shorten[r]), SMALLEST)
                        near.tangent[touching] = scaled(tangent, shorten)
                    near.depth[touching] = deep
                    near.link[touching] = l
                    near.candidate[touching] = n
                    near.position[touching] = point
                    for k in range(tree.depth[l]):
                        above = tree.path[l, k]
                        near.lever[touching * deepest + k] = s.axis_v[above] + cross(s.axis_w[above], point)
                    touching += 1

            if wp.static(constraint):
                take_substeps(
                    substeps, dt, touching, H, free, u, displacement, angle, near, c, normal, base_v, tree, law
                )
            else:
                take_substeps(
                    substeps, touching, H, free, u, displacement, angle, x, near, normal, base_v, tree, physics
                )

            for r in range(lanes):
                turning = wp.quat(turned[0, r], turned[1, r], turned[2, r], turned[3, r])
                came = wp.quat(come[0, r], come[1, r], come[2, r], come[3, r])
                now = wp.quat(start[0, r], start[1, r], start[2, r], start[3, r]) * came
                old_w = wp.vec3(w[0, r], w[1, r], w[2, r])
                end_w = wp.vec3(u_room[0, r], u_room[1, r], u_room[2, r])
                went = wp.vec3(went_room[3, r], went_room[4, r], went_room[5, r])
                # The axes are still, the point that they are about is not.
                gained = wp.vec3(u_room[3, r], u_room[4, r], u_room[5, r]) + wp.cross(0.5 * (old_w + end_w), went)
                went = went + span * wp.vec3(base_v[0, r], base_v[1, r], base_v[2, r])
                gained = wp.quat_rotate(now, wp.quat_rotate(turning, gained))
                went = wp.quat_rotate(now, wp.quat_rotate(turning, went))
                swept = wp.quat_rotate(turning, wp.vec3(went_room[0, r], went_room[1, r], went_room[2, r]))
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
                step[env, k] = went_room[k, r]
                change[env, k] = u_room[k, r] - qd[env, k]

    variant = "constraint_" * constraint + "paired_" * paired
    key = f"frozen_pose_{variant}{shape.key}_{width}"
    module = wp.get_module(f"nerd_gym.frozen_pose.{key}")
    module.options["enable_backward"] = False
    module.options["max_unroll"] = 6
    return wp.Kernel(frozen_pose, key=key, module=module)
