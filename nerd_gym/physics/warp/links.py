"""The links of the robots in a thread's lanes: pose, motion, inertia and bias force link by link, and the mass matrix.

Every kernel of the equations of motion passes over the tree with these functions: from the root to the leaves
(`place`, `move`, `weigh`), then back (`bias`, `inertia`). Quantities are about one point that all links of a robot
share, in one set of axes (spatial.py).

What a link has is in a LinkState, arrays over memory of the kernel's own (`room`).
"""

from functools import lru_cache
from typing import NamedTuple

import warp as wp

from .simd import cross, dot, rows, scaled, simd_types, times_one, views
from .spatial import acceleration_of, impulse_of, inertia_about, moment_of, motion_axis, placed
from .tree import Tree, TreeShape

# Numbers per link of a LinkState, in its order: of poses alone, with motion, and all.
POSE, MOTION, WHOLE = 12, 30, 45


class LinkFunctions(NamedTuple):
    """Of robots of one shape, so many in a thread; each says what it does."""

    state: type
    room: type  # memory of a LinkState
    pose_room: type  # the same for kernels that only `place` links
    motion_room: type  # or `move` them
    opened: wp.Function
    place: wp.Function
    move: wp.Function
    weigh: wp.Function
    point: wp.Function
    velocity: wp.Function
    bias: wp.Function
    swap: wp.Function
    inertia: wp.Function
    base: wp.Function


