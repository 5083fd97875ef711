"""Collisions in batches of MuJoCo simulations, each with its own friction and damping.

A collision starts with the striker's surface on the block's, so that its result does not depend on where between two
time steps they meet, and the block at rest on the table. It ends when they part, interpolated between two steps, or
after `LONGEST` seconds, when the striker is withdrawn: an overdamped contact under friction would never part.
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch

from nerd_gym.utils.threads import cpu_threads

from .columns import COLUMNS, OUTCOME, WIDE
from .mjcf import scene_model
from .shapes import STRIKER_RADIUS, Shape

LONGEST = 0.02  # s
SETTLE = 4000  # steps until the block rests, once per scene


class CollisionSimulator:
    """Simulates collisions of one shape, at most `size` at a time."""

    def __init__(self, shape: Shape, size: int = 2048, threads: int | None = None):
        self.shape, self.size, self.threads = shape, size, cpu_threads(threads)
        self._model = scene_model(shape)
        # MuJoCo sorts pairs, so the striker's is found by its name.
        self._strike = np.arange(self._model.npair) == self._model.pair("strike").id
        self._rest = rest_difference(self._model)
        self._batch = Batch(self._model, size, nthread=self.threads)

    def __call__(self, pre: np.ndarray, gap: float | np.ndarray = 0.0) -> np.ndarray:
        """[N, 7] COLUMNS or [N, 10] WIDE to [N, 7] OUTCOME: velocity and displacement of the block in the impact frame
        when the collision ends, and how long it took. `gap` (m) is the distance of the surfaces at the start."""
        pre = np.asarray(pre, np.float64)
        if pre.ndim != 2 or pre.shape[1] not in (len(COLUMNS), len(WIDE)):
            raise ValueError(
                f"collisions have shape {pre.shape}; valid: [N, {len(COLUMNS)}] ({', '.join(COLUMNS)}) and "
                f"[N, {len(WIDE)}] (also {', '.join(WIDE[len(COLUMNS) :])})"
            )
        gaps = np.broadcast_to(gap, len(pre))
        rows = [slice(start, start + self.size) for start in range(0, len(pre), self.size)]
        return np.concatenate([self._part(pre[r], gaps[r]) for r in rows])

    def _part(self, pre: np.ndarray, gap: np.ndarray) -> np.ndarray:
        batch, count, timestep = self._batch, len(pre), self._model.opt.timestep
        self._write_parameters(pre)
        normal, start = self._write_state(pre, gap)
        tangent = np.stack([-normal[:, 1], normal[:, 0]], -1)
        qpos, qvel = batch.bind("qpos"), batch.bind("qvel")

        def read(ids: np.ndarray) -> np.ndarray:
            """Gap, then velocity and displacement."""
            q, v, yaw = qpos[ids], qvel[ids], yaw_of(qpos[ids, 3:7])
            distance = self.shape.striker_gap(*(torch.from_numpy(x) for x in (q[:, :2], yaw, q[:, 7:9]))).numpy()
            vn, vt = ((v[:, :2] * axis[ids]).sum(-1) for axis in (normal, tangent))
            dn, dt = (((q[:, :2] - start[ids]) * axis[ids]).sum(-1) for axis in (normal, tangent))
            return np.stack([distance, vn, vt, v[:, 5], dn, dt, yaw], -1)

        out = np.zeros((count, len(OUTCOME)))
        active = np.arange(count, dtype=np.int32)
        last, begun = read(active), gap <= 0
        step = np.zeros(count)
        while len(active):
            batch.step(active)
            now, before = read(active), last[active]
            step[active] += 1
            parted = (now[:, 0] > 0) & (before[:, 0] <= 0) & begun[active] & (step[active] > 1)
            late = step[active] * timestep >= LONGEST - 1e-9
            begun[active] |= now[:, 0] <= 0
            share = np.where(parted, -before[:, 0] / np.maximum(now[:, 0] - before[:, 0], 1e-12), 1.0)
            ended = parted | late
            ids = active[ended]
            mixed = before + share[:, None] * (now - before)
            out[ids, :-1] = mixed[ended, 1:]
            out[ids, -1] = (step[ids] - 1 + share[ended]) * timestep
            last[active] = now
            active = active[~ended]
        return out

    def _write_parameters(self, pre: np.ndarray) -> None:
        batch, count = self._batch, len(pre)
        friction, solref = batch.expand("pair_friction")[:count], batch.expand("pair_solref")[:count]
        for pairs, mu, zeta in ((self._strike, 3, 5), (~self._strike, 4, 6)):
            friction[:, pairs, :2] = pre[:, mu, None, None]
            solref[:, pairs, 1] = pre[:, zeta, None]
        wide = pre.shape[1] > len(COLUMNS)
        if not wide and batch.expanded("opt.cone") is None:
            return  # nothing that an earlier call changed
        defaults = (self._model.pair_solref[self._strike, 0][0], 0.0, 0.0)
        time_constant, torsion, elliptic = pre[:, len(COLUMNS) :].T if wide else np.full((count, 3), defaults).T
        solref[:, self._strike, 0] = time_constant[:, None]
        friction[:, :, 2] = torsion[:, None]
        batch.expand("pair_dim")[:count] = np.where(torsion > 0, 4, 3)[:, None]
        batch.expand("opt.cone")[:count] = elliptic > 0.5

    def _write_state(self, pre: np.ndarray, gap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normals [N, 2] and the block's positions [N, 2] at the start."""
        batch, count = self._batch, len(pre)
        batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        point = torch.from_numpy(pre[:, 1].copy())
        normal, place = self.shape.normal(point).numpy(), self.shape.contact_point(point).numpy()
        qpos, qvel = batch.bind("qpos")[:count], batch.bind("qvel")[:count]
        qpos[:, :7] = self._model.qpos0[:7] + self._rest * pre[:, 6:7] ** 2
        centre = place - normal * (STRIKER_RADIUS + gap[:, None])
        qpos[:, 7:9] = centre + qpos[:, :2]
        qvel[:] = 0
        angle = np.arctan2(normal[:, 1], normal[:, 0]) + pre[:, 2]
        qvel[:, 6:8] = pre[:, :1] * np.stack([np.cos(angle), np.sin(angle)], -1)
        return normal, qpos[:, :2].copy()


def yaw_of(quat: np.ndarray) -> np.ndarray:
    """Rotation about z of quaternions [N, 4], w first."""
    w, x, y, z = quat.T
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def rest_difference(model: mujoco.MjModel) -> np.ndarray:
    """[7]: how the pose at rest differs from qpos0 at a damping ratio of 1; it scales with the ratio squared."""
    data = mujoco.MjData(model)
    data.qpos[7] = 1.0  # the striker is far away
    for _ in range(SETTLE):
        mujoco.mj_step(model, data)
    difference = data.qpos[:7] - model.qpos0[:7]
    difference[:2] = 0
    return difference
