"""Forces of contacts and joint limits alone [N, nv], for an engine that moves the robots itself: by local laws.

A local law gives the force of each contact from its own depth and motion: the penalty law or a network (contact.py).
Forces are MuJoCo's generalised ones: on a free base the force in world axes, then the moment about the base's origin in
its own axes; then the joints'.
"""

from __future__ import annotations

from functools import lru_cache

import warp as wp

from .contact import furthest, network_force, penalty_force
from .functions import network_blocks
from .joints import limit_torque
from .lane_state import lane_reader
from .links import link_functions
from .simd import any_positive, cross, dot, rows, simd_types, views
from .spatial import matrix_of
from .tree import Networks, PhysicsParams, Tree, TreeShape


@lru_cache(maxsize=32)
def local_force_kernel(shape: TreeShape, width: int, contact_net: int = 0, limits: bool = True) -> wp.Kernel:
    """Forces of rows `first`, ... by a local law, `width` robots in a thread.

    contact_net is the hidden width of a network; 0: the penalty law. `limits`: with the MJCF's springs at joint limits.
    `reached` [N] grows to how far out the contacts are, in parts of `span` (depth, speed).
    """
    links, nv, contacts, free = len(shape.parents), shape.nv, shape.contacts, shape.free
    first_joint, dof_shift = int(free), 5 * free
    Number, Vector, Quat, Matrix = simd_types(width)
    per_link, per_dof = rows(links, width), rows(nv, width)
    fours = network_blocks(6, contact_net)
    NetworkRoom = rows(4 * fours, width)
    blocks, wides = views(rows(4, width), width), views(wp.types.vector(4 * width, wp.float32), width)
    numbers, read = views(Number, width), lane_reader(shape, width)
    of_links = link_functions(shape, width)
    Room, opened, move = of_links.room, of_links.opened, of_links.move
    point_of, velocity_at, gathered = of_links.point, of_links.velocity, of_links.bias

    def local_force(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        physics: PhysicsParams,
        networks: Networks,
        span: wp.vec2,
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
        s = opened(wp.address_of(link_room))
        if wp.static(contact_net > 0):
            network_room = NetworkRoom()
            layers = numbers(wp.address_of(network_room), 0, 4 * fours)
            layer_blocks = blocks(wp.address_of(network_room), 0, fours)
            layer_wides = wides(wp.address_of(network_room), 0, fours)
        position = per_link()
        speed = per_link()
        out = per_dof()
        base = Vector()
        quat = Quat()
        w = Vector()
        v = Vector()
        normal = Vector()
        height = Number()
        read(q, qd, ground_point, ground_normal, tree, begin, base, quat, w, v, normal, height, position, speed)
        if wp.static(free):
            s.rotation[0] = matrix_of(quat, Matrix())
            s.vel_w[0] = w
            s.vel_v[0] = v
        for l in range(first_joint, all_links):
            move(s, tree, l, position[l], speed[l], Vector())
        for l in range(all_links):
            s.bias_m[l] = Vector()
            s.bias_f[l] = Vector()
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
                        networks.contact, deep, velocity, normal, contact_net, layers, layer_blocks, layer_wides
                    )
                else:
                    push = penalty_force(deep, velocity, normal, physics)
                s.bias_f[l] = s.bias_f[l] + push
                s.bias_m[l] = s.bias_m[l] + cross(point, push)
                size = dot(velocity, velocity)
                for r in range(lanes):
                    env = wp.min(begin + r, last)
                    reached[env] = furthest(deep[r], wp.sqrt(size[r]), span, reached[env])
        for back in range(first_joint, all_links):
            l = links - 1 - back + first_joint
            pull = gathered(s, tree, l)
            if wp.static(limits):
                pull = pull + limit_torque(position[l], speed[l], tree.lower[l], tree.upper[l], physics)
            out[l + dof_shift] = pull
        if wp.static(free):
            for i in range(3):
                out[i] = s.bias_f[0][i]
                # The base's axes are the columns of its rotation.
                out[i + 3] = (
                    wp.cw_mul(s.rotation[0][i], s.bias_m[0][0])
                    + wp.cw_mul(s.rotation[0][3 + i], s.bias_m[0][1])
                    + wp.cw_mul(s.rotation[0][6 + i], s.bias_m[0][2])
                )
        for r in range(lanes):
            env = wp.min(begin + r, last)
            for k in range(nv):
                force[env, k] = out[k, r]

    key = f"local_force_{shape.key}_{width}" + (f"_{contact_net}" if contact_net else "")
    key += "" if limits else "_bare"
    module = wp.get_module(f"nerd_gym.{key}")
    module.options["enable_backward"] = False
    module.options["max_unroll"] = 6  # as of the frame kernel
    return wp.Kernel(local_force, key=key, module=module)
