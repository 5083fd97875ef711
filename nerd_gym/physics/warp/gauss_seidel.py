"""Projected Gauss-Seidel over the contacts of a robot, and its adjoint: what torch calls for impulses of contacts.

One thread solves one robot. The forward kernel keeps what every contact's impulse was before each of its updates, so
that the adjoint can walk the very same updates backwards.
"""

# Without the future annotations: types of arguments depend on the precision, and Warp looks for their names.

from functools import lru_cache
from typing import Any, NamedTuple

import warp as wp

LEAST = 1e-20  # (N s)^2, so that the size of an impulse has a slope where there is none


class GaussSeidel(NamedTuple):
    """Kernels of one precision."""

    forward: wp.Kernel
    adjoint: wp.Kernel


@lru_cache(maxsize=2)
def gauss_seidel_kernels(number: Any) -> GaussSeidel:
    """For wp.float32 or wp.float64."""
    one, cube = wp.array2d(dtype=number), wp.array3d(dtype=number)
    zero, least, unit = number(0.0), number(LEAST), number(1.0)

    def solve(
        A: cube,  # [B, 3 C, 3 C], the inverse inertia that contacts feel: along, across, across
        v: one,  # [B, 3 C], velocity without impulses
        wanted: one,  # [B, C], velocity along the normal that is asked for
        soft: one,  # [B, C], added to the diagonal along the normal
        along: one,  # [B, C], inverse inertia along the normal
        across: one,  # [B, C], across it
        friction: one,  # [B, C]
        touching: wp.array2d(dtype=wp.bool),
        sweeps: int,
        before: cube,  # [B, sweeps, 3 C]
        x: one,  # [B, 3 C], impulses, 0 at the start
    ):
        row = wp.tid()
        size = v.shape[1]
        for sweep in range(sweeps):
            for c in range(size / 3):
                n = 3 * c
                before[row, sweep, n] = x[row, n]
                before[row, sweep, n + 1] = x[row, n + 1]
                before[row, sweep, n + 2] = x[row, n + 2]
                if touching[row, c]:
                    gap = v[row, n] + soft[row, c] * x[row, n] - wanted[row, c]
                    for j in range(size):
                        gap += A[row, n, j] * x[row, j]
                    x[row, n] = wp.max(x[row, n] - gap / along[row, c], zero)
                    first = v[row, n + 1]
                    second = v[row, n + 2]
                    for j in range(size):
                        first += A[row, n + 1, j] * x[row, j]
                        second += A[row, n + 2, j] * x[row, j]
                    first = x[row, n + 1] - first / across[row, c]
                    second = x[row, n + 2] - second / across[row, c]
                    share = friction[row, c] * x[row, n] / wp.sqrt(first * first + second * second + least)
                    share = wp.min(share, unit)
                    x[row, n + 1] = first * share
                    x[row, n + 2] = second * share

    def adjoint(
        A: cube,
        v: one,
        wanted: one,
        soft: one,
        along: one,
        across: one,
        friction: one,
        touching: wp.array2d(dtype=wp.bool),
        sweeps: int,
        before: cube,
        x: one,  # [B, 3 C], the impulses found; walked back to 0
        g: one,  # [B, 3 C], slope by the impulses; used up
        g_A: cube,
        g_v: one,
        g_wanted: one,
        g_soft: one,
        g_along: one,
        g_across: one,
        g_friction: one,
    ):
        row = wp.tid()
        size = v.shape[1]
        for back in range(sweeps):
            sweep = sweeps - 1 - back
            for other in range(size / 3):
                c = size / 3 - 1 - other
                n = 3 * c
                old_push = before[row, sweep, n]
                old_first = before[row, sweep, n + 1]
                old_second = before[row, sweep, n + 2]
                if not touching[row, c]:
                    continue
                push = x[row, n]
                # Across, as it was computed: with the new push and the old drag.
                x[row, n + 1] = old_first
                x[row, n + 2] = old_second
                slip_1 = v[row, n + 1]
                slip_2 = v[row, n + 2]
                for j in range(size):
                    slip_1 += A[row, n + 1, j] * x[row, j]
                    slip_2 += A[row, n + 2, j] * x[row, j]
                first = old_first - slip_1 / across[row, c]
                second = old_second - slip_2 / across[row, c]
                length = wp.sqrt(first * first + second * second + least)
                share = friction[row, c] * push / length
                g_1 = g[row, n + 1]
                g_2 = g[row, n + 2]
                g_push = g[row, n]
                if share < unit:
                    g_share = g_1 * first + g_2 * second
                    turn = g_share * share / (length * length)
                    g_1 = g_1 * share - turn * first
                    g_2 = g_2 * share - turn * second
                    g_push += g_share * friction[row, c] / length
                    g_friction[row, c] += g_share * push / length
                g_slip_1 = -g_1 / across[row, c]
                g_slip_2 = -g_2 / across[row, c]
                g_across[row, c] += (g_1 * slip_1 + g_2 * slip_2) / (across[row, c] * across[row, c])
                g_v[row, n + 1] += g_slip_1
                g_v[row, n + 2] += g_slip_2
                g[row, n] = g_push
                g[row, n + 1] = g_1
                g[row, n + 2] = g_2
                for j in range(size):
                    g_A[row, n + 1, j] += g_slip_1 * x[row, j]
                    g_A[row, n + 2, j] += g_slip_2 * x[row, j]
                    g[row, j] += A[row, n + 1, j] * g_slip_1 + A[row, n + 2, j] * g_slip_2
                # Along, with the old push.
                x[row, n] = old_push
                g_push = g[row, n]
                g[row, n] = zero
                if push > zero:
                    gap = v[row, n] + soft[row, c] * old_push - wanted[row, c]
                    for j in range(size):
                        gap += A[row, n, j] * x[row, j]
                    g_gap = -g_push / along[row, c]
                    g_along[row, c] += g_push * gap / (along[row, c] * along[row, c])
                    g_soft[row, c] += g_gap * old_push
                    g_wanted[row, c] -= g_gap
                    g_v[row, n] += g_gap
                    for j in range(size):
                        g_A[row, n, j] += g_gap * x[row, j]
                        g[row, j] += A[row, n, j] * g_gap
                    g[row, n] += g_push + soft[row, c] * g_gap

    kernels = []
    for kernel in (solve, adjoint):
        key = f"gauss_seidel_{kernel.__name__}_{number.__name__}"
        module = wp.get_module(f"nerd_gym.{key}")
        module.options["enable_backward"] = False  # the adjoint is written out
        kernels.append(wp.Kernel(kernel, key=key, module=module))
    return GaussSeidel(*kernels)
