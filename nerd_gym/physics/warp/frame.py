"""Articulated-body dynamics as one fused Warp kernel: a thread simulates all substeps of a frame of a few robots.

Everything is in world axes about a point that moves with the robot (the base's origin; for a fixed base the world's),
which keeps float32 accurate wherever the robot walks. Composite inertias give the mass matrix H, which is factored
along the tree (factor.py). The robots of a thread are in SIMD lanes (simd.py); none knows what happens in another.

Per substep, for the base (w, v in world axes, a the acceleration of its spatial velocity there) and joints:

    (alpha, a, qdd) = H^-1 (applied + contact + limit forces - bias)
    v += dt (a + w x v);  w += dt alpha;  p += dt v;  quat = exp(dt w) quat;  qd += dt qdd;  q += dt qd

The published simulator forms H once a frame, about the base's position at frame start; with s the displacement since:

    (alpha, a0, qdd) = H^-1 (M + s x F, F, tau);  a = a0 + alpha x s
    w += dt alpha;  v* = v + dt a;  p += dt v*;  v = v* + dt w x v*;  quat = normalize(quat + dt/2 w quat)
"""

from __future__ import annotations

from functools import lru_cache

import warp as wp

from .contact import network_force, penalty_force
from .factor import factored, solved
from .joints import limit_torque, network_torques
from .simd import any_positive, cross, dot, scaled, simd_types, times_one
from .spatial import (
    acceleration_of,
    impulse_of,
    inertia_about,
    matrix_of,
    moment_of,
    motion_axis,
    placed,
    quat_times,
    turned,
    unit_quat,
)
from .tree import Networks, PhysicsParams, Tree, TreeShape


