"""How far a robot's candidate points are from the ground, and how they move over it, as a Warp kernel."""

from __future__ import annotations

from functools import lru_cache

import torch
import warp as wp
from torch import Tensor

from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel

from .launch import Slices, lanes_on
from .simd import cross, dot, scaled, simd_types, times_one
from .spatial import matrix_of, motion_axis, placed
from .tree import Tree, TreeShape, make_tree, shape_of


@lru_cache(maxsize=32)
def distance_kernel(shape: TreeShape, width: int, frame: int = -1) -> wp.Kernel:
    """Distances [N, C] of environments `first`, ...; negative inside the ground. A thread takes `width` of them.

    With a `frame`, a link, also the points' velocities along the normal [N, C], their slips [N, 3 C] in world axes, and
    that link's rotation [N, 9]; without one these arrays are not touched.
    """
    links, contacts, free = len(shape.parents), shape.contacts, shape.free
    first_joint = 1 if free else 0
    q_shift, dof_shift = (6, 5) if free else (0, 0)
    moving_links = links if frame >= 0 else 1
    Number, Vector, Quat, Matrix = simd_types(width)
    per_link = wp.types.matrix((links, width), wp.float32)

    def distance(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        distances: wp.array2d(dtype=wp.float32),
        speeds: wp.array2d(dtype=wp.float32),
        slips: wp.array2d(dtype=wp.float32),
        turned: wp.array2d(dtype=wp.float32),
        first: int,
    ):
        begin = wp.tid() * width + first
        last = q.shape[0] - 1  # lanes beyond it repeat this row
        all_links = int(links)
        all_contacts = int(contacts)
        lanes = int(width)
        rotation = wp.zeros(shape=(links,), dtype=Matrix)
        origin = wp.zeros(shape=(links,), dtype=Vector)
        vel_w = wp.zeros(shape=(moving_links,), dtype=Vector)
        vel_v = wp.zeros(shape=(moving_links,), dtype=Vector)
        position = per_link()
        speed = per_link()
        quat = Quat()
        w = Vector()
        v = Vector()
        normal = Vector()
        height = Number()
        for r in range(lanes):
            env = wp.min(begin + r, last)
            at = wp.vec3(0.0, 0.0, 0.0)
            if wp.static(free):
                at = wp.vec3(q[env, 0], q[env, 1], q[env, 2])
                for i in range(3):
                    quat[i, r] = q[env, 4 + i]
                quat[3, r] = q[env, 3]
                if wp.static(frame >= 0):
                    turn = wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3])
                    omega = wp.quat_rotate(turn, wp.vec3(qd[env, 3], qd[env, 4], qd[env, 5]))
                    for i in range(3):
                        v[i, r] = qd[env, i]
                        w[i, r] = omega[i]
            height[r] = wp.dot(ground_normal[env], at - ground_point[env])
            for i in range(3):
                normal[i, r] = ground_normal[env][i]
            for l in range(first_joint, all_links):
                position[l, r] = q[env, l + q_shift] - tree.zero[l]
                if wp.static(frame >= 0):
                    speed[l, r] = qd[env, l + dof_shift]
        identity = Matrix()
        identity[0] = Number(1.0)
        identity[4] = Number(1.0)
        identity[8] = Number(1.0)
        if wp.static(free):
            rotation[0] = matrix_of(quat, identity)
            if wp.static(frame >= 0):
                vel_w[0] = w
                vel_v[0] = v
        for l in range(first_joint, all_links):
            p = tree.parent[l]
            up = identity
            place = Vector()
            if p >= 0:
                up = rotation[p]
                place = origin[p]
            own, place, axis = placed(up, place, position[l], tree, l)
            rotation[l] = own
            origin[l] = place
            if wp.static(frame >= 0):
                turning, moving = motion_axis(axis, place, tree.slide[l])
                pw = Vector()
                pv = Vector()
                if p >= 0:
                    pw = vel_w[p]
                    pv = vel_v[p]
                vel_w[l] = pw + scaled(turning, speed[l])
                vel_v[l] = pv + scaled(moving, speed[l])
        for n in range(all_contacts):
            l = tree.contact_link[n]
            point = origin[l] + times_one(rotation[l], tree.contact_point[n])
            over = height + dot(normal, point) - Number(tree.contact_radius[n])
            for r in range(lanes):
                distances[wp.min(begin + r, last), n] = over[r]
            if wp.static(frame >= 0):
                point = point - tree.contact_radius[n] * normal
                velocity = vel_v[l] + cross(vel_w[l], point)
                along = dot(velocity, normal)
                slip = velocity - scaled(normal, along)
                for r in range(lanes):
                    env = wp.min(begin + r, last)
                    speeds[env, n] = along[r]
                    for i in range(3):
                        slips[env, 3 * n + i] = slip[i, r]
        if wp.static(frame >= 0):
            own = rotation[frame]
            for r in range(lanes):
                for i in range(9):
                    turned[wp.min(begin + r, last), i] = own[i, r]

    key = f"distance_{shape.key}_{width}" + (f"_{frame}" if frame >= 0 else "")
    module = wp.get_module(f"nerd_gym.distance.{key}")
    module.options["enable_backward"] = False
    module.options["max_unroll"] = 6
    return wp.Kernel(distance, key=key, module=module)


class DistanceFinder:
    """The distances of a robot's candidates over planes, for batches whose tensors stay where they are."""

    def __init__(self, robot: RobotModel, device: torch.device):
        links = read_links(robot)
        self._width, self._shape = lanes_on(device), shape_of(robot, links)
        self._tree = make_tree(links, robot, wp.device_from_torch(device))
        # The link of the first moving body, which is a robot's own frame.
        self._frame = links["frames"][int(robot.mj_model.jnt_bodyid[0])][0]

    def record(self, slices: Slices, q: Tensor, point: Tensor, normal: Tensor, out: Tensor) -> list[wp.Launch]:
        """Launches that write distances [N, C] of q [N, nq] over planes (point, normal) [N, 3] into `out`."""
        nothing = q.new_zeros(1, 1)
        return self._record(slices, -1, q, nothing, point, normal, out, nothing, nothing, nothing)

    def record_motion(self, slices: Slices, *given: Tensor) -> list[wp.Launch]:
        """The same with q, qd, point, normal, and what :func:`distance_kernel` writes with a frame."""
        return self._record(slices, self._frame, *given)

    def _record(self, slices: Slices, frame: int, *given: Tensor) -> list[wp.Launch]:
        q, qd, point, normal, *out = given
        ground = [wp.from_torch(x, dtype=wp.vec3) for x in (point, normal)]
        inputs = [wp.from_torch(q), wp.from_torch(qd), *ground, self._tree, *map(wp.from_torch, out)]
        return slices.record(distance_kernel(self._shape, self._width, frame), inputs, self._width)
