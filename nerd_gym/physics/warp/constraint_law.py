"""MuJoCo's constraints at a frozen pose: four pyramid edges per contact and joint limits, by Gauss-Seidel sweeps.

Each row of a constraint asks for an acceleration J a + R f = aref with f >= 0, where

    aref = -b (J u) - k d r,    b = 2 / (d t),    k = 1 / (d t z)^2,    R = (1 - d) / d * weight

with time constant t, damping ratio z, impedance d, distance r and the inverse weight of the body at the robot's zero
pose. An edge is the normal plus or minus mu times a tangent, and has 2 mu^2 (1 + mu^2) times that R.

With H = L^T D L and z = D^1/2 L a, J a is G z and a force f adds G^T f to z, for G = J L^-1 D^-1/2. G has entries only
where J has (the base and the way from it to the link), so that a sweep reads half of what J and H^-1 J^T would have.
Nothing but z, the rows' velocities and their distances changes inside a frozen pose.

Numbers are kept in arrays: a function takes these without a copy, which Warp makes of a matrix where one is indexed.
"""

import warp as wp

from .constraint_rows import row_columns, row_functions
from .dof_paths import DofPaths, Shape
from .simd import any_positive, cross, dot, simd_types
from .tree import Tree

SOFTER = wp.constant(2.0)  # 1 - d at the surface over that of deep contacts, in MuJoCo's default solimp
WIDTH = wp.constant(1.0e-3)  # depth, m or rad, over which it changes
SWEEPS = 5  # of Gauss-Seidel in a substep, each from the forces of the last
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


