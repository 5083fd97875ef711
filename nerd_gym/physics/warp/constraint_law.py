"""MuJoCo's constraints at a frozen pose: four pyramid edges per contact and joint limits, by Gauss-Seidel sweeps.

Each row of a constraint asks for an acceleration J a + R f = aref with f >= 0, where

    aref = -b (J u) - k d r,    b = 2 / (d t),    k = 1 / (d t z)^2,    R = (1 - d) / d * weight

with time constant t, damping ratio z, impedance d, distance r and the inverse weight of the body at the robot's zero
pose. An edge is the normal plus or minus mu times a tangent, and has 2 mu^2 (1 + mu^2) times that R.

With H = L^T D L and z = D^1/2 L a, J a is G z and a force f adds G^T f to z, for G = J L^-1 D^-1/2. G has entries only
where J has (the base and the way from it to the link), so that a sweep reads half of what J and H^-1 J^T would have.
Nothing but z, the rows' velocities and their distances changes inside a frozen pose.
"""

import warp as wp

from .constraint_rows import row_columns, row_functions
from .constraint_state import constraint_memory
from .factor import factor_functions
from .near_contacts import near_functions
from .simd import any_positive, cross, dot, simd_types
from .tree import Tree, TreeShape

SOFTER = wp.constant(2.0)  # 1 - d at the surface over that of deep contacts, in MuJoCo's default solimp
WIDTH = wp.constant(1.0e-3)  # depth, m or rad, over which it changes
SWEEPS = 5  # of Gauss-Seidel in a substep at a frozen pose, each from the forces of the last
LARGEST = wp.constant(1.0e30)  # force of a limit, so that minimum and maximum can be bounds


@wp.struct
class ConstraintParams:
    """Weights of rows, and the law's parameters as rows need them."""

    axis: wp.array(dtype=wp.vec3)  # [C], of a capsule, in the link's frame: its first tangent; 0 for other shapes
    contact_weight: wp.array(dtype=wp.float32)  # [C], of the body
    limit_weight: wp.array(dtype=wp.float32)  # [L]
    limited: wp.array(dtype=wp.int32)  # links whose joint has limits
    mu: wp.float32
    contact_b: wp.float32
    contact_k: wp.float32
    contact_impedance: wp.float32
    limit_b: wp.float32
    limit_k: wp.float32
    limit_impedance: wp.float32


