"""Collisions of a striker and a block by a network, in a batch of MuJoCo simulations (CLASH).

A pair with a margin of -1 m and a gap of more than 1 m is detected and makes no force. So one compiled model runs
either way, row by row: in *learned* rows the contact sensor tells when the surfaces meet, and a network what follows
from it; in *native* rows the pair has its own margin and gap, and MuJoCo decides. Learned rows have no stiff contact to
resolve: they take larger physics steps, and the table's contacts are as soft as these ask for.

A collision takes no time here: the block is put where it would be at the collision's end, with the velocity it would
have, and the striker stays where it touched. Nothing is asked of the network again until the surfaces have parted.
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mujoco.batch import Batch
from torch import Tensor

from nerd_gym.collision.models.model import PRETRAINED, CollisionModel
from nerd_gym.collision.scenes.frames import from_world, outcome_to_world
from nerd_gym.collision.scenes.robot import STRIKE_PAIR, parameters_of, scene_of
from nerd_gym.collision.scenes.shapes import STRIKER_RADIUS, Shape
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import file_hash

from .collisions import Collisions

SLIDE_STEP = 0.002  # s
LEARNED, PARTING, NATIVE = 0, 1, 2  # a row's state; PARTING: learned, and the surfaces have not parted yet
REACH = 0.02  # m, from which on the sensor tells the distance: farther than anything moves in a physics step
PARTED = 1e-6  # m
INSIDE = 1e-4  # m, deeper than a rounded start that touches: somebody put the striker into the block
AT_REST = 0.01  # m/s, and rad/s times 5 cm: a block that moves faster before a collision is outside the trained range
LEVER = 0.05  # m
SOFTEST = 4  # physics steps, the least time constant of the table's contacts: at two 2 % of fast blocks tip over


@dataclass
class Strikes:
    """Strikers that touch blocks, seen from the blocks."""

    columns: Tensor  # [K, 3], or [K, 7] with friction and damping ratios
    normal: Tensor  # [K, 2]
    velocity: Tensor  # [K, 2], of the block before
    omega: Tensor  # [K]


class Impacts(Collisions):
    """Which rows are learned or native, and what happens to them."""

    rows_exact = False  # the products of a network are rounded as its batch size has it

    @classmethod
    def open(
        cls,
        robot: RobotModel,
        shape: Shape,
        num_envs: int,
        substeps: int,
        model: str | Path | None,
        slide_step: float | None,
        fallback: bool | None,
    ) -> Impacts:
        """Of a file of a model, or of the packaged one of the shape."""
        slide_step, fallback = SLIDE_STEP if slide_step is None else slide_step, True if fallback is None else fallback
        if not isinstance(fallback, bool):
            raise ValueError(f"fallback is {fallback!r}; valid: True, False")
        steps = _steps_of(slide_step, robot.frame_dt)
        path = PRETRAINED / f"{shape.name}.safetensors" if model is None else Path(model)
        collisions = CollisionModel.load(path, shape.name)
        if substeps % steps:
            raise ValueError(
                f"substeps is {substeps}; it must be a multiple of the {steps} physics steps that slide_step "
                f"{slide_step:g} makes of a frame"
            )
        trained = collisions.facts.get("trained", {}).get("base", {})
        facts = {
            "kind": "collision",
            "robot": robot.name,
            "teacher": "mujoco",
            "hash": file_hash(path),
            "slide_step": robot.frame_dt / steps,
            "fallback": fallback,
            "error": {key: trained[key] for key in ("within", "median_error") if key in trained},
        }
        facts |= {key: collisions.facts[key] for key in ("adapted",) if key in collisions.facts}
        impacts = cls(robot, shape, collisions, num_envs, substeps, steps, fallback)
        impacts.facts = facts
        return impacts

    def __init__(
        self,
        robot: RobotModel,
        shape: Shape,
        model: CollisionModel,
        num_envs: int,
        substeps: int,
        steps: int,
        fallback: bool,
    ):
        """`substeps` of a native frame, `steps` of a learned one; `fallback`: strikes out of range go to MuJoCo."""
        self.shape, self.model, self.facts = shape, model, {}
        self._substeps, self._steps, self._fallback = substeps, steps, fallback
        self._frame_dt = robot.frame_dt
        parameters = list(parameters_of(robot).values()) if model.takes_parameters else []
        self._parameters = torch.tensor(parameters, dtype=torch.float32)
        self._pair = robot.mj_model.pair(STRIKE_PAIR).id
        self._own = float(robot.mj_model.pair_margin[self._pair]), float(robot.mj_model.pair_gap[self._pair])
        self._table = np.delete(np.arange(robot.mj_model.npair), self._pair)
        self._stiff = robot.mj_model.pair_solref[self._table, 0].copy()
        self._soft = np.maximum(self._stiff, SOFTEST * robot.frame_dt / steps)
        self._around = max(math.hypot(x, y) for x, y in shape.outline) + shape.radius + STRIKER_RADIUS
        self.mode = np.full(num_envs, LEARNED, np.int8)
        self.out_of_range = torch.zeros(num_envs, dtype=torch.bool)  # each row's last collision

    def bind(self, batch: Batch) -> None:
        """Use this batch from now on."""
        self._batch = batch
        self._margin, self._gap, self._solref, self._timestep = (
            batch.expand(name) for name in ("pair_margin", "pair_gap", "pair_solref", "opt.timestep")
        )
        self._qpos, self._qvel, self._warmstart, self._sensor = (
            batch.bind(name) for name in ("qpos", "qvel", "qacc_warmstart", "sensordata")
        )
        self._write(np.arange(len(self.mode)))

    def set_mode(self, rows: np.ndarray, mode: int) -> None:
        """Rows by number."""
        self.mode[rows] = mode
        self._write(rows)

    def _write(self, rows: np.ndarray) -> None:
        native = self.mode[rows] == NATIVE
        self._margin[rows, self._pair] = np.where(native, self._own[0], -1.0)
        self._gap[rows, self._pair] = np.where(native, self._own[1], 1.0 + REACH)
        self._solref[rows[:, None], self._table, 0] = np.where(native[:, None], self._stiff, self._soft)
        self._timestep[rows] = self._frame_dt / np.where(native, self._substeps, self._steps)

    # Motion.

    def advance(self, rows: np.ndarray, frames: int) -> None:
        """Move these rows on."""
        native = self.mode[rows] == NATIVE
        near = ~native & self._may_touch(rows, frames * self._frame_dt)
        if len(free := rows[~native & ~near]):
            self._batch.step(free, nstep=frames * self._steps)
            self.mode[free] = LEARNED  # which does not change how it steps
        self._advance_native(rows[native], frames * self._substeps)
        if len(close := rows[near]):
            self._watch(close, frames * self._steps)

    def _advance_native(self, rows: np.ndarray, steps: int) -> None:
        if len(rows) == 0 or steps == 0:
            return
        self._batch.step(rows, nstep=steps)
        self.set_mode(rows[self._sensor[rows, 0] == 0], LEARNED)  # the surfaces have parted

    def _may_touch(self, rows: np.ndarray, seconds: float) -> np.ndarray:
        """[K] bool, by circles around block and striker."""
        away = self._qpos[rows, 7:9] - self._qpos[rows, :2]
        closing = np.linalg.norm(self._qvel[rows, 6:8] - self._qvel[rows, :2], axis=1)
        return np.linalg.norm(away, axis=1) - self._around <= seconds * closing + REACH

    def _distance(self, rows: np.ndarray) -> np.ndarray:
        """[K] between the surfaces, at most REACH."""
        self._batch.forward(rows)
        found, distance = self._sensor[rows].T
        return np.where(found > 0, distance, REACH)

    def _watch(self, rows: np.ndarray, steps: int) -> None:
        """Step by step, as the surfaces may meet."""
        distance = self._distance(rows)
        for step in range(steps + 1):
            before = distance, self._qpos[rows].copy(), self._qvel[rows].copy()
            if step:  # at first a look at where they are: somebody may have put the striker into the block
                self._batch.step(rows, nstep=1)
                distance = self._distance(rows)
            mode = self.mode[rows]
            self.mode[rows[(mode == PARTING) & (distance > PARTED)]] = LEARNED
            if not len(hit := ((mode == LEARNED) & (distance <= 0)).nonzero()[0]):
                continue
            native = self._collide(rows[hit], distance[hit], *(x[hit] for x in before))
            self._advance_native(rows[hit[native]], (steps + 1 - max(step, 1)) * self._substeps // self._steps)
            learned = np.ones(len(rows), bool)
            learned[hit[native]] = False
            rows, distance = rows[learned], np.where(self.mode[rows] == PARTING, 0.0, distance)[learned]

    # Collisions.

    def _collide(
        self, rows: np.ndarray, distance: np.ndarray, before: np.ndarray, qpos: np.ndarray, qvel: np.ndarray
    ) -> np.ndarray:
        """Surfaces that met in the last step, or were within each other at its start; [K] bool: left to MuJoCo.

        The state is put back to where they met, in proportion to the distance `before` and after; of rows that are left
        to MuJoCo to the start of the step."""
        within = before < -INSIDE
        share = np.where(before <= 0, 1.0, before / np.maximum(before - distance, 1e-12))[:, None]
        self._qpos[rows] = qpos + share * (self._qpos[rows] - qpos)
        self._qpos[rows, 3:7] /= np.linalg.norm(self._qpos[rows, 3:7], axis=1, keepdims=True)
        self._qvel[rows] = qvel + share * (self._qvel[rows] - qvel)
        q, qd = (torch.from_numpy(x[rows]) for x in (self._qpos, self._qvel))
        strikes = self.strikes(q, qd)
        out = ~self.in_range(strikes) | torch.from_numpy(within)
        self.out_of_range[torch.from_numpy(rows).long()] = out
        native = out.numpy() & self._fallback
        self._qpos[rows[native]], self._qvel[rows[native]] = qpos[native], qvel[native]
        self.set_mode(rows[native], NATIVE)
        self.set_mode(rows[~native], PARTING)
        self._apply(rows, ~native, strikes, q[:, 3:7])
        return native

    def strikes(self, q: Tensor, qd: Tensor) -> Strikes:
        """Of strikers that touch blocks, in states [K, 9] and [K, 8]."""
        scene, velocity = scene_of(q), qd[:, :2]
        columns, _, normal = from_world(self.shape, scene.block, scene.yaw, scene.striker, qd[:, 6:8] - velocity)
        columns = torch.cat([columns.float(), self._parameters.expand(len(q), -1)], 1)
        return Strikes(columns, normal, velocity, qd[:, 5])

    def in_range(self, strikes: Strikes) -> Tensor:
        """[K] bool: whether the network was trained on such strikes of blocks at rest."""
        slow = (strikes.velocity.norm(dim=-1) < AT_REST) & (LEVER * strikes.omega.abs() < AT_REST)
        return self.model.in_range(strikes.columns) & slow

    def _apply(self, rows: np.ndarray, learned: np.ndarray, strikes: Strikes, quat: Tensor) -> None:
        """The network's outcomes. All rows of the batch go through it, so that what it says of one does not depend on
        which others collide."""
        if not learned.any():
            return
        at = torch.from_numpy(rows).long()
        columns = strikes.columns.new_ones(len(self.mode), strikes.columns.shape[1])
        columns[at] = strikes.columns
        with torch.no_grad():
            outcome = self.model.predict(columns)[at].double()
        world = outcome_to_world(strikes.normal, outcome)
        half = world.rotation / 2
        c, s = half.cos(), half.sin()
        w, x, y, z = quat.unbind(-1)
        turned = torch.stack([c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w], -1)
        ids, learned_rows = rows[learned], torch.from_numpy(learned)
        self._qpos[ids, :2] += world.displacement[learned_rows].numpy()
        self._qpos[ids, 3:7] = turned[learned_rows].numpy()
        self._qvel[ids, :2] += world.velocity[learned_rows].numpy()
        self._qvel[ids, 5] += world.omega[learned_rows].numpy()
        self._warmstart[ids] = 0.0

    # State.

    def info(self) -> dict[str, Tensor]:
        return {"out_of_range": self.out_of_range}

    def forget(self, mask: Tensor) -> None:
        """Rows [N] bool that were put somewhere else."""
        self.set_mode(mask.cpu().numpy().nonzero()[0], LEARNED)

    def snapshot(self) -> dict[str, Any]:
        """What decides what comes next, besides MuJoCo's own state."""
        return {"mode": self.mode.copy(), "out_of_range": self.out_of_range.clone()}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`snapshot` gave."""
        self.mode[:] = state["mode"]
        self.out_of_range = state["out_of_range"].clone()
        self._write(np.arange(len(self.mode)))


def _steps_of(slide_step: float, frame_dt: float) -> int:
    """Physics steps in a frame, or an error."""
    number = isinstance(slide_step, (int, float)) and not isinstance(slide_step, bool)
    steps = frame_dt / slide_step if number and 0 < slide_step < float("inf") else 0.0
    if round(steps) < 1 or abs(steps - round(steps)) > 1e-6 * steps:
        parts = ", ".join(f"{frame_dt / k:g}" for k in (1, 2, 4, 8, 16))
        raise ValueError(f"slide_step is {slide_step!r}; it must divide a frame of {frame_dt:g} s, for example {parts}")
    return round(steps)