@lru_cache(maxsize=32)
def link_functions(shape: TreeShape, width: int) -> LinkFunctions:
    """For kernels of robots of this shape."""
    links, base_dofs = len(shape.parents), 6 * shape.free
    Number, Vector, _, Matrix = simd_types(width)
    Symmetric = rows(6, width)
    Numbers = wp.array(dtype=Number)
    matrices, symmetrics, vectors = (views(dtype, width) for dtype in (Matrix, Symmetric, Vector))

    @wp.struct
    class LinkState:
        rotation: wp.array(dtype=Matrix)  # [L]
        origin: wp.array(dtype=Vector)
        axis_w: wp.array(dtype=Vector)  # motion axis, angular part
        axis_v: wp.array(dtype=Vector)  # motion axis, linear part
        vel_w: wp.array(dtype=Vector)
        vel_v: wp.array(dtype=Vector)
        acc_w: wp.array(dtype=Vector)  # acceleration at zero joint acceleration
        acc_v: wp.array(dtype=Vector)
        bias_m: wp.array(dtype=Vector)  # moment about the common point; of all that a link carries on the way back
        bias_f: wp.array(dtype=Vector)
        first_moment: wp.array(dtype=Vector)  # mass times com; composite on the way back
        inertia_o: wp.array(dtype=Symmetric)  # about the common point; composite on the way back

    @wp.func
    def opened(room: wp.uint64):
        """The state in a kernel's own memory."""
        s = LinkState()
        s.rotation = matrices(room, 0, links)
        s.origin = vectors(room, 9 * links, links)
        s.axis_w = vectors(room, 12 * links, links)
        s.axis_v = vectors(room, 15 * links, links)
        s.vel_w = vectors(room, 18 * links, links)
        s.vel_v = vectors(room, 21 * links, links)
        s.acc_w = vectors(room, 24 * links, links)
        s.acc_v = vectors(room, 27 * links, links)
        s.bias_m = vectors(room, 30 * links, links)
        s.bias_f = vectors(room, 33 * links, links)
        s.first_moment = vectors(room, 36 * links, links)
        s.inertia_o = symmetrics(room, 39 * links, links)
        return s

    @wp.func
    def place(s: LinkState, tree: Tree, l: int, angle: Number):
        """Rotation and origin of link l, whose joint is at `angle`; gives the joint's axis [3, W]."""
        p = tree.parent[l]
        up = Matrix()
        up[0] = Number(1.0)
        up[4] = Number(1.0)
        up[8] = Number(1.0)
        at = Vector()
        if p >= 0:
            up = s.rotation[p]
            at = s.origin[p]
        own, at, axis = placed(up, at, angle, tree, l)
        s.rotation[l] = own
        s.origin[l] = at
        return axis

    @wp.func
    def move(s: LinkState, tree: Tree, l: int, angle: Number, rate: Number, upwards: Vector):
        """Pose, motion axis, velocity and acceleration of link l; `upwards` is the world's acceleration, -gravity."""
        axis = place(s, tree, l, angle)
        turning, moving = motion_axis(axis, s.origin[l], tree.slide[l])
        p = tree.parent[l]
        pw = Vector()
        pv = Vector()
        aw = Vector()
        av = upwards
        if p >= 0:
            pw = s.vel_w[p]
            pv = s.vel_v[p]
            aw = s.acc_w[p]
            av = s.acc_v[p]
        gain_w, gain_v = acceleration_of(pw, pv, turning, moving, rate)
        s.axis_w[l] = turning
        s.axis_v[l] = moving
        s.vel_w[l] = pw + scaled(turning, rate)
        s.vel_v[l] = pv + scaled(moving, rate)
        s.acc_w[l] = aw + gain_w
        s.acc_v[l] = av + gain_v

    @wp.func
    def weigh(s: LinkState, tree: Tree, l: int):
        """Inertia of link l about the common point, and the force that its motion so far needs."""
        m = tree.mass[l]
        own = s.rotation[l]
        com = s.origin[l] + times_one(own, tree.com[l])
        h = m * com
        about = inertia_about(own, tree.inertia[l], com, h)
        s.first_moment[l] = h
        s.inertia_o[l] = about
        w = s.vel_w[l]
        v = s.vel_v[l]
        momentum_m = moment_of(about, h, w, v)
        momentum_f = impulse_of(m, h, w, v)
        aw = s.acc_w[l]
        av = s.acc_v[l]
        s.bias_m[l] = moment_of(about, h, aw, av) + cross(w, momentum_m) + cross(v, momentum_f)
        s.bias_f[l] = impulse_of(m, h, aw, av) + cross(w, momentum_f)

    @wp.func
    def point(s: LinkState, tree: Tree, n: int):
        """Centre [3, W] of contact candidate n."""
        l = tree.contact_link[n]
        return s.origin[l] + times_one(s.rotation[l], tree.contact_point[n])

    @wp.func
    def velocity(s: LinkState, l: int, at: Vector):
        """Of a point [3, W] that link l carries."""
        return s.vel_v[l] + cross(s.vel_w[l], at)

    @wp.func
    def bias(s: LinkState, tree: Tree, l: int):
        """The force [W] that the motion needs of joint l; what it carries is added to its parent. Leaves first."""
        p = tree.parent[l]
        m = s.bias_m[l]
        f = s.bias_f[l]
        if p >= 0:
            s.bias_m[p] = s.bias_m[p] + m
            s.bias_f[p] = s.bias_f[p] + f
        return dot(s.axis_w[l], m) + dot(s.axis_v[l], f)

    @wp.func
    def swap(s: LinkState, tree: Tree):
        """Give each link the inertia that stands for its own in H (tree.inertia_of), in pairs."""
        all_links = int(links)
        for l in range(all_links):
            j = tree.inertia_of[l]
            if j > l:
                h = s.first_moment[l]
                about = s.inertia_o[l]
                s.first_moment[l] = s.first_moment[j]
                s.inertia_o[l] = s.inertia_o[j]
                s.first_moment[j] = h
                s.inertia_o[j] = about

    @wp.func
    def inertia(s: LinkState, tree: Tree, l: int, H: Numbers):
        """Joint l's row of the mass matrix, packed as factor.py has it; its inertia is added to its parent."""
        p = tree.parent[l]
        w = s.axis_w[l]
        v = s.axis_v[l]
        about = s.inertia_o[l]
        h = s.first_moment[l]
        need_m = moment_of(about, h, w, v)
        need_f = impulse_of(tree.composite_mass[l], h, w, v)
        row = tree.row[l] + base_dofs
        depth = tree.depth[l]
        H[row + depth - 1] = dot(w, need_m) + dot(v, need_f) + Number(tree.armature[l])
        for k in range(depth - 1):
            above = tree.path[l, k]
            H[row + k] = dot(s.axis_w[above], need_m) + dot(s.axis_v[above], need_f)
        if wp.static(base_dofs > 0):
            for i in range(3):
                H[row - 6 + i] = need_m[i]
                H[row - 3 + i] = need_f[i]
        if p >= 0:
            s.first_moment[p] = s.first_moment[p] + h
            s.inertia_o[p] = s.inertia_o[p] + about

    @wp.func
    def base(s: LinkState, tree: Tree, H: Numbers):
        """The free base's rows: rotation, then force, which has -skew(mass times com) and the mass."""
        about = s.inertia_o[0]
        h = s.first_moment[0]
        mass = Number(tree.composite_mass[0])
        none = Number(0.0)
        H[0] = about[0]
        H[1] = about[3]
        H[2] = about[1]
        H[3] = about[4]
        H[4] = about[5]
        H[5] = about[2]
        H[6] = none
        H[7] = h[2]
        H[8] = -h[1]
        H[9] = mass
        H[10] = -h[2]
        H[11] = none
        H[12] = h[0]
        H[13] = none
        H[14] = mass
        H[15] = h[1]
        H[16] = -h[0]
        H[17] = none
        H[18] = none
        H[19] = none
        H[20] = mass

    room, pose_room, motion_room = (rows(size * links, width) for size in (WHOLE, POSE, MOTION))
    return LinkFunctions(
        LinkState, room, pose_room, motion_room, opened, place, move, weigh, point, velocity, bias, swap, inertia, base
    )
