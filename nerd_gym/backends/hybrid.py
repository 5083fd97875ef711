"""`hybrid`: MuJoCo's smooth motion, and collisions from a network (CLASH)."""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.collision.models.model import PRETRAINED, CollisionModel
from nerd_gym.collision.scenes.robot import shape_of_robot
from nerd_gym.collision.scenes.shapes import SHAPES
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import file_hash

from .impacts import Impacts
from .mujoco import MujocoBackend

SLIDE_STEP = 0.002  # s


class HybridBackend(MujocoBackend):
    """MuJoCo, in which a :class:`~nerd_gym.collision.CollisionModel` decides the strikes of ``NeRD/Strike-v0``.

    ``info["out_of_range"]`` [N] bool tells of each row's last collision whether it was outside what the model was
    trained on: a strike or a friction beyond its ranges, a block that was moving, or a striker that was put into the
    block. With ``fallback`` MuJoCo decides these collisions; without, the model's extrapolation stands. It takes the
    place of a trust in frames: of the many frames of a strike one has the collision.
    """

    name = "hybrid"
    learned = True
    rows_exact = False  # the products of a network are rounded as its batch size has it
    options = MujocoBackend.options | {
        "substeps": "physics steps in a frame in which MuJoCo decides a collision (default: the robot's)",
        "model": "path of a collision model (default: the packaged one of this shape)",
        "slide_step": f"seconds in a physics step without such a collision, a part of a frame (default: {SLIDE_STEP})",
        "fallback": "False: the model also decides collisions outside its trained range (default: MuJoCo does)",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        model: str | Path | None = None,
        slide_step: float = SLIDE_STEP,
        fallback: bool = True,
        substeps: int | None = None,
        threads: int | None = None,
    ):
        shape = shape_of_robot(robot)
        if shape is None:
            known = ", ".join(f"strike_{name}" for name in SHAPES)
            raise ValueError(f"backend 'hybrid' has no packaged model for {robot.name!r} yet; it has those of {known}")
        if not isinstance(fallback, bool):
            raise ValueError(f"fallback is {fallback!r}; valid: True, False")
        steps = _steps_of(slide_step, robot.frame_dt)
        self._impacts: Impacts | None = None
        super().__init__(robot, num_envs, device, substeps=substeps, threads=threads)
        path = PRETRAINED / f"{shape.name}.safetensors" if model is None else Path(model)
        collisions = CollisionModel.load(path, shape.name)
        if self.substeps % steps:
            raise ValueError(
                f"substeps is {self.substeps}; it must be a multiple of the {steps} physics steps that slide_step "
                f"{slide_step:g} makes of a frame"
            )
        self._impacts = Impacts(robot, shape, collisions, num_envs, self.substeps, steps, fallback)
        self._impacts.bind(self._batch)
        self.slide_step = robot.frame_dt / steps
        trained = collisions.facts.get("trained", {}).get("base", {})
        self.facts |= {
            "kind": "collision",
            "robot": robot.name,
            "teacher": "mujoco",
            "hash": file_hash(path),
            "slide_step": self.slide_step,
            "fallback": fallback,
            "error": {key: trained[key] for key in ("within", "median_error") if key in trained},
        }
        if "adapted" in collisions.facts:
            self.facts["adapted"] = collisions.facts["adapted"]

    @classmethod
    def simulates(cls, robot: RobotModel) -> bool:
        return shape_of_robot(robot) is not None

    def info(self) -> dict[str, Tensor]:
        return {"out_of_range": self.impacts.out_of_range.to(self.device, copy=True)}

    @property
    def impacts(self) -> Impacts:
        """What decides the collisions."""
        assert self._impacts is not None
        return self._impacts

    def _start(self) -> None:
        super()._start()
        if self._impacts is not None:  # again, in a fork
            self._impacts.bind(self._batch)

    def _advance(self, joint_force: Tensor) -> None:
        self._advance_rows(joint_force, torch.ones_like(self.healthy), 1)

    def _step_rows(self, ids: Any, frames: int) -> None:
        self.impacts.advance(ids, frames)

    def _rows_written(self, mask: Tensor) -> None:
        super()._rows_written(mask)
        self.impacts.forget(mask)

    def _extra_state(self) -> dict[str, Any]:
        return super()._extra_state() | {"impacts": self.impacts.snapshot()}

    def _restore_extra(self, state: dict[str, Any]) -> None:
        super()._restore_extra(state)
        self.impacts.restore(state["impacts"])


def _steps_of(slide_step: float, frame_dt: float) -> int:
    """Physics steps in a frame, or an error."""
    number = isinstance(slide_step, (int, float)) and not isinstance(slide_step, bool)
    steps = frame_dt / slide_step if number and 0 < slide_step < float("inf") else 0.0
    if round(steps) < 1 or abs(steps - round(steps)) > 1e-6 * steps:
        parts = ", ".join(f"{frame_dt / k:g}" for k in (1, 2, 4, 8, 16))
        raise ValueError(f"slide_step is {slide_step!r}; it must divide a frame of {frame_dt:g} s, for example {parts}")
    return round(steps)
