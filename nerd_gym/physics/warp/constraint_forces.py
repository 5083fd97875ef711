"""Forces of contacts and joint limits alone [N, nv], for an engine that moves the robots itself: by constraints.

MuJoCo's constraints couple all contacts and limits of a robot through its mass matrix (constraint_law.py). Their
forces start from those of the last substep. As to axes, see local_forces.py. A robot that touches nothing is given
zeros.
"""

from __future__ import annotations

from functools import lru_cache

import warp as wp

from .constraint_law import ConstraintParams, constraint_substeps
from .constraint_state import constraint_memory
from .contact import furthest
from .factor import factor_functions
from .links import link_functions
from .near_contacts import near_functions
from .simd import SMALLEST, any_positive, cross, dot, rows, scaled, simd_types, times_one, views
from .tree import PhysicsParams, Tree, TreeShape

SWEEPS = 20  # of Gauss-Seidel in a substep, each from the forces of the last


@lru_cache(maxsize=32)
def constraint_force_kernel(shape: TreeShape, width: int) -> wp.Kernel:
    """Forces of rows `first`, ... by MuJoCo's constraints under joint forces [N, nj]; robots with a free base.

    pressed [N, 4 C] and stopped [N, L] are the forces of edges and limits, from substep to substep.
    """
    links, contacts, nv, deepest = len(shape.parents), shape.contacts, shape.nv, max(1, shape.deepest)
    entries = shape.rows()[-1]
    Number, Vector, _, Matrix = simd_types(width)
    per_dof, per_link, per_entry = (rows(size, width) for size in (nv, links, entries))
    numbers = views(Number, width)
    of_links, of_matrix, of_near = (make(shape, width) for make in (link_functions, factor_functions, near_functions))
    Room, links_in, move, weigh = of_links.room, of_links.opened, of_links.move, of_links.weigh
    point_of, velocity_at, bias_of = of_links.point, of_links.velocity, of_links.bias
    add_inertia, add_base, factor = of_links.inertia, of_links.base, of_matrix.factor
    NearRoom, NearIndices, near_in = of_near.room, of_near.index_room, of_near.opened
    _, ConstraintRoom, constraints_in = constraint_memory(shape, width)
    take_substeps = constraint_substeps(shape, width, SWEEPS)

    def constraint_force(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        joint_force: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        physics: PhysicsParams,
        law: ConstraintParams,
        span: wp.vec2,
        pressed: wp.array2d(dtype=wp.float32),
        stopped: wp.array2d(dtype=wp.float32),
        force: wp.array2d(dtype=wp.float32),
        reached: wp.array(dtype=wp.float32),
        first: int,
    ):
        begin = wp.tid() * width + first
        last = q.shape[0] - 1  # lanes beyond it repeat this row
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
        free_room = per_dof()
        free = numbers(wp.address_of(free_room), 0, nv)
        u_room = per_dof()
        u = numbers(wp.address_of(u_room), 0, nv)
        went_room = per_dof()
        went = numbers(wp.address_of(went_room), 0, nv)
        angle_room = per_link()
        angle = numbers(wp.address_of(angle_room), 0, links)
        constraint_room = ConstraintRoom()
        c = constraints_in(wp.address_of(constraint_room))
        out = per_dof()
        one = Number(1.0)
        none = Number(0.0)

        # Everything is in the base's axes, about its origin, in a world that moves with it.
        base_v = Vector()
        gravity = Vector()
        normal = Vector()
        sideways = Vector()  # first tangent of a contact without an axis of its own
        w = Vector()
        height = Number()
        for r in range(lanes):
            env = wp.min(begin + r, last)
            into = wp.transpose(wp.quat_to_matrix(wp.normalize(wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3]))))
            plane = ground_normal[env]
            side = wp.where(wp.abs(plane[1]) < 0.5, wp.vec3(0.0, 1.0, 0.0), wp.vec3(0.0, 0.0, 1.0))
            side = into * side
            up = into * plane
            down = into * physics.gravity
            velocity0 = into * wp.vec3(qd[env, 0], qd[env, 1], qd[env, 2])
            for i in range(3):
                base_v[i, r] = velocity0[i]
                gravity[i, r] = down[i]
                normal[i, r] = up[i]
                sideways[i, r] = side[i]
                w[i, r] = qd[env, 3 + i]
            height[r] = wp.dot(plane, wp.vec3(q[env, 0], q[env, 1], q[env, 2]) - ground_point[env])
            for l in range(1, all_links):
                angle_room[l, r] = q[env, l + 6] - tree.zero[l]
                u_room[l + 5, r] = qd[env, l + 5]
        identity = Matrix()
        identity[0] = one
        identity[4] = one
        identity[8] = one
        s.rotation[0] = identity
        s.origin[0] = Vector()
        s.vel_w[0] = w
        s.vel_v[0] = Vector()
        s.acc_w[0] = Vector()
        s.acc_v[0] = -gravity
        for l in range(1, all_links):
            move(s, tree, l, angle[l], u[l + 5], -gravity)

        # Points inside the ground, and joints beyond their limits: without any there is nothing to solve.
        touching = wp.int32(0)
        busy = wp.bool(False)
        for n in range(all_contacts):
            l = tree.contact_link[n]
            point = point_of(s, tree, n) - tree.contact_radius[n] * normal
            deep = -height - dot(normal, point)
            if any_positive(deep):
                busy = True
                # MuJoCo's forces act half way between the two surfaces.
                point = point + scaled(normal, 0.5 * wp.max(deep, none))
                tangent = sideways
                if wp.length_sq(law.axis[n]) > 0.0:
                    tangent = times_one(s.rotation[l], law.axis[n])
                tangent = tangent - scaled(normal, dot(normal, tangent))
                shorten = dot(tangent, tangent)
                velocity = base_v + velocity_at(s, l, point)
                size = dot(velocity, velocity)
                for r in range(lanes):
                    shorten[r] = 1.0 / wp.max(wp.sqrt(shorten[r]), SMALLEST)
                    env = wp.min(begin + r, last)
                    reached[env] = furthest(deep[r], wp.sqrt(size[r]), span, reached[env])
                    for e in range(4):
                        old = pressed[env, 4 * n + e]
                        c.pressed[4 * n + e][r] = wp.where(deep[r] > 0.0, old, 0.0)
                near.tangent[touching] = scaled(tangent, shorten)
                near.depth[touching] = deep
                near.link[touching] = l
                near.candidate[touching] = n
                near.position[touching] = point
                for k in range(tree.depth[l]):
                    above = tree.path[l, k]
                    near.lever[touching * deepest + k] = s.axis_v[above] + cross(s.axis_w[above], point)
                touching += 1
            else:
                for e in range(4):
                    c.pressed[4 * n + e] = none
        for l in range(1, all_links):
            past = wp.min(angle[l] - Number(tree.lower[l]), none) + wp.max(angle[l] - Number(tree.upper[l]), none)
            if any_positive(wp.cw_mul(past, past)):
                busy = True
            for r in range(lanes):
                c.stopped[l][r] = stopped[wp.min(begin + r, last), l]

        for k in range(nv):
            out[k] = none
        if busy:
            weigh(s, tree, 0)
            for l in range(1, all_links):
                weigh(s, tree, l)
            for back in range(1, all_links):
                l = links - back
                rate = u[l + 5]
                pull = Number(tree.stiffness[l] * tree.rest[l]) - tree.stiffness[l] * angle[l] - tree.damping[l] * rate
                for r in range(lanes):
                    pull[r] = pull[r] + joint_force[wp.min(begin + r, last), l - 1]
                free[l + 5] = pull - bias_of(s, tree, l)
                add_inertia(s, tree, l, H)
            add_base(s, tree, H)
            for i in range(3):
                free[i] = -s.bias_m[0][i]
                free[i + 3] = -s.bias_f[0][i]
                u[i] = w[i]
                u[i + 3] = none
            factor(H, tree)
            take_substeps(1, physics.dt, touching, H, free, u, went, angle, near, c, normal, base_v, tree, law)
            for l in range(1, all_links):
                out[l + 5] = c.stopped[l]
            moment = Vector()
            thrust = Vector()
            for n in range(touching):
                f = 4 * near.candidate[n]
                aside = near.tangent[n]
                across = cross(normal, aside)
                push = scaled(normal, c.pressed[f] + c.pressed[f + 1] + c.pressed[f + 2] + c.pressed[f + 3])
                push = push + law.mu * scaled(aside, c.pressed[f] - c.pressed[f + 1])
                push = push + law.mu * scaled(across, c.pressed[f + 2] - c.pressed[f + 3])
                thrust = thrust + push
                moment = moment + cross(near.position[n], push)
                l = near.link[n]
                for k in range(tree.depth[l]):
                    at = tree.path[l, k] + 5
                    out[at] = out[at] + dot(near.lever[n * deepest + k], push)
            for i in range(3):
                out[i] = thrust[i]
                out[i + 3] = moment[i]
        for r in range(lanes):
            env = wp.min(begin + r, last)
            for n in range(4 * all_contacts):
                pressed[env, n] = c.pressed[n][r]
            for l in range(all_links):
                stopped[env, l] = c.stopped[l][r]
            turn = wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3])
            pushed = wp.quat_rotate(wp.normalize(turn), wp.vec3(out[0, r], out[1, r], out[2, r]))
            for i in range(3):
                force[env, i] = pushed[i]
            for k in range(3, nv):
                force[env, k] = out[k, r]

    key = f"constraint_force_{shape.key}_{width}"
    module = wp.get_module(f"nerd_gym.{key}")
    module.options["enable_backward"] = False
    module.options["max_unroll"] = 6  # as of the frame kernel
    return wp.Kernel(constraint_force, key=key, module=module)
