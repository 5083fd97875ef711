"""How far a robot's candidate points are from the ground, and how they move over it, as a Warp kernel."""

from __future__ import annotations

from functools import lru_cache

import torch
import warp as wp
from torch import Tensor

from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel

from .lane_state import lane_reader
from .launch import Slices, lanes_on
from .links import link_functions
from .simd import dot, rows, scaled, simd_types
from .spatial import matrix_of
from .tree import Tree, TreeShape, make_tree, shape_of


@lru_cache(maxsize=32)
def distance_kernel(shape: TreeShape, width: int, frame: int = -1) -> wp.Kernel:
    """Distances [N, C] of environments `first`, ...; negative inside the ground. A thread takes `width` of them.

    With a `frame`, a link, also the points' velocities along the normal [N, C], their slips [N, 3 C] in world axes, and
    that link's rotation [N, 9]; without one these arrays are not touched.
    """
    links, contacts, free = len(shape.parents), shape.contacts, shape.free
    first_joint = 1 if free else 0
    Number, Vector, Quat, Matrix = simd_types(width)
    per_link, of_links = rows(links, width), link_functions(shape, width)
    Room = of_links.motion_room if frame >= 0 else of_links.pose_room
    opened, place, move = of_links.opened, of_links.place, of_links.move
    point_of, velocity_at, read = of_links.point, of_links.velocity, lane_reader(shape, width, frame >= 0)

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
        link_room = Room()
        s = opened(wp.address_of(link_room))
        position = per_link()
        speed = per_link()
        base = Vector()
        quat = Quat()
        w = Vector()
        v = Vector()
        normal = Vector()
        height = Number()
        read(q, qd, ground_point, ground_normal, tree, begin, base, quat, w, v, normal, height, position, speed)
        if wp.static(free):
            s.rotation[0] = matrix_of(quat, Matrix())
            if wp.static(frame >= 0):
                s.vel_w[0] = w
                s.vel_v[0] = v
        for l in range(first_joint, all_links):
            if wp.static(frame >= 0):
                move(s, tree, l, position[l], speed[l], Vector())
            else:
                place(s, tree, l, position[l])
        for n in range(all_contacts):
            point = point_of(s, tree, n)
            over = height + dot(normal, point) - Number(tree.contact_radius[n])
            for r in range(lanes):
                distances[wp.min(begin + r, last), n] = over[r]
            if wp.static(frame >= 0):
                point = point - tree.contact_radius[n] * normal
                velocity = velocity_at(s, tree.contact_link[n], point)
                along = dot(velocity, normal)
                slip = velocity - scaled(normal, along)
                for r in range(lanes):
                    env = wp.min(begin + r, last)
                    speeds[env, n] = along[r]
                    for i in range(3):
                        slips[env, 3 * n + i] = slip[i, r]
        if wp.static(frame >= 0):
            own = s.rotation[frame]
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
