"""`hybrid`: MuJoCo's smooth motion, with collisions that were learned (collision/)."""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import torch
from torch import Tensor

from nerd_gym.collision.models.contact_forces import ContactForces
from nerd_gym.collision.models.contact_model import (
    NATIVE,
    NONE,
    ContactModel,
    has_packaged_contacts,
    load_contacts,
    packaged_contacts,
)
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import file_hash

from . import DEFAULT
from .mujoco import MujocoBackend

BEYOND = 0.5  # of the depths and speeds of the data, where trust ends


class HybridBackend(MujocoBackend):
    """MuJoCo without contacts and joint limits, whose forces a learned law gives in every substep.

    A row that touches nothing, and none of whose joints is beyond a limit, moves as in ``mujoco`` to the bit.
    ``info["out_of_range"]`` marks rows with a contact deeper or faster than those that the law was learned from, and
    ``info["model_trust"]`` falls from 1 there to 0 half as far out again.
    """

    name = "hybrid"
    learned = True
    options = {
        "model": "path of a model of contacts (default: the packaged one of this robot and teacher)",
        "teacher": "backend that the packaged model was learned from (default: warp)",
        "substeps": "physics steps in a frame (default: the robot's)",
        "threads": "CPU threads (default: all)",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        model: str | Path | ContactModel | None = None,
        teacher: str = DEFAULT,
        substeps: int | None = None,
        threads: int | None = None,
    ):
        facts: dict[str, Any] = {}
        if isinstance(model, ContactModel):
            self.contacts_model = model
        else:
            path = Path(packaged_contacts(robot, teacher) if model is None else model)
            self.contacts_model = load_contacts(path, robot)
            facts = {"hash": file_hash(path)}
        super().__init__(robot, num_envs, device, substeps=substeps, threads=threads)
        self.facts |= self.contacts_model.facts | facts
        self.contact_forces: ContactForces | None = None
        if self.contacts_model.acts:
            self.contact_forces = ContactForces(robot, self.contacts_model, num_envs, self.substeps, threads)
            self._ground_written(torch.ones(num_envs, dtype=torch.bool))
        self._reached = torch.zeros(num_envs, device=self.device)

    def _prepare(self, model: Any) -> None:
        if self.contacts_model.law != NONE:
            model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        if self.contacts_model.limits != NATIVE:
            model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT

    def _advance(self, joint_force: Tensor) -> None:
        forces = self.contact_forces
        if forces is None:
            super()._advance(joint_force)
            return
        self._take_force(joint_force)
        given = self._force.clone()
        forces.joint_force.copy_(joint_force)
        forces.reached.zero_()
        for _ in range(self.substeps):
            forces.q.copy_(self._qpos)
            forces.qd.copy_(self._qvel)
            forces()
            torch.add(given, forces.force, out=self._force)
            self._batch.step(nstep=1)
        self._force.copy_(given)
        self._reached = forces.reached.to(self.device, copy=True)
        self._give_state()

    def info(self) -> dict[str, Tensor]:
        trust = ((1 + BEYOND - self._reached) / BEYOND).clamp(0.0, 1.0)
        return {"out_of_range": self._reached > 1, "model_trust": trust}

    @classmethod
    def simulates(cls, robot: RobotModel) -> bool:
        return has_packaged_contacts(robot, DEFAULT)

    def _rows_written(self, mask: Tensor) -> None:
        super()._rows_written(mask)
        if self.contact_forces is not None:
            self.contact_forces.forget(mask.cpu())

    def _ground_written(self, mask: Tensor) -> None:
        super()._ground_written(mask)
        if self.contact_forces is not None:
            self.contact_forces.point.copy_(self.ground_point)
            self.contact_forces.normal.copy_(self.ground_normal)

    def _extra_state(self) -> dict[str, Any]:
        own = {} if self.contact_forces is None else self.contact_forces.snapshot()
        return super()._extra_state() | {"contacts": own}

    def _restore_extra(self, state: dict[str, Any]) -> None:
        super()._restore_extra(state)
        if self.contact_forces is not None:
            self.contact_forces.restore(state["contacts"])

    def close(self) -> None:
        super().close()
        if self.contact_forces is not None:
            self.contact_forces.close()
