"""`hybrid`: MuJoCo's smooth motion, and collisions that were learned (CLASH)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerd_gym.collision.models.contact_model import ContactModel, has_packaged_contacts
from nerd_gym.collision.scenes.robot import shape_of_robot
from nerd_gym.robots.model import RobotModel

from . import DEFAULT
from .collisions import Collisions
from .contact_steps import ContactSteps
from .impacts import SLIDE_STEP, Impacts
from .mujoco import MujocoBackend


class HybridBackend(MujocoBackend):
    """MuJoCo, in which a learned model decides what happens when something touches.

    The scenes of ``NeRD/Strike-v0`` have a :class:`~nerd_gym.collision.CollisionModel`, which gives the outcome of a
    collision (impacts.py). Articulated robots have a law of contact, which gives forces in every substep
    (contact_steps.py).

    ``info["out_of_range"]`` [N] bool tells which rows had, in their last collision or in the last frame, one outside
    what the model was trained on. Of a block with ``fallback`` MuJoCo decides these; without, the model's extrapolation
    stands. Of articulated robots ``info["model_trust"]`` falls from 1 where the data end to 0 half as far out again.
    """

    name = "hybrid"
    learned = True
    options = {
        "model": "path of a model of collisions or contacts (default: the packaged one of this robot and teacher)",
        "teacher": f"articulated robots: backend that the packaged model was learned from (default: {DEFAULT})",
        "substeps": "physics steps in a frame; of a block, where MuJoCo decides a collision (default: the robot's)",
        "slide_step": f"a block: seconds in its physics steps, a part of a frame (default: {SLIDE_STEP})",
        "fallback": "a block: False: the model also decides collisions out of its range (default: MuJoCo does)",
        "threads": "CPU threads (default: all)",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        model: str | Path | ContactModel | None = None,
        teacher: str | None = None,
        slide_step: float | None = None,
        fallback: bool | None = None,
        substeps: int | None = None,
        threads: int | None = None,
    ):
        shape, name = shape_of_robot(robot), robot.name
        foreign = {"slide_step": slide_step, "fallback": fallback} if shape is None else {"teacher": teacher}
        for option, value in foreign.items():
            if value is not None:
                whose = "the scenes of NeRD/Strike-v0" if shape is None else "articulated robots"
                raise ValueError(f"{option} is {value!r}; it is an option of {whose}, and this is {name!r}")

        def make(substeps: int) -> Collisions:
            if shape is None:
                return ContactSteps.open(robot, num_envs, substeps, model, teacher or DEFAULT, threads)
            assert not isinstance(model, ContactModel)
            return Impacts.open(robot, shape, num_envs, substeps, model, slide_step, fallback)

        self._make_collisions, self._collisions = make, None
        super().__init__(robot, num_envs, device, substeps=substeps, threads=threads)
        self.rows_exact = self.collisions.rows_exact
        self.facts |= self.collisions.facts
        self.collisions.place_ground(self.ground_point, self.ground_normal)

    @property
    def collisions(self) -> Collisions:
        """What decides what happens where something touches."""
        assert self._collisions is not None
        return self._collisions

    @classmethod
    def simulates(cls, robot: RobotModel) -> bool:
        return shape_of_robot(robot) is not None or has_packaged_contacts(robot, DEFAULT)

    def info(self) -> dict[str, Tensor]:
        return {name: value.to(self.device, copy=True) for name, value in self.collisions.info().items()}

    def _prepare(self, model: Any) -> None:
        self._collisions: Collisions | None = self._make_collisions(self.substeps)
        self._collisions.prepare(model)

    def _start(self) -> None:
        super()._start()
        self.collisions.bind(self._batch)  # again, in a fork

    def _advance(self, joint_force: Tensor) -> None:
        self._advance_rows(joint_force, torch.ones_like(self.healthy), 1)

    def _step_rows(self, ids: np.ndarray, frames: int) -> None:
        self.collisions.advance(ids, frames)

    def _rows_written(self, mask: Tensor) -> None:
        super()._rows_written(mask)
        self.collisions.forget(mask.cpu())

    def _ground_written(self, mask: Tensor) -> None:
        super()._ground_written(mask)
        self.collisions.place_ground(self.ground_point, self.ground_normal)

    def _extra_state(self) -> dict[str, Any]:
        return super()._extra_state() | {"collisions": self.collisions.snapshot()}

    def _restore_extra(self, state: dict[str, Any]) -> None:
        super()._restore_extra(state)
        self.collisions.restore(state["collisions"])

    def close(self) -> None:
        super().close()
        self.collisions.close()