def constraint_substeps(shape: TreeShape, width: int, sweeps: int = SWEEPS) -> wp.Function:
    """A function that takes the substeps of one pose; see the arguments of the function in it."""
    links, slots, deepest = len(shape.parents), max(1, shape.contacts), max(1, shape.deepest)
    nv, columns = shape.nv, row_columns(shape)
    whiten, along, push, push_one, whitened, unwhitened = row_functions(shape, width)
    near_of, diagonal = near_functions(shape, width), factor_functions(shape, width).diagonal
    NearContacts, velocity_of = near_of.contacts, near_of.velocity
    ConstraintState = constraint_memory(shape, width).state
    Number, Vector, _, _ = simd_types(width)
    Numbers = wp.array(dtype=Number)
    limits_at = 3 * slots * columns  # rows of contacts come first
    of_slots, of_links = wp.types.vector(slots, wp.int32), wp.types.vector(links, wp.int32)

    @wp.func
    def impedances(depth: Number, deepest_impedance: float):
        """d at depths >= 0: [W]."""
        out = Number(0.0)
        r = wp.int32(0)
        while r < width:
            x = wp.min(depth[r] / WIDTH, 1.0)
            y = wp.where(x < 0.5, 2.0 * x * x, 1.0 - 2.0 * (1.0 - x) * (1.0 - x))
            out[r] = 1.0 - (1.0 - deepest_impedance) * (SOFTER - (SOFTER - 1.0) * y)
            r += 1
        return out

    @wp.func
    def relaxed(f: Number, asked: Number, inverse: Number, soft: Number):
        """The force of an edge after one step of Gauss-Seidel, if its acceleration is off by `asked`."""
        return wp.max(f - wp.cw_mul(inverse, asked + wp.cw_mul(soft, f)), Number(0.0))

    @wp.func
    def substeps(
        count: int,  # substeps
        dt: float,
        touching: int,  # slots with a contact that is near
        H: Numbers,  # factored
        free: Numbers,  # [nv], forces but for contacts and limits
        u: Numbers,  # [nv], velocity, in and out
        displacement: Numbers,  # [nv], what the substeps add
        angle: Numbers,  # [L], of joints, in and out
        near: NearContacts,
        c: ConstraintState,
        normal: Vector,
        base_v: Vector,  # of the axes that u is in
        tree: Tree,
        law: ConstraintParams,
    ):
        pushing_room = of_slots()
        stopping_room = of_links()
        pushing = wp.array(ptr=wp.address_of(pushing_room), shape=(slots,), dtype=wp.int32)
        stopping = wp.array(ptr=wp.address_of(stopping_room), shape=(links,), dtype=wp.int32)
        none = Number(0.0)
        one = Number(1.0)
        lanes = int(width)
        all_dofs = int(nv)
        mu = law.mu
        edge_r = 2.0 * mu * mu * (1.0 + mu * mu)

        for k in range(all_dofs):
            root = H[diagonal(tree, k)]
            for r in range(lanes):
                root[r] = wp.sqrt(root[r])
            c.scale[k] = root
            c.z_free[k] = free[k]
            c.once[k] = none
            c.twice[k] = none
        whitened(H, c.z_free, c.scale, tree)

        # Rows of contacts: normal, first and second tangent.
        omega = wp.matrix_from_rows(u[0], u[1], u[2])
        origin_v = base_v + wp.matrix_from_rows(u[3], u[4], u[5])
        for n in range(touching):
            l = near.link[n]
            point = near.position[n]
            first = near.tangent[n]
            moving = velocity_of(near, n, omega, origin_v, u, tree)
            direction = Vector(normal)
            at = 3 * n * columns
            for i in range(3):
                if i == 1:
                    direction = Vector(first)
                if i == 2:
                    direction = cross(normal, first)
                lever = cross(point, direction)
                for j in range(3):
                    c.G[at + j] = lever[j]
                    c.G[at + 3 + j] = direction[j]
                for s in range(tree.depth[l]):
                    c.G[at + 6 + s] = dot(near.lever[n * deepest + s], direction)
                c.velocity[3 * n + i] = dot(moving, direction)
                whiten(c.G, at, l, H, c.scale, tree)
                at += columns
            at = 3 * n * columns
            a00 = none
            a01 = none
            a02 = none
            a11 = none
            a12 = none
            a22 = none
            for j in range(tree.depth[l] + 6):
                g0 = c.G[at + j]
                g1 = mu * c.G[at + columns + j]
                g2 = mu * c.G[at + 2 * columns + j]
                a00 = a00 + wp.cw_mul(g0, g0)
                a01 = a01 + wp.cw_mul(g0, g1)
                a02 = a02 + wp.cw_mul(g0, g2)
                a11 = a11 + wp.cw_mul(g1, g1)
                a12 = a12 + wp.cw_mul(g1, g2)
                a22 = a22 + wp.cw_mul(g2, g2)
            c.own[4 * n] = a00 + 2.0 * a01 + a11
            c.own[4 * n + 1] = a00 - 2.0 * a01 + a11
            c.own[4 * n + 2] = a00 + 2.0 * a02 + a22
            c.own[4 * n + 3] = a00 - 2.0 * a02 + a22
            column = 12 * n
            c.columns[column] = a00 + a01
            c.columns[column + 1] = a01 + a11
            c.columns[column + 2] = a02 + a12
            c.columns[column + 3] = a00 - a01
            c.columns[column + 4] = a01 - a11
            c.columns[column + 5] = a02 - a12
            c.columns[column + 6] = a00 + a02
            c.columns[column + 7] = a01 + a12
            c.columns[column + 8] = a02 + a22
            c.columns[column + 9] = a00 - a02
            c.columns[column + 10] = a01 - a12
            c.columns[column + 11] = a02 - a22

        # Rows of limits.
        for i in range(law.limited.shape[0]):
            l = law.limited[i]
            at = limits_at + l * columns
            for j in range(tree.depth[l] + 5):
                c.G[at + j] = none
            c.G[at + 5 + tree.depth[l]] = one
            whiten(c.G, at, l, H, c.scale, tree)
            own = none
            for j in range(tree.depth[l] + 6):
                own = own + wp.cw_mul(c.G[at + j], c.G[at + j])
            c.limit_own[l] = own
            c.here[l] = angle[l]
            c.rate[l] = u[l + 5]

        for _sub in range(count):
            # What is active, what it asks for, and the forces of the last substep.
            for k in range(all_dofs):
                c.z[k] = c.z_free[k]
            stops = wp.int32(0)
            for i in range(law.limited.shape[0]):
                l = law.limited[i]
                past = wp.min(c.here[l] - Number(tree.lower[l]), none) + wp.max(c.here[l] - Number(tree.upper[l]), none)
                if any_positive(wp.cw_mul(past, past)):
                    d = impedances(wp.max(past, -past), law.limit_impedance)
                    c.limit_target[l] = -law.limit_b * c.rate[l] - law.limit_k * wp.cw_mul(d, past)
                    c.limit_soft[l] = law.limit_weight[l] * wp.cw_div(one - d, d)
                    c.limit_inverse[l] = wp.cw_div(one, c.limit_own[l] + c.limit_soft[l])
                    low = Number(0.0)
                    high = Number(0.0)
                    r = wp.int32(0)
                    while r < width:
                        low[r] = wp.where(past[r] > 0.0, -LARGEST, 0.0)
                        high[r] = wp.where(past[r] < 0.0, LARGEST, 0.0)
                        r += 1
                    c.least[l] = low
                    c.most[l] = high
                    force = wp.min(wp.max(c.stopped[l], low), high)
                    c.stopped[l] = force
                    push_one(c.G, limits_at + l * columns, l, c.z, tree, force)
                    stopping[stops] = l
                    stops += 1
                else:
                    c.stopped[l] = none
            pushes = wp.int32(0)
            for n in range(touching):
                deep = near.depth[n]
                f = 4 * near.candidate[n]
                if any_positive(deep):
                    d = impedances(wp.max(deep, none), law.contact_impedance)
                    soft = (edge_r * law.contact_weight[near.candidate[n]]) * wp.cw_div(one - d, d)
                    c.soft[n] = soft
                    c.target[3 * n] = law.contact_k * wp.cw_mul(d, deep) - law.contact_b * c.velocity[3 * n]
                    c.target[3 * n + 1] = (-law.contact_b * mu) * c.velocity[3 * n + 1]
                    c.target[3 * n + 2] = (-law.contact_b * mu) * c.velocity[3 * n + 2]
                    on = Number(0.0)
                    r = wp.int32(0)
                    while r < width:
                        on[r] = wp.where(deep[r] > 0.0, 1.0, 0.0)
                        r += 1
                    for e in range(4):
                        c.inverse[4 * n + e] = wp.cw_div(on, c.own[4 * n + e] + soft)
                        c.pressed[f + e] = wp.cw_mul(c.pressed[f + e], on)
                    total = c.pressed[f] + c.pressed[f + 1] + c.pressed[f + 2] + c.pressed[f + 3]
                    aside = mu * (c.pressed[f] - c.pressed[f + 1])
                    across = mu * (c.pressed[f + 2] - c.pressed[f + 3])
                    push(c.G, 3 * n * columns, near.link[n], c.z, tree, total, aside, across)
                    pushing[pushes] = n
                    pushes += 1
                else:
                    for e in range(4):
                        c.pressed[f + e] = none

            all_sweeps = int(sweeps)
            for _sweep in range(all_sweeps):
                for i in range(stops):
                    l = stopping[i]
                    at = limits_at + l * columns
                    old = c.stopped[l]
                    off = along(c.G, at, l, c.z, tree) - c.limit_target[l] + wp.cw_mul(c.limit_soft[l], old)
                    new = wp.min(wp.max(old - wp.cw_mul(c.limit_inverse[l], off), c.least[l]), c.most[l])
                    c.stopped[l] = new
                    push_one(c.G, at, l, c.z, tree, new - old)
                for i in range(pushes):
                    n = pushing[i]
                    l = near.link[n]
                    at = 3 * n * columns
                    f = 4 * near.candidate[n]
                    soft = c.soft[n]
                    w0 = along(c.G, at, l, c.z, tree) - c.target[3 * n]
                    w1 = mu * along(c.G, at + columns, l, c.z, tree) - c.target[3 * n + 1]
                    w2 = mu * along(c.G, at + 2 * columns, l, c.z, tree) - c.target[3 * n + 2]
                    block = 12 * n
                    f0 = relaxed(c.pressed[f], w0 + w1, c.inverse[4 * n], soft)
                    d0 = f0 - c.pressed[f]
                    w0 = w0 + wp.cw_mul(c.columns[block], d0)
                    w1 = w1 + wp.cw_mul(c.columns[block + 1], d0)
                    w2 = w2 + wp.cw_mul(c.columns[block + 2], d0)
                    f1 = relaxed(c.pressed[f + 1], w0 - w1, c.inverse[4 * n + 1], soft)
                    d1 = f1 - c.pressed[f + 1]
                    w0 = w0 + wp.cw_mul(c.columns[block + 3], d1)
                    w2 = w2 + wp.cw_mul(c.columns[block + 5], d1)
                    f2 = relaxed(c.pressed[f + 2], w0 + w2, c.inverse[4 * n + 2], soft)
                    d2 = f2 - c.pressed[f + 2]
                    w0 = w0 + wp.cw_mul(c.columns[block + 6], d2)
                    w2 = w2 + wp.cw_mul(c.columns[block + 8], d2)
                    f3 = relaxed(c.pressed[f + 3], w0 - w2, c.inverse[4 * n + 3], soft)
                    d3 = f3 - c.pressed[f + 3]
                    c.pressed[f] = f0
                    c.pressed[f + 1] = f1
                    c.pressed[f + 2] = f2
                    c.pressed[f + 3] = f3
                    push(c.G, at, l, c.z, tree, d0 + d1 + d2 + d3, mu * (d0 - d1), mu * (d2 - d3))

            for k in range(all_dofs):
                c.once[k] = c.once[k] + c.z[k]
                c.twice[k] = c.twice[k] + c.once[k]
            for i in range(law.limited.shape[0]):
                l = law.limited[i]
                c.rate[l] = c.rate[l] + dt * along(c.G, limits_at + l * columns, l, c.z, tree)
                c.here[l] = c.here[l] + dt * c.rate[l]
            for n in range(touching):
                l = near.link[n]
                for i in range(3):
                    at = (3 * n + i) * columns
                    c.velocity[3 * n + i] = c.velocity[3 * n + i] + dt * along(c.G, at, l, c.z, tree)
                near.depth[n] = near.depth[n] - dt * c.velocity[3 * n]

        unwhitened(H, c.once, c.scale, tree)
        unwhitened(H, c.twice, c.scale, tree)
        span = dt * float(count)
        for k in range(all_dofs):
            went = span * u[k] + (dt * dt) * c.twice[k]
            displacement[k] = displacement[k] + went
            u[k] = u[k] + dt * c.once[k]
            if k > 5:
                angle[k - 5] = angle[k - 5] + went

    return substeps