@lru_cache(maxsize=32)
def frame_kernel(
    shape: TreeShape, width: int, contact_net: int = 0, torque_net: int = 0, published: bool = False
) -> wp.Kernel:
    """The kernel for robots of this shape: one frame of environments `first`, `first` + 1, ...; `width` in a thread.

    contact_net and torque_net are the hidden widths of a learned model's networks; 0: the analytical law, no network.
    """
    links, nv, contacts, free = len(shape.parents), shape.nv, shape.contacts, shape.free
    first_joint = 1 if free else 0
    dof_shift = 5 if free else 0  # link l's dof is l + dof_shift
    q_shift = 6 if free else 0
    base_dofs = 6 if free else 0
    Number, Vector, Quat, Matrix = simd_types(width)

    def rows(size: int) -> type:
        return wp.types.matrix((size, width), wp.float32)

    per_dof, per_link, per_entry, Symmetric = rows(nv), rows(links), rows(shape.rows()[-1]), rows(6)
    contact_inputs, contact_layer = rows(6), rows(max(3, contact_net))
    torque_inputs, torque_layer = rows(4 * links), rows(max(1, torque_net))

    def frame(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        force: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        physics: PhysicsParams,
        networks: Networks,
        first: int,
    ):
        begin = wp.tid() * width + first
        last = q.shape[0] - 1  # lanes beyond it repeat this row
        dt = physics.dt
        # Loops up to these stay loops; those up to numbers that Python knows are written out.
        all_links = int(links)
        all_contacts = int(contacts)
        lanes = int(width)

        rotation = wp.zeros(shape=(links,), dtype=Matrix)
        origin = wp.zeros(shape=(links,), dtype=Vector)
        axis_w = wp.zeros(shape=(links,), dtype=Vector)  # motion axis, angular part
        axis_v = wp.zeros(shape=(links,), dtype=Vector)  # motion axis, linear part
        vel_w = wp.zeros(shape=(links,), dtype=Vector)
        vel_v = wp.zeros(shape=(links,), dtype=Vector)
        acc_w = wp.zeros(shape=(links,), dtype=Vector)  # acceleration at zero joint acceleration
        acc_v = wp.zeros(shape=(links,), dtype=Vector)
        bias_m = wp.zeros(shape=(links,), dtype=Vector)  # moment about the reference point
        bias_f = wp.zeros(shape=(links,), dtype=Vector)
        mass = wp.zeros(shape=(links,), dtype=wp.float32)  # the same in all lanes; composite on the way back
        first_moment = wp.zeros(shape=(links,), dtype=Vector)  # mass times com
        inertia_o = wp.zeros(shape=(links,), dtype=Symmetric)  # inertia about the reference point
        H = per_entry()
        x = per_dof()
        position = per_link()
        speed = per_link()
        learned = per_link()
        tau = per_link()  # forces that the frame holds
        base = Vector()
        quat = Quat()
        w = Vector()
        v = Vector()
        normal = Vector()
        height0 = Number()
        for r in range(lanes):
            env = wp.min(begin + r, last)
            at = wp.vec3(0.0, 0.0, 0.0)
            if wp.static(free):
                at = wp.vec3(q[env, 0], q[env, 1], q[env, 2])
                turn = wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3])
                omega = wp.quat_rotate(turn, wp.vec3(qd[env, 3], qd[env, 4], qd[env, 5]))
                for i in range(3):
                    base[i, r] = at[i]
                    v[i, r] = qd[env, i]
                    w[i, r] = omega[i]
                for i in range(4):
                    quat[i, r] = turn[i]
            height0[r] = wp.dot(ground_normal[env], at - ground_point[env])
            for i in range(3):
                normal[i, r] = ground_normal[env][i]
            for l in range(first_joint, all_links):
                position[l, r] = q[env, l + q_shift] - tree.zero[l]
                speed[l, r] = qd[env, l + dof_shift]
                tau[l, r] = force[env, l - first_joint] + tree.stiffness[l] * tree.rest[l]
        one = Number(1.0)
        none = Number(0.0)
        upwards = Vector()  # against gravity
        for i in range(3):
            upwards[i] = Number(-physics.gravity[i])
        identity = Matrix()
        identity[0] = one
        identity[4] = one
        identity[8] = one
        moved = Vector()  # of the base since frame start
        travel = Vector()  # of the base since H was formed
        lost = Vector()  # of the base's velocity by rounding

        for substep in range(physics.substeps):
            # Poses, motion axes, velocities and velocity-dependent accelerations, root to leaves.
            if wp.static(free):
                rotation[0] = matrix_of(quat, identity)
                vel_w[0] = w
                vel_v[0] = v
                acc_v[0] = upwards
            for l in range(all_links):
                if l >= first_joint:
                    p = tree.parent[l]
                    up = identity
                    place = Vector()
                    pw = Vector()
                    pv = Vector()
                    aw = Vector()
                    av = upwards
                    if p >= 0:
                        up = rotation[p]
                        place = origin[p]
                        pw = vel_w[p]
                        pv = vel_v[p]
                        aw = acc_w[p]
                        av = acc_v[p]
                    rate = speed[l]
                    own, place, axis = placed(up, place, position[l], tree, l)
                    turning, moving = motion_axis(axis, place, tree.slide[l])
                    gain_w, gain_v = acceleration_of(pw, pv, turning, moving, rate)
                    rotation[l] = own
                    origin[l] = place
                    axis_w[l] = turning
                    axis_v[l] = moving
                    vel_w[l] = pw + scaled(turning, rate)
                    vel_v[l] = pv + scaled(moving, rate)
                    acc_w[l] = aw + gain_w
                    acc_v[l] = av + gain_v
                # Inertia about the reference point, and the force that the motion so far needs.
                m = tree.mass[l]
                own = rotation[l]
                com = origin[l] + times_one(own, tree.com[l])
                h = m * com
                about = inertia_about(own, tree.inertia[l], com, h)
                mass[l] = m
                first_moment[l] = h
                inertia_o[l] = about
                lw = vel_w[l]
                lv = vel_v[l]
                momentum_m = moment_of(about, h, lw, lv)
                momentum_f = impulse_of(m, h, lw, lv)
                bias_m[l] = moment_of(about, h, acc_w[l], acc_v[l]) + cross(lw, momentum_m) + cross(lv, momentum_f)
                bias_f[l] = impulse_of(m, h, acc_w[l], acc_v[l]) + cross(lw, momentum_f)

            if wp.static(contacts > 0):
                height = height0 + dot(normal, moved)
                for n in range(all_contacts):
                    l = tree.contact_link[n]
                    point = origin[l] + times_one(rotation[l], tree.contact_point[n])
                    deep = Number(tree.contact_radius[n]) - height - dot(normal, point)
                    if any_positive(deep):
                        point = point - tree.contact_radius[n] * normal
                        velocity = vel_v[l] + cross(vel_w[l], point)
                        push = Vector()
                        if wp.static(contact_net > 0):
                            push = network_force(
                                networks.contact,
                                deep,
                                velocity,
                                normal,
                                contact_net,
                                contact_inputs(),
                                contact_layer(),
                                contact_layer(),
                            )
                        else:
                            push = penalty_force(deep, velocity, normal, physics)
                        bias_f[l] = bias_f[l] - push
                        bias_m[l] = bias_m[l] - cross(point, push)

            if wp.static(torque_net > 0):
                learned = network_torques(
                    networks.torque,
                    position,
                    speed,
                    tree,
                    first_joint,
                    torque_net,
                    torque_inputs(),
                    torque_layer(),
                    torque_layer(),
                )

            # Of the published simulator, other links' inertias may stand for a link's in H, but not in its bias.
            form = True
            if wp.static(published):
                form = substep == 0
                if form:
                    for l in range(all_links):
                        mass[l] = tree.mass[tree.inertia_of[l]]
                    # Swapped in pairs, so that nothing is overwritten before it is read.
                    for l in range(all_links):
                        j = tree.inertia_of[l]
                        if j > l:
                            h = first_moment[l]
                            about = inertia_o[l]
                            first_moment[l] = first_moment[j]
                            inertia_o[l] = inertia_o[j]
                            first_moment[j] = h
                            inertia_o[j] = about

            # Joint forces and the mass matrix, leaves to root.
            for back in range(first_joint, all_links):
                l = links - 1 - back + first_joint
                p = tree.parent[l]
                lw = axis_w[l]
                lv = axis_v[l]
                angle = position[l]
                rate = speed[l]
                pull = tau[l] - tree.damping[l] * rate - tree.stiffness[l] * angle
                pull = pull + limit_torque(angle, rate, tree.lower[l], tree.upper[l], physics)
                if wp.static(torque_net > 0):
                    pull = pull + learned[l]
                x[l + dof_shift] = pull - dot(lw, bias_m[l]) - dot(lv, bias_f[l])
                if p >= 0:
                    bias_m[p] = bias_m[p] + bias_m[l]
                    bias_f[p] = bias_f[p] + bias_f[l]
                if form:
                    row = tree.row[l]
                    depth = tree.depth[l]
                    need_m = moment_of(inertia_o[l], first_moment[l], lw, lv)
                    need_f = impulse_of(mass[l], first_moment[l], lw, lv)
                    H[row + base_dofs + depth - 1] = dot(lw, need_m) + dot(lv, need_f) + Number(tree.armature[l])
                    if p >= 0:
                        mass[p] = mass[p] + mass[l]
                        first_moment[p] = first_moment[p] + first_moment[l]
                        inertia_o[p] = inertia_o[p] + inertia_o[l]
                    for s in range(depth - 1):
                        p = tree.path[l, s]
                        H[row + base_dofs + s] = dot(axis_w[p], need_m) + dot(axis_v[p], need_f)
                    if wp.static(free):
                        for i in range(3):
                            H[row + i] = need_m[i]
                            H[row + i + 3] = need_f[i]
            if wp.static(free):
                moment = -bias_m[0] - cross(travel, bias_f[0])
                thrust = -bias_f[0]
                for i in range(3):
                    x[i] = moment[i]
                    x[i + 3] = thrust[i]
                if form:
                    whole = inertia_o[0]
                    h = first_moment[0]
                    # Rotation, then force: -skew(mass times com), and the mass.
                    H[0] = whole[0]
                    H[1] = whole[3]
                    H[2] = whole[1]
                    H[3] = whole[4]
                    H[4] = whole[5]
                    H[5] = whole[2]
                    H[6] = none
                    H[7] = h[2]
                    H[8] = -h[1]
                    H[9] = Number(mass[0])
                    H[10] = -h[2]
                    H[11] = none
                    H[12] = h[0]
                    H[13] = none
                    H[14] = H[9]
                    H[15] = h[1]
                    H[16] = -h[0]
                    H[17] = none
                    H[18] = none
                    H[19] = none
                    H[20] = H[9]
            if form:
                H = factored(H, tree, base_dofs)
            x = solved(H, x, tree, base_dofs)

            # Semi-implicit Euler.
            for l in range(first_joint, all_links):
                speed[l] = speed[l] + dt * x[l + dof_shift]
                position[l] = position[l] + dt * speed[l]
            if wp.static(free):
                alpha = wp.matrix_from_rows(x[0], x[1], x[2])
                rise = wp.matrix_from_rows(x[3], x[4], x[5])
                if wp.static(published):
                    w = w + dt * alpha
                    v = v + dt * (rise + cross(alpha, travel))
                    moved = moved + dt * v
                    travel = moved
                    v = v + dt * cross(w, v)
                    quat = unit_quat(quat + (0.5 * dt) * quat_times(w, none, quat))
                else:
                    # Compensated: many small equal steps (free fall) would all be rounded the same way.
                    gain = dt * (rise + cross(w, v)) - lost
                    total = v + gain
                    lost = (total - v) - gain
                    v = total
                    w = w + dt * alpha
                    moved = moved + dt * v
                    quat = turned(quat, w, dt)

        for r in range(lanes):
            env = wp.min(begin + r, last)
            for l in range(first_joint, all_links):
                q[env, l + q_shift] = position[l, r] + tree.zero[l]
                qd[env, l + dof_shift] = speed[l, r]
            if wp.static(free):
                turn = wp.quat(quat[0, r], quat[1, r], quat[2, r], quat[3, r])
                body_w = wp.quat_rotate_inv(turn, wp.vec3(w[0, r], w[1, r], w[2, r]))
                for i in range(3):
                    q[env, i] = base[i, r] + moved[i, r]
                    q[env, i + 4] = quat[i, r]
                    qd[env, i] = v[i, r]
                    qd[env, i + 3] = body_w[i]
                q[env, 3] = quat[3, r]

    key = f"frame_{shape.key}_{width}"
    if contact_net or torque_net:
        key += f"_{contact_net}_{torque_net}"
    if published:
        key += "_published"
    module = wp.get_module(f"nerd_gym.frame.{key}")
    module.options["enable_backward"] = False
    # Unrolling the loops over links takes ten times as long to compile and runs no faster.
    module.options["max_unroll"] = 6
    return wp.Kernel(frame, key=key, module=module)
