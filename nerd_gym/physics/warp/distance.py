"""How far a robot's candidate points are from the ground, as a Warp kernel."""

from __future__ import annotations

from functools import lru_cache

import torch
import warp as wp
from torch import Tensor

from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel

from .launch import Slices, lanes_on
from .simd import dot, simd_types, times_one
from .spatial import matrix_of, placed
from .tree import Tree, TreeShape, make_tree, shape_of


@lru_cache(maxsize=32)
def distance_kernel(shape: TreeShape, width: int) -> wp.Kernel:
    """Distances [N, C] of environments `first`, ...; negative inside the ground. A thread takes `width` of them."""
    links, contacts, free = len(shape.parents), shape.contacts, shape.free
    first_joint = 1 if free else 0
    q_shift = 6 if free else 0
    Number, Vector, Quat, Matrix = simd_types(width)
    per_link = wp.types.matrix((links, width), wp.float32)

    def distance(
        q: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        distances: wp.array2d(dtype=wp.float32),
        first: int,
    ):
        begin = wp.tid() * width + first
        last = q.shape[0] - 1  # lanes beyond it repeat this row
        all_links = int(links)
        all_contacts = int(contacts)
        lanes = int(width)
        rotation = wp.zeros(shape=(links,), dtype=Matrix)
        origin = wp.zeros(shape=(links,), dtype=Vector)
        position = per_link()
        quat = Quat()
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
            height[r] = wp.dot(ground_normal[env], at - ground_point[env])
            for i in range(3):
                normal[i, r] = ground_normal[env][i]
            for l in range(first_joint, all_links):
                position[l, r] = q[env, l + q_shift] - tree.zero[l]
        identity = Matrix()
        identity[0] = Number(1.0)
        identity[4] = Number(1.0)
        identity[8] = Number(1.0)
        if wp.static(free):
            rotation[0] = matrix_of(quat, identity)
        for l in range(first_joint, all_links):
            p = tree.parent[l]
            up = identity
            place = Vector()
            if p >= 0:
                up = rotation[p]
                place = origin[p]
            own, place, _axis = placed(up, place, position[l], tree, l)
            rotation[l] = own
            origin[l] = place
        for n in range(all_contacts):
            l = tree.contact_link[n]
            point = origin[l] + times_one(rotation[l], tree.contact_point[n])
            over = height + dot(normal, point) - Number(tree.contact_radius[n])
            for r in range(lanes):
                distances[wp.min(begin + r, last), n] = over[r]

    key = f"distance_{shape.key}_{width}"
    module = wp.get_module(f"nerd_gym.distance.{key}")
    module.options["enable_backward"] = False
    module.options["max_unroll"] = 6
    return wp.Kernel(distance, key=key, module=module)


class DistanceFinder:
    """The distances of a robot's candidates over planes, for batches whose tensors stay where they are."""

    def __init__(self, robot: RobotModel, device: torch.device):
        links = read_links(robot)
        self._width = lanes_on(device)
        self._tree = make_tree(links, robot, wp.device_from_torch(device))
        self._kernel = distance_kernel(shape_of(robot, links), self._width)

    def record(self, slices: Slices, q: Tensor, point: Tensor, normal: Tensor, out: Tensor) -> list[wp.Launch]:
        """Launches that write distances [N, C] of q [N, nq] over planes (point, normal) [N, 3] into `out`."""
        ground = [wp.from_torch(x, dtype=wp.vec3) for x in (point, normal)]
        inputs = [wp.from_torch(q), *ground, self._tree, wp.from_torch(out)]
        return slices.record(self._kernel, inputs, self._width)
