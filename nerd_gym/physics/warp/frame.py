"""Articulated-body dynamics as one fused Warp kernel: a thread simulates all substeps of one robot's frame.

Everything is in world axes about a point that moves with the robot (the base's origin; for a fixed base
the world's), which keeps float32 accurate wherever the robot walks. Composite inertias give the mass
matrix H, which is factored as L^T D L along the tree so that no zero is ever touched.

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

from .tree import Networks, PhysicsParams, Tree


@wp.func
def contact_force(depth: float, velocity: wp.vec3, normal: wp.vec3, physics: PhysicsParams) -> wp.vec3:
    """Penalty force on a point that is `depth` (> 0) inside the ground."""
    vn = wp.dot(velocity, normal)
    vt = velocity - vn * normal
    push = physics.ke * depth - physics.kd * wp.min(vn, 0.0)
    slip = wp.length(vt)
    force = push * normal
    if slip > 0.0:
        # Huber: the smoothed slip |vt|^2 / 2 (|vt| - 1/2 above 1 m/s) stands where Coulomb has |vt|.
        smooth = slip
        if physics.huber == 1:
            smooth = wp.where(slip <= 1.0, 0.5 * slip * slip, slip - 0.5)
        force = force - wp.min(physics.kf, physics.mu * push / smooth) * vt
    return force


@wp.func
def silu(x: float) -> float:
    return x / (1.0 + wp.exp(-x))


@lru_cache(maxsize=32)
def frame_kernel(
    links: int, nv: int, contacts: int, free: bool, contact_net: int = 0, torque_net: int = 0
) -> wp.Kernel:
    """The kernel for robots of these sizes: one frame of environments `first`, `first` + 1, ...

    contact_net and torque_net are the hidden widths of a learned model's networks; 0: the analytical law, no network.
    """
    width = max(contact_net, torque_net, 6, 4 * links) if contact_net or torque_net else 1
    first_joint = 1 if free else 0
    dof_shift = 5 if free else 0  # link l's dof is l + dof_shift
    q_shift = 6 if free else 0
    size = nv * nv

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
        env = wp.tid() + first
        dt = physics.dt
        plane_normal = ground_normal[env]

        rotation = wp.zeros(shape=(links,), dtype=wp.mat33)
        origin = wp.zeros(shape=(links,), dtype=wp.vec3)
        axis_w = wp.zeros(shape=(links,), dtype=wp.vec3)  # motion axis, angular part
        axis_v = wp.zeros(shape=(links,), dtype=wp.vec3)  # motion axis, linear part
        vel_w = wp.zeros(shape=(links,), dtype=wp.vec3)
        vel_v = wp.zeros(shape=(links,), dtype=wp.vec3)
        acc_w = wp.zeros(shape=(links,), dtype=wp.vec3)  # acceleration at zero joint acceleration
        acc_v = wp.zeros(shape=(links,), dtype=wp.vec3)
        bias_m = wp.zeros(shape=(links,), dtype=wp.vec3)  # moment about the reference point
        bias_f = wp.zeros(shape=(links,), dtype=wp.vec3)
        first_moment = wp.zeros(shape=(links,), dtype=wp.vec3)  # mass times com
        inertia_o = wp.zeros(shape=(links,), dtype=wp.mat33)  # inertia about the reference point
        composite_mass = wp.zeros(shape=(links,), dtype=wp.float32)  # the same, composite
        composite_moment = wp.zeros(shape=(links,), dtype=wp.vec3)
        composite_inertia = wp.zeros(shape=(links,), dtype=wp.mat33)
        H = wp.zeros(shape=(size,), dtype=wp.float32)
        x = wp.zeros(shape=(nv,), dtype=wp.float32)
        position = wp.zeros(shape=(links,), dtype=wp.float32)
        speed = wp.zeros(shape=(links,), dtype=wp.float32)

        net_input = wp.zeros(shape=(width,), dtype=wp.float32)  # inputs and layers of the networks
        first_layer = wp.zeros(shape=(width,), dtype=wp.float32)
        second_layer = wp.zeros(shape=(width,), dtype=wp.float32)

        base = wp.vec3(0.0, 0.0, 0.0)
        quat = wp.quat(0.0, 0.0, 0.0, 1.0)
        w = wp.vec3(0.0, 0.0, 0.0)
        v = wp.vec3(0.0, 0.0, 0.0)
        if wp.static(free):
            base = wp.vec3(q[env, 0], q[env, 1], q[env, 2])
            quat = wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3])
            v = wp.vec3(qd[env, 0], qd[env, 1], qd[env, 2])
            w = wp.quat_rotate(quat, wp.vec3(qd[env, 3], qd[env, 4], qd[env, 5]))
        for l in range(first_joint, links):
            position[l] = q[env, l + q_shift] - tree.zero[l]
            speed[l] = qd[env, l + dof_shift]
        moved = wp.vec3(0.0, 0.0, 0.0)  # of the base since frame start
        travel = wp.vec3(0.0, 0.0, 0.0)  # of the base since H was formed
        lost = wp.vec3(0.0, 0.0, 0.0)  # of the base's velocity by rounding
        height0 = wp.dot(plane_normal, base - ground_point[env])

        for substep in range(physics.substeps):
            # Poses, motion axes, velocities and velocity-dependent accelerations, root to leaves.
            for l in range(links):
                if wp.static(free) and l == 0:
                    rotation[0] = wp.quat_to_matrix(quat)
                    vel_w[0] = w
                    vel_v[0] = v
                    acc_w[0] = wp.vec3(0.0, 0.0, 0.0)
                    acc_v[0] = -physics.gravity
                else:
                    p = tree.parent[l]
                    up = wp.identity(n=3, dtype=wp.float32)
                    origin_l = wp.vec3(0.0, 0.0, 0.0)
                    pw = wp.vec3(0.0, 0.0, 0.0)
                    pv = wp.vec3(0.0, 0.0, 0.0)
                    aw = wp.vec3(0.0, 0.0, 0.0)
                    av = -physics.gravity
                    if p >= 0:
                        up = rotation[p]
                        origin_l = origin[p]
                        pw = vel_w[p]
                        pv = vel_v[p]
                        aw = acc_w[p]
                        av = acc_v[p]
                    axis = up * tree.axis[l]
                    origin_l = origin_l + up * tree.offset[l]
                    qd_l = speed[l]
                    if tree.slide[l] == 1:
                        rotation[l] = up * tree.rotation[l]
                        origin_l = origin_l + position[l] * axis
                        axis_w[l] = wp.vec3(0.0, 0.0, 0.0)
                        axis_v[l] = axis
                        vel_w[l] = pw
                        vel_v[l] = pv + qd_l * axis
                        acc_w[l] = aw
                        acc_v[l] = av + qd_l * wp.cross(pw, axis)
                    else:
                        s = wp.sin(position[l])
                        c = 1.0 - wp.cos(position[l])
                        rotation[l] = up * (tree.rotation[l] + s * tree.rotation_sin[l] + c * tree.rotation_cos[l])
                        swing = wp.cross(origin_l, axis)
                        axis_w[l] = axis
                        axis_v[l] = swing
                        vel_w[l] = pw + qd_l * axis
                        vel_v[l] = pv + qd_l * swing
                        acc_w[l] = aw + qd_l * wp.cross(pw, axis)
                        acc_v[l] = av + qd_l * (wp.cross(pw, swing) + wp.cross(pv, axis))
                    origin[l] = origin_l
                # Inertia about the reference point, and the force that the motion so far needs.
                m = tree.mass[l]
                r = rotation[l]
                com = origin[l] + r * tree.com[l]
                h = m * com
                about = r * tree.inertia[l] * wp.transpose(r) + m * (
                    wp.dot(com, com) * wp.identity(n=3, dtype=wp.float32) - wp.outer(com, com)
                )
                first_moment[l] = h
                inertia_o[l] = about
                lw = vel_w[l]
                lv = vel_v[l]
                momentum_m = about * lw + wp.cross(h, lv)
                momentum_f = m * lv - wp.cross(h, lw)
                bias_m[l] = (
                    about * acc_w[l] + wp.cross(h, acc_v[l]) + wp.cross(lw, momentum_m) + wp.cross(lv, momentum_f)
                )
                bias_f[l] = m * acc_v[l] - wp.cross(h, acc_w[l]) + wp.cross(lw, momentum_f)

            if wp.static(contacts > 0):
                height = height0 + wp.dot(plane_normal, moved)
                for k in range(contacts):
                    l = tree.contact_link[k]
                    point = origin[l] + rotation[l] * tree.contact_point[k]
                    depth = tree.contact_radius[k] - height - wp.dot(plane_normal, point)
                    if depth > 0.0:
                        point = point - tree.contact_radius[k] * plane_normal
                        point_velocity = vel_v[l] + wp.cross(vel_w[l], point)
                        push = wp.vec3(0.0, 0.0, 0.0)
                        if wp.static(contact_net > 0):
                            along = wp.dot(point_velocity, plane_normal)
                            slide = point_velocity - along * plane_normal
                            slip = wp.length(slide)
                            net = networks.contact
                            slow = net[2]
                            net_input[0] = depth / net[0]
                            net_input[1] = wp.max(-along, 0.0) / net[1]
                            net_input[2] = wp.max(along, 0.0) / net[1]
                            net_input[3] = slip / net[1]
                            net_input[4] = slip / (slip + slow)
                            net_input[5] = 0.25 * wp.log(1.0 + slip / slow)
                            # Every row of a layer is followed by its bias.
                            for i in range(contact_net):
                                at = 5 + 7 * i
                                value = net[at + 6]
                                for k in range(6):
                                    value += net[at + k] * net_input[k]
                                first_layer[i] = silu(value)
                            for i in range(contact_net):
                                at = 5 + 7 * contact_net + (contact_net + 1) * i
                                value = net[at + contact_net]
                                for k in range(contact_net):
                                    value += net[at + k] * first_layer[k]
                                second_layer[i] = silu(value)
                            for i in range(3):
                                at = 5 + (8 + contact_net + i) * contact_net + i
                                value = net[at + contact_net]
                                for k in range(contact_net):
                                    value += net[at + k] * second_layer[k]
                                first_layer[i] = value
                            at = 5 + (11 + contact_net) * contact_net + 3
                            value = net[at + 6] + first_layer[0]
                            for k in range(6):
                                value += net[at + k] * net_input[k]
                            normal_push = net[3] * wp.max(value, 0.0)
                            grip = wp.exp(first_layer[1]) / slow
                            cap = wp.exp(first_layer[2])
                            z = grip * slip
                            large = wp.max(z, 1.0)
                            sharp = net[4]
                            bend = wp.pow(wp.pow(large, -sharp) + wp.pow(z / large, sharp), 1.0 / sharp)
                            drag = normal_push * cap * grip / (large * bend)
                            push = normal_push * plane_normal - drag * slide
                        else:
                            push = contact_force(depth, point_velocity, plane_normal, physics)
                        bias_f[l] = bias_f[l] - push
                        bias_m[l] = bias_m[l] - wp.cross(point, push)

            if wp.static(torque_net > 0):
                net = networks.torque
                for l in range(first_joint, links):
                    k = 4 * (l - first_joint)
                    if tree.slide[l] == 1:
                        net_input[k] = position[l]
                        net_input[k + 1] = 0.0
                    else:
                        net_input[k] = wp.sin(position[l])
                        net_input[k + 1] = wp.cos(position[l])
                    rate = speed[l] / net[l - first_joint]
                    net_input[k + 2] = rate
                    net_input[k + 3] = rate / (wp.abs(rate) + 0.1)
                inputs = 4 * (links - first_joint)
                for i in range(torque_net):
                    at = 2 * (links - first_joint) + (inputs + 1) * i
                    value = net[at + inputs]
                    for j in range(inputs):
                        value += net[at + j] * net_input[j]
                    first_layer[i] = silu(value)
                for i in range(torque_net):
                    at = 2 * (links - first_joint) + torque_net * (inputs + 1) + (torque_net + 1) * i
                    value = net[at + torque_net]
                    for j in range(torque_net):
                        value += net[at + j] * first_layer[j]
                    second_layer[i] = silu(value)

            # Joint forces, leaves to root.
            for back in range(first_joint, links):
                l = links - 1 - back + first_joint
                angle = position[l]
                rate = speed[l]
                tau = force[env, l - first_joint] - tree.damping[l] * rate
                tau = tau - tree.stiffness[l] * (angle - tree.rest[l])
                if wp.static(torque_net > 0):
                    joints = links - first_joint
                    row = l - first_joint
                    at = 2 * joints + torque_net * (4 * joints + torque_net + 2) + (torque_net + 1) * row
                    value = networks.torque[at + torque_net]
                    for j in range(torque_net):
                        value += networks.torque[at + j] * second_layer[j]
                    tau = tau + networks.torque[joints + row] * value
                if angle < tree.lower[l]:
                    tau = tau + physics.limit_ke * (tree.lower[l] - angle) - physics.limit_kd * rate
                if angle > tree.upper[l]:
                    tau = tau + physics.limit_ke * (tree.upper[l] - angle) - physics.limit_kd * rate
                x[l + dof_shift] = tau - wp.dot(axis_w[l], bias_m[l]) - wp.dot(axis_v[l], bias_f[l])
                p = tree.parent[l]
                if p >= 0:
                    bias_m[p] = bias_m[p] + bias_m[l]
                    bias_f[p] = bias_f[p] + bias_f[l]
            if wp.static(free):
                moment = -bias_m[0] - wp.cross(travel, bias_f[0])
                for i in range(3):
                    x[i] = moment[i]
                    x[i + 3] = -bias_f[0][i]

            if physics.published == 0 or substep == 0:
                for l in range(links):
                    j = tree.inertia_of[l]
                    composite_mass[l] = tree.mass[j]
                    composite_moment[l] = first_moment[j]
                    composite_inertia[l] = inertia_o[j]
                for back in range(first_joint, links):
                    l = links - 1 - back + first_joint
                    p = tree.parent[l]
                    if p >= 0:
                        composite_mass[p] = composite_mass[p] + composite_mass[l]
                        composite_moment[p] = composite_moment[p] + composite_moment[l]
                        composite_inertia[p] = composite_inertia[p] + composite_inertia[l]
                    need_m = composite_inertia[l] * axis_w[l] + wp.cross(composite_moment[l], axis_v[l])
                    need_f = composite_mass[l] * axis_v[l] - wp.cross(composite_moment[l], axis_w[l])
                    row = (l + dof_shift) * nv
                    H[row + l + dof_shift] = wp.dot(axis_w[l], need_m) + wp.dot(axis_v[l], need_f) + tree.armature[l]
                    while p >= first_joint:
                        H[row + p + dof_shift] = wp.dot(axis_w[p], need_m) + wp.dot(axis_v[p], need_f)
                        p = tree.parent[p]
                    if wp.static(free):
                        for i in range(3):
                            H[row + i] = need_m[i]
                            H[row + i + 3] = need_f[i]
                if wp.static(free):
                    a = composite_moment[0]
                    for i in range(3):
                        for j in range(3):
                            H[i * nv + j] = composite_inertia[0][i, j]
                            H[(i + 3) * nv + j] = 0.0
                            H[(i + 3) * nv + j + 3] = 0.0
                        H[(i + 3) * nv + i + 3] = composite_mass[0]
                    # Rows 3..5 (force) against columns 0..2 (rotation): -skew(mass times com).
                    H[3 * nv + 1] = a[2]
                    H[3 * nv + 2] = -a[1]
                    H[4 * nv + 0] = -a[2]
                    H[4 * nv + 2] = a[0]
                    H[5 * nv + 0] = a[1]
                    H[5 * nv + 1] = -a[0]
                # H = L^T D L, in place: L below the diagonal, 1 / D on it.
                for back in range(nv):
                    k = nv - 1 - back
                    inverse = 1.0 / H[k * nv + k]
                    i = tree.dof_parent[k]
                    while i >= 0:
                        ratio = H[k * nv + i] * inverse
                        j = i
                        while j >= 0:
                            H[i * nv + j] = H[i * nv + j] - ratio * H[k * nv + j]
                            j = tree.dof_parent[j]
                        i = tree.dof_parent[i]
                    i = tree.dof_parent[k]
                    while i >= 0:
                        H[k * nv + i] = H[k * nv + i] * inverse
                        i = tree.dof_parent[i]
                    H[k * nv + k] = inverse

            # Solve H x = x.
            for back in range(nv):
                k = nv - 1 - back
                i = tree.dof_parent[k]
                while i >= 0:
                    x[i] = x[i] - H[k * nv + i] * x[k]
                    i = tree.dof_parent[i]
            for k in range(nv):
                value = x[k] * H[k * nv + k]
                i = tree.dof_parent[k]
                while i >= 0:
                    value = value - H[k * nv + i] * x[i]
                    i = tree.dof_parent[i]
                x[k] = value

            # Semi-implicit Euler.
            for l in range(first_joint, links):
                rate = speed[l] + dt * x[l + dof_shift]
                speed[l] = rate
                position[l] = position[l] + dt * rate
            if wp.static(free):
                alpha = wp.vec3(x[0], x[1], x[2])
                rise = wp.vec3(x[3], x[4], x[5]) + wp.cross(alpha, travel)
                if physics.published == 1:
                    w = w + dt * alpha
                    v = v + dt * rise
                    moved = moved + dt * v
                    travel = moved
                    v = v + dt * wp.cross(w, v)
                    quat = wp.normalize(quat + (0.5 * dt) * (wp.quat(w[0], w[1], w[2], 0.0) * quat))
                else:
                    # Compensated: many small equal steps (free fall) would all be rounded the same way.
                    gain = dt * (rise + wp.cross(w, v)) - lost
                    total = v + gain
                    lost = (total - v) - gain
                    v = total
                    w = w + dt * alpha
                    moved = moved + dt * v
                    quat = wp.normalize(wp.quat_from_axis_angle(wp.normalize(w), dt * wp.length(w)) * quat)

        for l in range(first_joint, links):
            q[env, l + q_shift] = position[l] + tree.zero[l]
            qd[env, l + dof_shift] = speed[l]
        if wp.static(free):
            base = base + moved
            body_w = wp.quat_rotate_inv(quat, w)
            for i in range(3):
                q[env, i] = base[i]
                q[env, i + 4] = quat[i]
                qd[env, i] = v[i]
                qd[env, i + 3] = body_w[i]
            q[env, 3] = quat[3]

    key = f"frame_{links}_{nv}_{contacts}_{'free' if free else 'fixed'}"
    if contact_net or torque_net:
        key += f"_{contact_net}_{torque_net}"
    module = wp.get_module(f"nerd_gym.frame.{key}")
    module.options["enable_backward"] = False
    # Unrolling the loops over links takes ten times as long to compile and runs no faster.
    module.options["max_unroll"] = 3
    return wp.Kernel(frame, key=key, module=module)