def constraint_substeps(shape: Shape, width: int) -> wp.Function:
    """A function that takes the substeps of one pose; see the arguments of the function in it."""
    links, points, deepest = len(shape.parents), max(1, shape.contacts), max(1, shape.deepest)
    nv, columns = links + 5, row_columns(shape)
    whiten, along, push, push_one, unwhiten = row_functions(shape, width)
    Number, Vector, _, _ = simd_types(width)
    per_link = wp.types.matrix((links, width), wp.float32)
    Numbers = wp.array(dtype=Number)
    limits_at = 3 * points * columns  # rows of contacts come first

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
        H: Numbers,  # factored: L below the diagonal, 1 / D on it
        motion: Numbers,  # forces but for contacts and limits; velocity, in and out; displacement, out
        angle: per_link,
        depth: Numbers,  # of slots
        link_of: wp.array(dtype=wp.int32),
        candidate_of: wp.array(dtype=wp.int32),
        position_of: Numbers,
        tangent_of: Numbers,
        reach: Numbers,
        pressed: Numbers,  # forces by candidate, kept from pose to pose
        stopped: Numbers,  # signed forces of limits
        G: Numbers,  # from here on nothing is told: kept by the kernel, because zeros take time
        columns_of: Numbers,  # what an edge's force does to its contact
        own_of: Numbers,  # what it does along the edge itself
        inverse: Numbers,  # of that and R; 0 where nothing touches
        soft_of: Numbers,  # R
        velocity: Numbers,  # of the rows of contacts
        target: Numbers,  # aref
        normal: Vector,
        base_v: Vector,
        tree: Tree,
        paths: DofPaths,
        law: ConstraintParams,
    ):
        scale = wp.zeros(shape=(nv,), dtype=Number)
        z_free = wp.zeros(shape=(nv,), dtype=Number)
        z = wp.zeros(shape=(nv,), dtype=Number)
        once = wp.zeros(shape=(nv,), dtype=Number)
        twice = wp.zeros(shape=(nv,), dtype=Number)
        here = wp.zeros(shape=(links,), dtype=Number)
        rate = wp.zeros(shape=(links,), dtype=Number)
        limit_own = wp.zeros(shape=(links,), dtype=Number)
        limit_inverse = wp.zeros(shape=(links,), dtype=Number)
        limit_soft = wp.zeros(shape=(links,), dtype=Number)
        limit_target = wp.zeros(shape=(links,), dtype=Number)
        least = wp.zeros(shape=(links,), dtype=Number)
        most = wp.zeros(shape=(links,), dtype=Number)
        pushing = wp.zeros(shape=(points,), dtype=wp.int32)
        stopping = wp.zeros(shape=(links,), dtype=wp.int32)
        none = Number(0.0)
        one = Number(1.0)
        lanes = int(width)
        all_links = int(links)
        all_dofs = int(nv)
        mu = law.mu
        edge_r = 2.0 * mu * mu * (1.0 + mu * mu)

        for k in range(all_dofs):
            root = H[k * nv + k]
            for r in range(lanes):
                root[r] = wp.sqrt(root[r])
            scale[k] = root
            z_free[k] = motion[k]
        for back in range(1, all_links):
            l = links - back
            row = (l + 5) * nv
            value = z_free[l + 5]
            for s in range(paths.depth[l] - 1):
                i = paths.dof[l, s]
                z_free[i] = z_free[i] - wp.cw_mul(H[row + i], value)
            for i in range(6):
                z_free[i] = z_free[i] - wp.cw_mul(H[row + i], value)
        for back in range(5):
            for i in range(5 - back):
                z_free[i] = z_free[i] - wp.cw_mul(H[(5 - back) * nv + i], z_free[5 - back])
        for k in range(all_dofs):
            z_free[k] = wp.cw_mul(z_free[k], scale[k])

        # Rows of contacts: normal, first and second tangent.
        for n in range(touching):
            l = link_of[n]
            point = wp.matrix_from_rows(position_of[3 * n], position_of[3 * n + 1], position_of[3 * n + 2])
            first = wp.matrix_from_rows(tangent_of[3 * n], tangent_of[3 * n + 1], tangent_of[3 * n + 2])
            direction = Vector(normal)
            at = 3 * n * columns
            for i in range(3):
                if i == 1:
                    direction = Vector(first)
                if i == 2:
                    direction = cross(normal, first)
                lever = cross(point, direction)
                speed = dot(direction, base_v)
                for j in range(3):
                    G[at + j] = lever[j]
                    G[at + 3 + j] = direction[j]
                    speed = speed + wp.cw_mul(lever[j], motion[nv + j]) + wp.cw_mul(direction[j], motion[nv + 3 + j])
                for s in range(paths.depth[l]):
                    slot = 3 * (n * deepest + s)
                    value = dot(wp.matrix_from_rows(reach[slot], reach[slot + 1], reach[slot + 2]), direction)
                    G[at + 6 + s] = value
                    speed = speed + wp.cw_mul(value, motion[nv + paths.dof[l, s]])
                velocity[3 * n + i] = speed
                whiten(G, at, l, H, scale, paths)
                at += columns
            at = 3 * n * columns
            a00 = none
            a01 = none
            a02 = none
            a11 = none
            a12 = none
            a22 = none
            for c in range(paths.depth[l] + 6):
                g0 = G[at + c]
                g1 = mu * G[at + columns + c]
                g2 = mu * G[at + 2 * columns + c]
                a00 = a00 + wp.cw_mul(g0, g0)
                a01 = a01 + wp.cw_mul(g0, g1)
                a02 = a02 + wp.cw_mul(g0, g2)
                a11 = a11 + wp.cw_mul(g1, g1)
                a12 = a12 + wp.cw_mul(g1, g2)
                a22 = a22 + wp.cw_mul(g2, g2)
            own_of[4 * n] = a00 + 2.0 * a01 + a11
            own_of[4 * n + 1] = a00 - 2.0 * a01 + a11
            own_of[4 * n + 2] = a00 + 2.0 * a02 + a22
            own_of[4 * n + 3] = a00 - 2.0 * a02 + a22
            column = 12 * n
            columns_of[column] = a00 + a01
            columns_of[column + 1] = a01 + a11
            columns_of[column + 2] = a02 + a12
            columns_of[column + 3] = a00 - a01
            columns_of[column + 4] = a01 - a11
            columns_of[column + 5] = a02 - a12
            columns_of[column + 6] = a00 + a02
            columns_of[column + 7] = a01 + a12
            columns_of[column + 8] = a02 + a22
            columns_of[column + 9] = a00 - a02
            columns_of[column + 10] = a01 - a12
            columns_of[column + 11] = a02 - a22

        # Rows of limits.
        for i in range(law.limited.shape[0]):
            l = law.limited[i]
            at = limits_at + l * columns
            for c in range(paths.depth[l] + 5):
                G[at + c] = none
            G[at + 5 + paths.depth[l]] = one
            whiten(G, at, l, H, scale, paths)
            own = none
            for c in range(paths.depth[l] + 6):
                own = own + wp.cw_mul(G[at + c], G[at + c])
            limit_own[l] = own
            here[l] = angle[l]
            rate[l] = motion[nv + l + 5]

        for _sub in range(count):
            # What is active, what it asks for, and the forces of the last substep.
            for k in range(all_dofs):
                z[k] = z_free[k]
            stops = wp.int32(0)
            for i in range(law.limited.shape[0]):
                l = law.limited[i]
                past = wp.min(here[l] - Number(tree.lower[l]), none) + wp.max(here[l] - Number(tree.upper[l]), none)
                if any_positive(wp.cw_mul(past, past)):
                    d = impedances(wp.max(past, -past), law.limit_impedance)
                    limit_target[l] = -law.limit_b * rate[l] - law.limit_k * wp.cw_mul(d, past)
                    limit_soft[l] = law.limit_weight[l] * wp.cw_div(one - d, d)
                    limit_inverse[l] = wp.cw_div(one, limit_own[l] + limit_soft[l])
                    low = Number(0.0)
                    high = Number(0.0)
                    r = wp.int32(0)
                    while r < width:
                        low[r] = wp.where(past[r] > 0.0, -LARGEST, 0.0)
                        high[r] = wp.where(past[r] < 0.0, LARGEST, 0.0)
                        r += 1
                    least[l] = low
                    most[l] = high
                    force = wp.min(wp.max(stopped[l], low), high)
                    stopped[l] = force
                    push_one(G, limits_at + l * columns, l, z, paths, force)
                    stopping[stops] = l
                    stops += 1
                else:
                    stopped[l] = none
            pushes = wp.int32(0)
            for n in range(touching):
                deep = depth[n]
                f = 4 * candidate_of[n]
                if any_positive(deep):
                    d = impedances(wp.max(deep, none), law.contact_impedance)
                    soft = (edge_r * law.contact_weight[candidate_of[n]]) * wp.cw_div(one - d, d)
                    soft_of[n] = soft
                    target[3 * n] = law.contact_k * wp.cw_mul(d, deep) - law.contact_b * velocity[3 * n]
                    target[3 * n + 1] = (-law.contact_b * mu) * velocity[3 * n + 1]
                    target[3 * n + 2] = (-law.contact_b * mu) * velocity[3 * n + 2]
                    on = Number(0.0)
                    r = wp.int32(0)
                    while r < width:
                        on[r] = wp.where(deep[r] > 0.0, 1.0, 0.0)
                        r += 1
                    for e in range(4):
                        inverse[4 * n + e] = wp.cw_div(on, own_of[4 * n + e] + soft)
                        pressed[f + e] = wp.cw_mul(pressed[f + e], on)
                    total = pressed[f] + pressed[f + 1] + pressed[f + 2] + pressed[f + 3]
                    aside = mu * (pressed[f] - pressed[f + 1])
                    across = mu * (pressed[f + 2] - pressed[f + 3])
                    push(G, 3 * n * columns, link_of[n], z, paths, total, aside, across)
                    pushing[pushes] = n
                    pushes += 1
                else:
                    for e in range(4):
                        pressed[f + e] = none

            all_sweeps = int(SWEEPS)
            for _sweep in range(all_sweeps):
                for i in range(stops):
                    l = stopping[i]
                    at = limits_at + l * columns
                    old = stopped[l]
                    off = along(G, at, l, z, paths) - limit_target[l] + wp.cw_mul(limit_soft[l], old)
                    new = wp.min(wp.max(old - wp.cw_mul(limit_inverse[l], off), least[l]), most[l])
                    stopped[l] = new
                    push_one(G, at, l, z, paths, new - old)
                for i in range(pushes):
                    n = pushing[i]
                    l = link_of[n]
                    at = 3 * n * columns
                    f = 4 * candidate_of[n]
                    soft = soft_of[n]
                    w0 = along(G, at, l, z, paths) - target[3 * n]
                    w1 = mu * along(G, at + columns, l, z, paths) - target[3 * n + 1]
                    w2 = mu * along(G, at + 2 * columns, l, z, paths) - target[3 * n + 2]
                    c = 12 * n
                    f0 = relaxed(pressed[f], w0 + w1, inverse[4 * n], soft)
                    d0 = f0 - pressed[f]
                    w0 = w0 + wp.cw_mul(columns_of[c], d0)
                    w1 = w1 + wp.cw_mul(columns_of[c + 1], d0)
                    w2 = w2 + wp.cw_mul(columns_of[c + 2], d0)
                    f1 = relaxed(pressed[f + 1], w0 - w1, inverse[4 * n + 1], soft)
                    d1 = f1 - pressed[f + 1]
                    w0 = w0 + wp.cw_mul(columns_of[c + 3], d1)
                    w2 = w2 + wp.cw_mul(columns_of[c + 5], d1)
                    f2 = relaxed(pressed[f + 2], w0 + w2, inverse[4 * n + 2], soft)
                    d2 = f2 - pressed[f + 2]
                    w0 = w0 + wp.cw_mul(columns_of[c + 6], d2)
                    w2 = w2 + wp.cw_mul(columns_of[c + 8], d2)
                    f3 = relaxed(pressed[f + 3], w0 - w2, inverse[4 * n + 3], soft)
                    d3 = f3 - pressed[f + 3]
                    pressed[f] = f0
                    pressed[f + 1] = f1
                    pressed[f + 2] = f2
                    pressed[f + 3] = f3
                    push(G, at, l, z, paths, d0 + d1 + d2 + d3, mu * (d0 - d1), mu * (d2 - d3))

            for k in range(all_dofs):
                once[k] = once[k] + z[k]
                twice[k] = twice[k] + once[k]
            for i in range(law.limited.shape[0]):
                l = law.limited[i]
                rate[l] = rate[l] + dt * along(G, limits_at + l * columns, l, z, paths)
                here[l] = here[l] + dt * rate[l]
            for n in range(touching):
                l = link_of[n]
                for i in range(3):
                    at = (3 * n + i) * columns
                    velocity[3 * n + i] = velocity[3 * n + i] + dt * along(G, at, l, z, paths)
                depth[n] = depth[n] - dt * velocity[3 * n]

        unwhiten(once, H, scale, paths)
        unwhiten(twice, H, scale, paths)
        span = dt * float(count)
        for k in range(all_dofs):
            motion[2 * nv + k] = span * motion[nv + k] + (dt * dt) * twice[k]
            motion[nv + k] = motion[nv + k] + dt * once[k]

    return substeps
