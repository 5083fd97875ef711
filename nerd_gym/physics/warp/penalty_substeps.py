"""Substeps at a frozen pose with contacts and joint limits as springs and dampers."""

import warp as wp

from .contact import penalty_force
from .factor import factor_functions
from .joints import limit_torque
from .near_contacts import near_functions
from .simd import any_positive, cross, dot, simd_types
from .tree import PhysicsParams, Tree, TreeShape


def penalty_substeps(shape: TreeShape, width: int) -> wp.Function:
    """A function that takes the substeps of one pose; see the arguments of the function in it."""
    links, nv, deepest = len(shape.parents), shape.nv, max(1, shape.deepest)
    Number, Vector, _, _ = simd_types(width)
    Numbers = wp.array(dtype=Number)
    near_of, solve = near_functions(shape, width), factor_functions(shape, width).solve
    NearContacts, velocity_of = near_of.contacts, near_of.velocity

    @wp.func
    def substeps(
        count: int,  # substeps
        touching: int,  # slots with a contact that is near
        H: Numbers,  # factored
        free: Numbers,  # [nv], forces but for contacts, limits, damping and springs
        u: Numbers,  # [nv], velocity, in and out
        displacement: Numbers,  # [nv], what the substeps add
        angle: Numbers,  # [L], of joints, in and out
        x: Numbers,  # [nv], room for a solution
        near: NearContacts,
        normal: Vector,
        base_v: Vector,  # of the axes that u is in
        tree: Tree,
        physics: PhysicsParams,
    ):
        dt = physics.dt
        all_links = int(links)
        all_dofs = int(nv)
        for sub in range(count):
            for l in range(1, all_links):
                rate = u[l + 5]
                pull = free[l + 5] - tree.damping[l] * rate - tree.stiffness[l] * angle[l]
                x[l + 5] = pull + limit_torque(angle[l], rate, tree.lower[l], tree.upper[l], physics)
            moment = wp.matrix_from_rows(free[0], free[1], free[2])
            thrust = wp.matrix_from_rows(free[3], free[4], free[5])
            omega = wp.matrix_from_rows(u[0], u[1], u[2])
            origin_v = base_v + wp.matrix_from_rows(u[3], u[4], u[5])
            for n in range(touching):
                velocity = velocity_of(near, n, omega, origin_v, u, tree)
                deep = near.depth[n]
                if sub > 0:
                    deep = deep - dt * dot(velocity, normal)
                    near.depth[n] = deep
                if any_positive(deep):
                    push = penalty_force(deep, velocity, normal, physics)
                    thrust = thrust + push
                    moment = moment + cross(near.position[n], push)
                    l = near.link[n]
                    for s in range(tree.depth[l]):
                        k = tree.path[l, s] + 5
                        x[k] = x[k] + dot(near.lever[n * deepest + s], push)
            for i in range(3):
                x[i] = moment[i]
                x[i + 3] = thrust[i]
            solve(H, x, tree)
            for k in range(all_dofs):
                u[k] = u[k] + dt * x[k]
                displacement[k] = displacement[k] + dt * u[k]
            for l in range(1, all_links):
                angle[l] = angle[l] + dt * u[l + 5]

    return substeps
