"""A sketch of a frame: what moves a robot with a free base, worked out at one pose half way, for a network to correct.

A simulator works out poses, mass matrix and motion forces anew in every substep. Most of a frame can be told from one
such look: at the pose half way the mass matrix H is factored once, and each of the points that may touch the ground in
this frame has its Jacobian J. The substeps are then no more than

    velocity of a point = J u;    u += dt H^-1 (free + limits(q, u) + sum of J^T contact force);    q += dt u

with contacts and limits as stiff as they are. What the frozen pose gets wrong is left to the network. Inertias and
contact gains come from data (identify_free.py).

All is in the axes that the base has half way, about its origin, in a world that moves with the base's velocity at the
frame's start. One thread sketches one robot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import warp as wp

from ..backends.featherstone import Physics, Tree, contact_force

AHEAD = wp.constant(1.5)  # a point counts that would touch within so many frames at its present speed,
CLOSE = wp.constant(0.01)  # or come as close as this, m


class Shape(NamedTuple):
    """What a kernel is made for."""

    parents: tuple[int, ...]  # [L] links
    dof_parents: tuple[int, ...]  # [nv]
    contacts: int

    @property
    def deepest(self) -> int:
        """The longest way from the base to a link, in joints."""
        return max(len(way) for way in self.ways())

    def ways(self) -> list[list[int]]:
        """Of every link, the dofs from the base to it."""
        ways: list[list[int]] = []
        for link, parent in enumerate(self.parents):
            ways.append([*ways[parent], link + 5] if link else [])
        return ways

    def pairs(self) -> list[tuple[int, int]]:
        """Every dof with each of its ancestors, from the leaves to the root."""
        found = []
        for k in reversed(range(len(self.dof_parents))):
            i = self.dof_parents[k]
            while i >= 0:
                found.append((k, i))
                i = self.dof_parents[i]
        return found


@wp.struct
class Ways:
    """Of every link, the dofs from the base to it."""

    depth: wp.array(dtype=wp.int32)  # [L]
    dof: wp.array2d(dtype=wp.int32)  # [L, deepest]


def shape_of(tree: Tree) -> Shape:
    """Of a robot with a free base."""
    parents, dofs = (tuple(int(x) for x in table.numpy()) for table in (tree.parent, tree.dof_parent))
    return Shape(parents, dofs, len(tree.contact_link))


def make_ways(shape: Shape, device: wp.context.Device) -> Ways:
    """As Warp arrays."""
    ways = Ways()
    lists = shape.ways()
    dof = np.zeros((len(lists), max(1, shape.deepest)), np.int32)
    for link, way in enumerate(lists):
        dof[link, : len(way)] = way
    ways.depth = wp.array([len(way) for way in lists], dtype=wp.int32, device=device)
    ways.dof = wp.array(dof, dtype=wp.int32, device=device)
    return ways


@lru_cache(maxsize=32)
def sketch_kernel(shape: Shape) -> wp.Kernel:
    """Step and change of velocity [N, nv] of environments `first`, ..., in the base's axes at the frame's start.

    And how far over the ground the candidates [N, C] would be at its end, if nothing happened on the way.
    """
    links, nv, contacts = len(shape.parents), len(shape.dof_parents), shape.contacts
    pairs = shape.pairs()
    low, high = [k for k, _ in pairs], [i for _, i in pairs]
    at = [k * nv + i for k, i in pairs]  # where L is not zero
    count = len(pairs)
    deepest = max(1, shape.deepest)
    points = max(1, contacts)
    reaches = points * deepest
    vector, packed = wp.types.vector(nv, wp.float32), wp.types.vector(nv * nv, wp.float32)

    def sketch(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        force: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        physics: Physics,
        ways: Ways,
        step: wp.array2d(dtype=wp.float32),
        change: wp.array2d(dtype=wp.float32),
        ahead: wp.array2d(dtype=wp.float32),
        first: int,
    ):
        env = wp.tid() + first
        dt = physics.dt
        span = dt * float(physics.substeps)
        half = 0.5 * span
        # Loops up to these stay loops; those up to numbers that Python knows are written out.
        all_links = int(links)
        all_contacts = int(contacts)

        rotation = wp.zeros(shape=(links,), dtype=wp.mat33)
        origin = wp.zeros(shape=(links,), dtype=wp.vec3)
        axis_w = wp.zeros(shape=(links,), dtype=wp.vec3)
        axis_v = wp.zeros(shape=(links,), dtype=wp.vec3)
        vel_w = wp.zeros(shape=(links,), dtype=wp.vec3)
        vel_v = wp.zeros(shape=(links,), dtype=wp.vec3)
        acc_w = wp.zeros(shape=(links,), dtype=wp.vec3)
        acc_v = wp.zeros(shape=(links,), dtype=wp.vec3)
        bias_m = wp.zeros(shape=(links,), dtype=wp.vec3)
        bias_f = wp.zeros(shape=(links,), dtype=wp.vec3)
        mass = wp.zeros(shape=(links,), dtype=wp.float32)
        arm = wp.zeros(shape=(links,), dtype=wp.vec3)
        spin = wp.zeros(shape=(links,), dtype=wp.mat33)
        H = packed()
        free = vector()  # what moves it but for contacts, limits, damping and springs
        u = vector()
        x = vector()
        way = vector()
        angle = wp.zeros(shape=(links,), dtype=wp.float32)
        damping = wp.zeros(shape=(links,), dtype=wp.float32)
        stiffness = wp.zeros(shape=(links,), dtype=wp.float32)
        near = wp.zeros(shape=(points,), dtype=wp.int32)
        depth = wp.zeros(shape=(points,), dtype=wp.float32)
        place_of = wp.zeros(shape=(points,), dtype=wp.vec3)
        reach = wp.zeros(shape=(reaches,), dtype=wp.vec3)

        quat = wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3])
        w = wp.vec3(qd[env, 3], qd[env, 4], qd[env, 5])  # the same in the axes half way
        turned = wp.quat_from_axis_angle(wp.normalize(w), half * wp.length(w))
        into = wp.transpose(wp.quat_to_matrix(wp.normalize(quat * turned)))  # from the world
        base_v = into * wp.vec3(qd[env, 0], qd[env, 1], qd[env, 2])
        gravity = into * physics.gravity
        plane = ground_normal[env]
        normal = into * plane
        base = wp.vec3(q[env, 0], q[env, 1], q[env, 2])
        height = wp.dot(plane, base - ground_point[env])

        # Poses, motion axes, velocities and the forces that the motion needs, root to leaves.
        rotation[0] = wp.identity(n=3, dtype=wp.float32)
        vel_w[0] = w
        acc_v[0] = -gravity
        for l in range(all_links):
            if l > 0:
                p = tree.parent[l]
                up = rotation[p]
                pw = vel_w[p]
                pv = vel_v[p]
                axis = up * tree.axis[l]
                place = origin[p] + up * tree.offset[l]
                rate = qd[env, l + 5]
                there = q[env, l + 6] - tree.zero[l] + half * rate
                if tree.slide[l] == 1:
                    rotation[l] = up * tree.turn[l]
                    place = place + there * axis
                    axis_v[l] = axis
                    vel_w[l] = pw
                    vel_v[l] = pv + rate * axis
                    acc_w[l] = acc_w[p]
                    acc_v[l] = acc_v[p] + rate * wp.cross(pw, axis)
                else:
                    sine = wp.sin(there)
                    versine = 1.0 - wp.cos(there)
                    rotation[l] = up * (tree.turn[l] + sine * tree.turn_sin[l] + versine * tree.turn_cos[l])
                    swing = wp.cross(place, axis)
                    axis_w[l] = axis
                    axis_v[l] = swing
                    vel_w[l] = pw + rate * axis
                    vel_v[l] = pv + rate * swing
                    acc_w[l] = acc_w[p] + rate * wp.cross(pw, axis)
                    acc_v[l] = acc_v[p] + rate * (wp.cross(pw, swing) + wp.cross(pv, axis))
                origin[l] = place
            m = tree.mass[l]
            r = rotation[l]
            com = origin[l] + r * tree.com[l]
            h = m * com
            about = r * tree.inertia[l] * wp.transpose(r) + m * (
                wp.dot(com, com) * wp.identity(n=3, dtype=wp.float32) - wp.outer(com, com)
            )
            mass[l] = m
            arm[l] = h
            spin[l] = about
            lw = vel_w[l]
            lv = vel_v[l]
            momentum_m = about * lw + wp.cross(h, lv)
            momentum_f = m * lv - wp.cross(h, lw)
            bias_m[l] = about * acc_w[l] + wp.cross(h, acc_v[l]) + wp.cross(lw, momentum_m) + wp.cross(lv, momentum_f)
            bias_f[l] = m * acc_v[l] - wp.cross(h, acc_w[l]) + wp.cross(lw, momentum_f)

        # Forces but for contacts and limits, and the mass matrix, leaves to root.
        for back in range(1, all_links):
            l = links - back
            p = tree.parent[l]
            tau = force[env, l - 1] + tree.stiffness[l] * tree.rest[l]
            free[l + 5] = tau - wp.dot(axis_w[l], bias_m[l]) - wp.dot(axis_v[l], bias_f[l])
            u[l + 5] = qd[env, l + 5]
            angle[l] = q[env, l + 6] - tree.zero[l]
            damping[l] = tree.damping[l]
            stiffness[l] = tree.stiffness[l]
            bias_m[p] = bias_m[p] + bias_m[l]
            bias_f[p] = bias_f[p] + bias_f[l]
            mass[p] = mass[p] + mass[l]
            arm[p] = arm[p] + arm[l]
            spin[p] = spin[p] + spin[l]
            need_m = spin[l] * axis_w[l] + wp.cross(arm[l], axis_v[l])
            need_f = mass[l] * axis_v[l] - wp.cross(arm[l], axis_w[l])
            row = (l + 5) * nv
            H[row + l + 5] = wp.dot(axis_w[l], need_m) + wp.dot(axis_v[l], need_f) + tree.armature[l]
            while p >= 1:
                H[row + p + 5] = wp.dot(axis_w[p], need_m) + wp.dot(axis_v[p], need_f)
                p = tree.parent[p]
            for i in range(3):
                H[row + i] = need_m[i]
                H[row + i + 3] = need_f[i]
        h = arm[0]
        for i in range(3):
            free[i] = -bias_m[0][i]
            free[i + 3] = -bias_f[0][i]
            u[i] = w[i]
            for j in range(3):
                H[i * nv + j] = spin[0][i, j]
            H[(i + 3) * nv + i + 3] = mass[0]
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
            inverse = 1.0 / H[row + l + 5]
            for s in range(ways.depth[l] - 1):
                i = ways.dof[l, s]
                ratio = H[row + i] * inverse
                for t in range(s + 1):
                    H[i * nv + ways.dof[l, t]] = H[i * nv + ways.dof[l, t]] - ratio * H[row + ways.dof[l, t]]
                for j in range(6):
                    H[i * nv + j] = H[i * nv + j] - ratio * H[row + j]
            for i in range(6):
                ratio = H[row + i] * inverse
                for j in range(i + 1):
                    H[i * nv + j] = H[i * nv + j] - ratio * H[row + j]
            H[row + l + 5] = inverse
        for back in range(6):
            row = (5 - back) * nv
            inverse = 1.0 / H[row + 5 - back]
            for i in range(5 - back):
                ratio = H[row + i] * inverse
                for j in range(i + 1):
                    H[i * nv + j] = H[i * nv + j] - ratio * H[row + j]
            H[row + 5 - back] = inverse
        for n in range(count):
            H[wp.static(at[n])] = H[wp.static(at[n])] * H[wp.static(low[n] * (nv + 1))]

        # Jacobians of the points that may touch the ground in this frame.
        touching = wp.int32(0)
        for n in range(all_contacts):
            l = tree.contact_link[n]
            point = origin[l] + rotation[l] * tree.contact_point[n] - tree.contact_radius[n] * normal
            approach = wp.dot(normal, vel_v[l] + wp.cross(vel_w[l], point))
            deep = half * approach - height - wp.dot(normal, point)  # at the frame's start
            approach = approach + wp.dot(normal, base_v)
            ahead[env, n] = span * approach - deep
            if deep - AHEAD * span * wp.min(approach, 0.0) + CLOSE > 0.0:
                near[touching] = l
                place_of[touching] = point
                depth[touching] = deep
                for s in range(ways.depth[l]):
                    j = ways.dof[l, s] - 5
                    reach[touching * deepest + s] = axis_v[j] + wp.cross(axis_w[j], point)
                touching += 1

        for sub in range(physics.substeps):
            for l in range(1, links):
                rate = u[l + 5]
                there = angle[l]
                tau = free[l + 5] - damping[l] * rate - stiffness[l] * there
                past = wp.min(there - tree.lower[l], 0.0) + wp.max(there - tree.upper[l], 0.0)
                if past != 0.0:
                    tau = tau - physics.limit_ke * past - physics.limit_kd * rate
                x[l + 5] = tau
            push_f = wp.vec3(free[3], free[4], free[5])
            push_m = wp.vec3(free[0], free[1], free[2])
            new_w = wp.vec3(u[0], u[1], u[2])
            velocity_0 = base_v + wp.vec3(u[3], u[4], u[5])
            for n in range(touching):
                l = near[n]
                point = place_of[n]
                velocity = velocity_0 + wp.cross(new_w, point)
                for s in range(ways.depth[l]):
                    velocity = velocity + u[ways.dof[l, s]] * reach[n * deepest + s]
                deep = depth[n]
                if sub > 0:
                    deep = deep - dt * wp.dot(velocity, normal)
                    depth[n] = deep
                if deep > 0.0:
                    push = contact_force(deep, velocity, normal, physics)
                    push_f = push_f + push
                    push_m = push_m + wp.cross(point, push)
                    for s in range(ways.depth[l]):
                        k = ways.dof[l, s]
                        x[k] = x[k] + wp.dot(reach[n * deepest + s], push)
            for i in range(3):
                x[i] = push_m[i]
                x[i + 3] = push_f[i]
            for n in range(count):
                x[wp.static(high[n])] = x[wp.static(high[n])] - H[wp.static(at[n])] * x[wp.static(low[n])]
            for k in range(nv):
                x[k] = x[k] * H[wp.static(k * nv + k)]
            for n in range(count):
                x[wp.static(low[-1 - n])] = (
                    x[wp.static(low[-1 - n])] - H[wp.static(at[-1 - n])] * x[wp.static(high[-1 - n])]
                )
            for k in range(nv):
                u[k] = u[k] + dt * x[k]
                way[k] = way[k] + dt * u[k]
            for l in range(1, links):
                angle[l] = angle[l] + dt * u[l + 5]

        for k in range(6, nv):
            step[env, k] = way[k]
            change[env, k] = u[k] - qd[env, k]
        out = wp.quat_to_matrix(turned)
        new_w = wp.vec3(u[0], u[1], u[2])
        moved = wp.vec3(way[3], way[4], way[5])
        drift = wp.cross(0.5 * (w + new_w), moved)  # the axes are still, the point that they are about is not
        gained = out * (wp.vec3(u[3], u[4], u[5]) + drift)
        moved = out * (span * base_v + moved)
        new_w = out * new_w
        turn = out * wp.vec3(way[0], way[1], way[2])
        for i in range(3):
            step[env, i] = moved[i]
            step[env, i + 3] = turn[i]
            change[env, i] = gained[i]
            change[env, i + 3] = new_w[i] - w[i]

    key = "_".join(["sketch", *map(str, shape.parents), str(nv), str(contacts)]).replace("-", "m")
    module = wp.get_module(f"nerd_gym.sketch.{key}")
    module.options["enable_backward"] = False
    module.options["max_unroll"] = count
    return wp.Kernel(sketch, key=key, module=module)
