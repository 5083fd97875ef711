"""Model-predictive control of a single rigid body by forces at its feet (Di Carlo et al., IROS 2018).

The state is roll, pitch, yaw, position, angular velocity and velocity in the *heading frame*: z up, x where the robot
faces now. There the yaw is 0, so that for small roll and pitch

    d(angles) = omega,   d(position) = v,   d(omega) = I^-1 sum(r_i x f_i),   d(v) = sum(f_i) / m - g

with r_i from the centre of mass to foot i. The forces are held over each of H steps. The states that they lead to are
put into the cost, so that the QP's 12 H unknowns are the forces alone, in units of the robot's weight:

    minimise    sum_k |state_k - reference_k|^2_weights + effort sum_j |f_j|^2
    subject to  |f_x|, |f_y| <= friction f_z,  0 <= f_z <= limit of a foot that stands, 0 of one in the air.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nerd_gym.utils.optional import require

GRAVITY = 9.81
FEET, UNKNOWNS = 4, 12
CONE = ((1, 0, 1), (-1, 0, 1), (0, 1, 1), (0, -1, 1), (0, 0, 1))  # of a foot; the third column times friction


@dataclass(frozen=True)
class MpcConfig:
    """Horizon, weights and limits."""

    steps: int = 10
    dt: float = 1 / 30  # s
    # Of roll, pitch, yaw, x, y, z (x and y are not observed), and of their rates.
    pose_weights: tuple[float, ...] = (50.0, 50.0, 20.0, 0.0, 0.0, 100.0)
    rate_weights: tuple[float, ...] = (0.3, 0.3, 1.0, 5.0, 5.0, 1.0)
    effort: float = 0.01
    friction: float = 0.45  # below the ground's 0.625
    limit: float = 1.2
    tolerance: float = 1e-4
    iterations: int = 500  # at most; a trot takes 25 to 200


class Problem(NamedTuple):
    """What the QP of one robot depends on, in the heading frame."""

    state: np.ndarray  # [12]: roll, pitch, 0, 0, 0, height, angular velocity, velocity
    reference: np.ndarray  # [H, 12] of the state after each step
    arms: np.ndarray  # [H, 4, 3] from the centre of mass to the feet during each step
    stance: np.ndarray  # [H, 4] bool: which feet stand


class SrbMpc:
    """One QP per robot, solved by OSQP from the robot's last solution on.

    Args:
        mass: in kg.
        inertia: [3, 3] about the centre of mass, in kg m^2.
        config: horizon, weights and limits.
    """

    def __init__(self, mass: float, inertia: np.ndarray, config: MpcConfig | None = None):
        self._osqp = require("osqp", "mpc")
        from scipy import sparse  # comes with osqp

        self.config = config = config or MpcConfig()
        self.weight = mass * GRAVITY
        self._turning = self.weight * np.linalg.inv(inertia)
        steps, dt = np.arange(config.steps), config.dt
        self._ends = (steps[:, None] + 1) * dt
        # [k, j]: what an acceleration of 1 during step j adds to pose and rate after step k.
        ago = steps[:, None] - steps
        pose = np.where(ago >= 0, (ago + 0.5) * dt**2, 0.0)
        rate = np.where(ago >= 0, dt, 0.0)
        self._responses = [(pose, np.array(config.pose_weights)), (rate, np.array(config.rate_weights))]
        spread = np.ones((UNKNOWNS, UNKNOWNS))
        self._grams = [np.kron(response.T @ response, spread) for response, _ in self._responses]
        size = config.steps * UNKNOWNS
        self._effort = config.effort * np.eye(size)
        cone = np.array(CONE) * (1, 1, config.friction)
        cone[-1, 2] = 1
        self.cone = sparse.csc_matrix(np.kron(np.eye(config.steps * FEET), cone))
        columns, rows = np.tril_indices(size)  # of the upper triangle, column by column
        self._triangle = rows, columns
        self._pattern = sparse.csc_matrix((np.ones(len(rows)), (rows, columns)), (size, size))
        self._solvers: dict[int, Any] = {}

    def without_forces(self, state: np.ndarray) -> np.ndarray:
        """[H, 12]: the state after each step in free fall."""
        t, gravity = self._ends, np.array([0, 0, 0, 0, 0, -GRAVITY])
        pose, rate = state[:6], state[6:]
        return np.concatenate([pose + t * rate + t**2 / 2 * gravity, rate + t * gravity], 1)

    def accelerations(self, arms: np.ndarray) -> np.ndarray:
        """[H, 6, 12]: angular and linear acceleration per force of one weight on each foot."""
        h = len(arms)
        (x, y, z), zero = np.moveaxis(arms, -1, 0), np.zeros((h, FEET))
        cross = np.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]])  # [3, 3, H, 4]
        angular = np.tensordot(self._turning, cross, 1).transpose(2, 0, 3, 1)
        linear = np.broadcast_to(GRAVITY * np.eye(3)[:, None], (h, 3, FEET, 3))
        return np.concatenate([angular, linear], 1).reshape(h, 6, UNKNOWNS)

    def cost(self, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """P [12 H, 12 H] and q [12 H] of u'Pu / 2 + q'u, half the cost that depends on the forces u in weights."""
        accelerations = self.accelerations(problem.arms)
        columns = accelerations.transpose(1, 0, 2).reshape(6, -1)
        error = self.without_forces(problem.state) - problem.reference
        p, q = self._effort, np.zeros((len(error), UNKNOWNS))
        for (response, weights), gram, part in zip(self._responses, self._grams, (error[:, :6], error[:, 6:])):
            p = p + gram * (columns.T @ (weights[:, None] * columns))
            q += ((response.T @ (part * weights))[:, None] @ accelerations)[:, 0]
        return p, q.ravel()

    def upper(self, stance: np.ndarray) -> np.ndarray:
        """The upper limits of the cone's rows; the lower ones are 0."""
        limits = np.full((stance.size, len(CONE)), np.inf)
        limits[:, -1] = np.where(stance.ravel(), self.config.limit, 0.0)
        return limits.ravel()

    def solve(self, problem: Problem, robot: int = 0) -> np.ndarray:
        """[H, 4, 3]: the forces of the ground on the feet of this robot, in newtons."""
        p, q = self.cost(problem)
        upper, entries = self.upper(problem.stance), p[self._triangle]
        solver = self._solvers.get(robot)
        if solver is None:
            solver = self._solvers[robot] = self._osqp.OSQP()
            pattern = self._pattern.copy()
            pattern.data[:] = entries
            c = self.config
            ends = {"eps_abs": c.tolerance, "eps_rel": c.tolerance, "max_iter": c.iterations}
            solver.setup(pattern, q, self.cone, np.zeros_like(upper), upper, verbose=False, **ends)
        else:
            solver.update(Px=entries, q=q, u=upper)
        force = solver.solve(raise_error=False).x.reshape(-1, FEET, 3)
        return self.weight * np.where(problem.stance[..., None], force, 0.0)

    def forget(self, robots: Iterable[int] | None = None) -> None:
        """Start anew, for every robot or some."""
        for robot in list(self._solvers) if robots is None else robots:
            self._solvers.pop(robot, None)
