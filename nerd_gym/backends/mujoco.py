"""`mujoco`: MuJoCo's C engine over a threaded batch, float64 inside, the same bits as ``mj_step``."""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy
import os
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch
from torch import Tensor

from nerd_gym.robots.features import FEATURES
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.threads import at_least_one, cpu_threads, keep_after_fork

from .base import Backend


class MujocoBackend(Backend):
    """MuJoCo with the MJCF's own contact, limit and solver settings.

    It computes on the CPU whatever the device; tensors on another device are copied once each way a frame.
    """

    name = "mujoco"
    on_device = False
    features = frozenset(FEATURES)
    options = {
        "substeps": "physics steps in a frame (default: the robot's)",
        "threads": "CPU threads (default: all)",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        substeps: int | None = None,
        threads: int | None = None,
    ):
        super().__init__(robot, num_envs, device)
        self.substeps = at_least_one("substeps", substeps, robot.substeps)
        model = copy.copy(robot.mj_model)
        if substeps is not None:
            model.opt.timestep = robot.frame_dt / self.substeps
        # Forces come in as joint_force alone, and a row that comes apart is ours to report, not MuJoCo's to reset.
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION | mujoco.mjtDisableBit.mjDSBL_AUTORESET
        if robot.ground is not None:
            # Compiled at its body's frame, the plane would ignore the per-environment pose.
            model.geom_sameframe[robot.ground] = 0
        self._prepare(model)
        self._model, self._threads = model, min(cpu_threads(threads), num_envs)
        self._start()

    def _prepare(self, model: Any) -> None:
        """What a subclass changes of the model, an MjModel of this batch's own."""

    def _start(self) -> None:
        """Make the batch with its threads, in this process."""
        self._process = os.getpid()
        self._batch = Batch(self._model, self.num_envs, nthread=self._threads)
        keep_after_fork(self._batch)
        self._qpos, self._qvel, self._force, self._warmstart = (
            torch.from_numpy(self._batch.bind(name)) for name in ("qpos", "qvel", "qfrc_applied", "qacc_warmstart")
        )
        self._joint_force = self._force[:, self.robot.joint_qd]

    def _advance(self, joint_force: Tensor) -> None:
        self._take_force(joint_force)
        self._batch.step(nstep=self.substeps)
        self._give_state()

    def _advance_rows(self, joint_force: Tensor, rows: Tensor, frames: int) -> None:
        self._take_force(joint_force)
        self._step_rows(rows.cpu().numpy().nonzero()[0].astype(np.int32), frames)
        self._give_state()

    def _step_rows(self, ids: np.ndarray, frames: int) -> None:
        """MuJoCo's own steps of the rows with these numbers."""
        self._batch.step(ids, nstep=frames * self.substeps)

    def _take_force(self, joint_force: Tensor) -> None:
        if self._process != os.getpid():  # a fork, into which threads do not come along
            rows = self._batch.state.copy()
            self._start()
            self._batch.state[:] = rows
            self._ground_written(torch.ones(self.num_envs, dtype=torch.bool))
        self._joint_force.copy_(joint_force)

    def _give_state(self) -> None:
        self.q.copy_(self._qpos)
        self.qd.copy_(self._qvel)

    def _rows_written(self, mask: Tensor) -> None:
        row = mask[:, None].cpu()
        for mine, theirs in ((self.q, self._qpos), (self.qd, self._qvel), (None, self._warmstart)):
            new = torch.zeros_like(theirs) if mine is None else mine.cpu().double()
            theirs.copy_(torch.where(row, new, theirs))

    def _ground_written(self, mask: Tensor) -> None:
        ground = self.robot.ground
        if ground is None:
            return
        n = self.ground_normal.cpu().double()
        # The shortest turn from z to the normal; upside down it is half a turn about x.
        quat = torch.stack([1 + n[:, 2], -n[:, 1], n[:, 0], torch.zeros_like(n[:, 0])], -1)
        flipped = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=quat.dtype)
        quat = torch.where((n[:, 2:] < -1 + 1e-9), flipped, quat)
        quat = quat / quat.norm(dim=-1, keepdim=True)
        row = mask[:, None].cpu()
        for name, new in (("geom_pos", self.ground_point.cpu().double()), ("geom_quat", quat)):
            theirs = torch.from_numpy(self._batch.expand(name))[:, ground]
            theirs.copy_(torch.where(row, new, theirs))

    def exact_state(self) -> dict[str, np.ndarray]:
        """qpos [N, nq] and qvel [N, nv] in MuJoCo's own precision, of which ``q`` and ``qd`` are rounded."""
        return {"qpos": self._qpos.numpy().copy(), "qvel": self._qvel.numpy().copy()}

    def _extra_state(self) -> dict[str, Any]:
        return {"rows": self._batch.state.copy()}

    def _restore_extra(self, state: dict[str, Any]) -> None:
        self._batch.state[:] = state["rows"]
