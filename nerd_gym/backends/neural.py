"""`neural`: a model learned from another backend's motion moves the robot (dynamics/)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.dynamics.models.base import open_model
from nerd_gym.dynamics.models.checkpoint import DEFAULT_TEACHER, has_packaged_model, packaged_model
from nerd_gym.dynamics.models.trust import Trust
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.features import FEATURES
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import FrameInput, Motion
from nerd_gym.utils.files import file_hash
from nerd_gym.utils.threads import cpu_threads

from .base import Backend


class NeuralBackend(Backend):
    """A learned model in place of the solver. ``facts`` tells where it comes from and how far it errs.

    A row is healthy while it stays within the model's stated range, a multiple of what it was trained on, and
    ``info["model_trust"]`` tells from 0 to 1 how far the last step may be believed (dynamics/models/trust.py). With
    ``min_trust`` a row that is trusted less is given up like one that has diverged: a policy that learns in the model
    gains nothing where the model knows nothing.
    """

    name = "neural"
    learned = True
    features = frozenset(FEATURES)  # those that its teacher simulated; what it makes of them is in its error
    options = {
        "model": "path of a model (default: the packaged one of this robot and teacher)",
        "teacher": "backend that the packaged model was learned from (default: warp)",
        "reference": "True: the packaged model of the published simulator with its mistakes",
        "threads": "CPU threads of the kernels (default: all); networks use as many as torch does",
        "min_trust": "give rows up that are trusted less, from 0 (default: never) to 1",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        model: str | Path | None = None,
        teacher: str = DEFAULT_TEACHER,
        reference: bool = False,
        threads: int | None = None,
        min_trust: float = 0.0,
    ):
        if not 0 <= min_trust <= 1:
            raise ValueError(f"min_trust is {min_trust}; it must be from 0 to 1")
        cpu_threads(threads)  # a wrong number is an error here, not in the first step
        super().__init__(robot, num_envs, device)
        if model is not None and reference:
            raise ValueError("reference=True chooses a packaged model; one of your own is named by model= alone")
        path = Path(packaged_model(robot, teacher, reference) if model is None else model)
        self.model, tensors = open_model(path, robot, self.device, threads)
        self.facts |= self.model.facts | {"hash": file_hash(path)}
        self.substeps = self.model.substeps
        self.history = self.model.new_history(num_envs)
        self.rows_exact = self.model.rows_exact
        try:
            self.trust = Trust(robot, tensors, self.device)
        except (KeyError, RuntimeError, IndexError, TypeError, ValueError) as error:  # as above, of the trust's own
            raise ValueError(f"{path.name} has no whole trust of {robot.name}: {error}") from error
        self.q_limit, self.qd_limit = self.trust.healthy_range()
        self.min_trust = min_trust
        self._contacts_before: Contacts | None = None  # of the last step
        self._network_inputs: Tensor | None = None  # of the last step

    def step(self, joint_force: Tensor, rows: Tensor | None = None, frames: int = 1) -> None:
        super().step(joint_force, rows, frames)
        if self.min_trust:
            self.healthy = self.healthy & (self.info()["model_trust"] >= self.min_trust)
            self.any_unhealthy = True

    def _advance(self, joint_force: Tensor) -> None:
        q, qd, _ = self.last_frame
        before = Motion(q, qd)
        self._contacts_before = self._find_contacts(before.q, self.ground_point, self.ground_normal)
        q, qd = self.model.predict(before, joint_force, self._contacts_before, self.history)
        self._network_inputs = self.model.last_network_inputs()
        self.q.copy_(q)
        self.qd.copy_(qd)

    def _distances(self) -> Tensor | None:
        return self.model.distances(self.q, self.ground_point, self.ground_normal)

    def info(self) -> dict[str, Tensor]:
        last, contacts = self.last, self._contacts_before
        if last is None or contacts is None:  # there was no step yet
            return {"model_trust": torch.ones(self.num_envs, device=self.device)}
        return {"model_trust": self.cached("trust", lambda: self.trust(*last, contacts, self._network_inputs))}

    @classmethod
    def simulates(cls, robot: RobotModel) -> bool:
        return has_packaged_model(robot, DEFAULT_TEACHER)

    def trust_in(self, frame: FrameInput, ground: tuple[Tensor, Tensor]) -> Tensor | None:
        if not self.trust.known:
            return None
        contacts = self._find_contacts(frame.q, *ground)
        inputs = self.model.network_inputs(Motion(frame.q, frame.qd), frame.joint_force, contacts)
        return self.trust(*frame, contacts, inputs)

    def range_ratios(self, frame: FrameInput) -> dict[str, Tensor]:
        if not self.trust.known:
            return {}
        return dict(zip(self.trust.coordinates, self.trust.ratios(*frame).unbind(-1), strict=True))

    def _rows_written(self, mask: Tensor) -> None:
        if self.history is not None:
            self.history.forget(mask)

    def _extra_state(self) -> dict[str, Any]:
        return {} if self.history is None else self.history.snapshot()

    def _restore_extra(self, state: dict[str, Any]) -> None:
        if self.history is not None:
            self.history.restore(state)

    def _extra_rows(self, state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        return {} if self.history is None else self.history.select_rows(state, rows)

    def close(self) -> None:
        self.model.close()
