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
from .factor import factor_functions
from .functions import network_blocks
from .joints import limit_torque, network_torques
from .lane_state import lane_reader
from .links import link_functions
from .scalar_nets import ScalarNet, scalar_contact, scalar_torques
from .simd import any_positive, cross, dot, rows, simd_types, views
from .spatial import matrix_of, quat_times, turned, unit_quat
from .tree import Networks, PhysicsParams, Tree, TreeShape


@lru_cache(maxsize=32)
def frame_kernel(
    shape: TreeShape,
    width: int,
    contact_net: int = 0,
    torque_net: int = 0,
    published: bool = False,
    contact_scalars: ScalarNet | None = None,
    torque_scalars: ScalarNet | None = None,
) -> wp.Kernel:
    """The kernel for robots of this shape: one frame of environments `first`, `first` + 1, ...; `width` in a thread.

    contact_net and torque_net are the hidden widths of a learned model's networks; 0: the analytical law, no network.
    contact_scalars and torque_scalars are networks of an augmented engine, which add to the analytical forces.
    """
    links, nv, contacts, free = len(shape.parents), shape.nv, shape.contacts, shape.free
    first_joint = 1 if free else 0
    dof_shift = 5 if free else 0  # link l's dof is l + dof_shift
    q_shift = 6 if free else 0
    entries = shape.rows()[-1]
    Number, Vector, Quat, Matrix = simd_types(width)
    per_dof, per_link, per_entry = (rows(size, width) for size in (nv, links, entries))
    contact_fours, torque_fours = network_blocks(6, contact_net), network_blocks(4 * (links - first_joint), torque_net)
    contact_of, torque_of = contact_scalars or ScalarNet(0, 0, 0), torque_scalars or ScalarNet(0, 0, 0)
    if contact_scalars:
        contact_fours = contact_of.blocks(3)
    if torque_scalars:
        torque_fours = torque_of.blocks(2 * (links - first_joint))
    contact_first, contact_second, contact_kind = contact_of
    torque_first, torque_second, torque_kind = torque_of
    contact_size, torque_size = 4 * contact_fours, 4 * torque_fours
    ContactRoom, TorqueRoom = rows(contact_size, width), rows(torque_size, width)
    blocks, wides = views(rows(4, width), width), views(wp.types.vector(4 * width, wp.float32), width)
    numbers, read = views(Number, width), lane_reader(shape, width)
    of_links, of_matrix = link_functions(shape, width), factor_functions(shape, width)
    Room, opened, move, weigh = of_links.room, of_links.opened, of_links.move, of_links.weigh
    point_of, velocity_at, bias_of, swap = of_links.point, of_links.velocity, of_links.bias, of_links.swap
    add_inertia, add_base, factor, solve = of_links.inertia, of_links.base, of_matrix.factor, of_matrix.solve

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

        link_room = Room()
        s = opened(wp.address_of(link_room))
        H_room = per_entry()
        H = numbers(wp.address_of(H_room), 0, entries)
        x_room = per_dof()
        x = numbers(wp.address_of(x_room), 0, nv)
        if wp.static(contact_net + contact_first > 0):
            contact_room = ContactRoom()
            contact_layers = numbers(wp.address_of(contact_room), 0, contact_size)
            contact_blocks = blocks(wp.address_of(contact_room), 0, contact_fours)
            contact_wides = wides(wp.address_of(contact_room), 0, contact_fours)
        if wp.static(torque_net + torque_first > 0):
            torque_room = TorqueRoom()
            torque_layers = numbers(wp.address_of(torque_room), 0, torque_size)
            torque_blocks = blocks(wp.address_of(torque_room), 0, torque_fours)
            torque_wides = wides(wp.address_of(torque_room), 0, torque_fours)
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
        read(q, qd, ground_point, ground_normal, tree, begin, base, quat, w, v, normal, height0, position, speed)
        for r in range(lanes):
            env = wp.min(begin + r, last)
            for l in range(first_joint, all_links):
                tau[l, r] = force[env, l - first_joint] + tree.stiffness[l] * tree.rest[l]
        none = Number(0.0)
        upwards = Vector()  # against gravity
        for i in range(3):
            upwards[i] = Number(-physics.gravity[i])
        moved = Vector()  # of the base since frame start
        travel = Vector()  # of the base since H was formed
        lost = Vector()  # of the base's velocity by rounding

        for substep in range(physics.substeps):
            # Poses, motions, inertias and the forces that the motion needs, root to leaves.
            if wp.static(free):
                s.rotation[0] = matrix_of(quat, Matrix())
                s.vel_w[0] = w
                s.vel_v[0] = v
                s.acc_v[0] = upwards
                weigh(s, tree, 0)
            for l in range(first_joint, all_links):
                move(s, tree, l, position[l], speed[l], upwards)
                weigh(s, tree, l)

            if wp.static(contacts > 0):
                height = height0 + dot(normal, moved)
                for n in range(all_contacts):
                    l = tree.contact_link[n]
                    point = point_of(s, tree, n)
                    deep = Number(tree.contact_radius[n]) - height - dot(normal, point)
                    if any_positive(deep):
                        point = point - tree.contact_radius[n] * normal
                        velocity = velocity_at(s, l, point)
                        push = Vector()
                        if wp.static(contact_net > 0):
                            push = network_force(
                                networks.contact,
                                deep,
                                velocity,
                                normal,
                                contact_net,
                                contact_layers,
                                contact_blocks,
                                contact_wides,
                            )
                        elif wp.static(contact_first > 0):
                            push = scalar_contact(
                                networks.contact,
                                deep,
                                velocity,
                                normal,
                                physics,
                                contact_first,
                                contact_second,
                                contact_kind,
                                contact_layers,
                                contact_blocks,
                            )
                        else:
                            push = penalty_force(deep, velocity, normal, physics)
                        s.bias_f[l] = s.bias_f[l] - push
                        s.bias_m[l] = s.bias_m[l] - cross(point, push)

            if wp.static(torque_net > 0):
                learned = network_torques(
                    networks.torque,
                    position,
                    speed,
                    tree,
                    first_joint,
                    torque_net,
                    torque_layers,
                    torque_blocks,
                    torque_wides,
                )
            if wp.static(torque_first > 0):
                learned = scalar_torques(
                    networks.torque,
                    position,
                    speed,
                    tree,
                    first_joint,
                    torque_first,
                    torque_second,
                    torque_kind,
                    torque_layers,
                    torque_blocks,
                )

            # Of the published simulator, other links' inertias may stand for a link's in H, but not in its bias.
            form = True
            if wp.static(published):
                form = substep == 0
                if form:
                    swap(s, tree)

            # Joint forces and the mass matrix, leaves to root.
            for back in range(first_joint, all_links):
                l = links - 1 - back + first_joint
                angle = position[l]
                rate = speed[l]
                pull = tau[l] - tree.damping[l] * rate - tree.stiffness[l] * angle
                pull = pull + limit_torque(angle, rate, tree.lower[l], tree.upper[l], physics)
                if wp.static(torque_net + torque_first > 0):
                    pull = pull + learned[l]
                x[l + dof_shift] = pull - bias_of(s, tree, l)
                if form:
                    add_inertia(s, tree, l, H)
            if wp.static(free):
                moment = -s.bias_m[0] - cross(travel, s.bias_f[0])
                thrust = -s.bias_f[0]
                for i in range(3):
                    x[i] = moment[i]
                    x[i + 3] = thrust[i]
                if form:
                    add_base(s, tree, H)
            if form:
                factor(H, tree)
            solve(H, x, tree)

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
    if contact_scalars:
        key += f"_contact_{contact_scalars.key}"
    if torque_scalars:
        key += f"_torque_{torque_scalars.key}"
    if published:
        key += "_published"
    module = wp.get_module(f"nerd_gym.frame.{key}")
    module.options["enable_backward"] = False
    # Unrolling the loops over links takes ten times as long to compile and runs no faster.
    module.options["max_unroll"] = 6
    return wp.Kernel(frame, key=key, module=module)
