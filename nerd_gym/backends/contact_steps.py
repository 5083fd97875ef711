"""Contacts of articulated robots by a learned law, in a batch of MuJoCo simulations without contacts of their own.

In every substep the law gives generalised forces at the present state, and MuJoCo moves the robots under them. A row
that touches nothing, and none of whose joints is beyond a limit, is given none: it moves as in `mujoco` to the bit.
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch
from torch import Tensor

from nerd_gym.collision.models.contact_forces import ContactForces
from nerd_gym.collision.models.contact_model import NATIVE, NONE, ContactModel, load_contacts, packaged_contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import file_hash

from .collisions import Collisions

BEYOND = 0.5  # of the depths and speeds of the data, where trust ends


class ContactSteps(Collisions):
    """Of a robot under a law; ``forces`` is None where the law adds nothing."""

    def __init__(
        self, robot: RobotModel, model: ContactModel, num_envs: int, substeps: int, threads: int | None, facts: Any = ()
    ):
        self.model, self.facts = model, model.facts | dict(facts)
        self._substeps, self._joints, self._count = substeps, robot.joint_qd, num_envs
        self.forces = ContactForces(robot, model, num_envs, substeps, threads) if model.acts else None
        self._reached = torch.zeros(num_envs)

    @classmethod
    def open(
        cls,
        robot: RobotModel,
        num_envs: int,
        substeps: int,
        model: str | Path | ContactModel | None,
        teacher: str,
        threads: int | None,
    ) -> ContactSteps:
        """Of a model, a file of one, or the packaged one that was learned from this teacher."""
        if isinstance(model, ContactModel):
            return cls(robot, model, num_envs, substeps, threads)
        path = Path(packaged_contacts(robot, teacher) if model is None else model)
        return cls(robot, load_contacts(path, robot), num_envs, substeps, threads, {"hash": file_hash(path)})

    def prepare(self, model: Any) -> None:
        if self.model.law != NONE:
            model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        if self.model.limits != NATIVE:
            model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT

    def bind(self, batch: Batch) -> None:
        self._batch = batch
        self._qpos, self._qvel, self._force = (
            torch.from_numpy(batch.bind(name)) for name in ("qpos", "qvel", "qfrc_applied")
        )

    def advance(self, rows: np.ndarray, frames: int) -> None:
        forces = self.forces
        if forces is None:
            self._batch.step(rows, nstep=frames * self._substeps)
            return
        some = len(rows) < self._count
        kept, reached = forces.snapshot() if some else {}, self._reached
        given = self._force.clone()
        forces.joint_force.copy_(given[:, self._joints])
        forces.reached.zero_()
        for _ in range(frames * self._substeps):
            forces.q.copy_(self._qpos)
            forces.qd.copy_(self._qvel)
            forces()
            torch.add(given, forces.force, out=self._force)
            self._batch.step(rows, nstep=1)
        self._force.copy_(given)
        self._reached = forces.reached.clone()
        if some:
            others = np.setdiff1d(np.arange(self._count), rows)
            forces.restore(kept, others)
            self._reached[others] = reached[others]

    def info(self) -> dict[str, Tensor]:
        trust = ((1 + BEYOND - self._reached) / BEYOND).clamp(0.0, 1.0)
        return {"out_of_range": self._reached > 1, "model_trust": trust}

    def forget(self, mask: Tensor) -> None:
        if self.forces is not None:
            self.forces.forget(mask)

    def place_ground(self, point: Tensor, normal: Tensor) -> None:
        if self.forces is not None:
            self.forces.point.copy_(point)
            self.forces.normal.copy_(normal)

    def snapshot(self) -> dict[str, Any]:
        return {"reached": self._reached.clone()} | ({} if self.forces is None else self.forces.snapshot())

    def restore(self, state: dict[str, Any]) -> None:
        self._reached = state["reached"].clone()
        if self.forces is not None:
            self.forces.restore({name: value for name, value in state.items() if name != "reached"})

    def close(self) -> None:
        if self.forces is not None:
            self.forces.close()
