"""The state of a batch's rows in the lanes of a thread: read from q, qd and the ground of the environments."""

from functools import lru_cache

import warp as wp

from .simd import rows, simd_types
from .tree import Tree, TreeShape


@lru_cache(maxsize=32)
def lane_reader(shape: TreeShape, width: int, moving: bool = True) -> wp.Function:
    """A function that reads rows `begin`, ... of a batch; see the arguments of the function in it.

    Where the robots are not `moving`, qd is not looked at and velocities stay as they are.
    """
    links, free, first_joint = len(shape.parents), shape.free, int(shape.free)
    dof_shift, q_shift = 5 * shape.free, 6 * shape.free
    Number, Vector, Quat, _ = simd_types(width)
    per_link = rows(links, width)

    @wp.func
    def read(
        q: wp.array2d(dtype=wp.float32),
        qd: wp.array2d(dtype=wp.float32),
        ground_point: wp.array(dtype=wp.vec3),
        ground_normal: wp.array(dtype=wp.vec3),
        tree: Tree,
        begin: int,
        base: wp.ref[Vector],  # position of a free base; from here on written
        quat: wp.ref[Quat],
        omega: wp.ref[Vector],  # in world axes
        velocity: wp.ref[Vector],
        normal: wp.ref[Vector],
        height: wp.ref[Number],  # of the base, or of the world's origin, over the ground
        position: wp.ref[per_link],  # of joints, from where the MJCF draws them
        speed: wp.ref[per_link],
    ):
        last = q.shape[0] - 1  # lanes beyond it repeat this row
        all_links = int(links)
        lanes = int(width)
        for r in range(lanes):
            env = wp.min(begin + r, last)
            at = wp.vec3(0.0, 0.0, 0.0)
            if wp.static(free):
                at = wp.vec3(q[env, 0], q[env, 1], q[env, 2])
                turn = wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3])
                for i in range(3):
                    base[i, r] = at[i]
                for i in range(4):
                    quat[i, r] = turn[i]
                if wp.static(moving):
                    w = wp.quat_rotate(turn, wp.vec3(qd[env, 3], qd[env, 4], qd[env, 5]))
                    for i in range(3):
                        velocity[i, r] = qd[env, i]
                        omega[i, r] = w[i]
            height[r] = wp.dot(ground_normal[env], at - ground_point[env])
            for i in range(3):
                normal[i, r] = ground_normal[env][i]
            for l in range(first_joint, all_links):
                position[l, r] = q[env, l + q_shift] - tree.zero[l]
                if wp.static(moving):
                    speed[l, r] = qd[env, l + dof_shift]

    return read
