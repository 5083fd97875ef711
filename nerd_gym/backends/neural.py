"""`neural`: a model learned from another backend's motion moves the robot.

So far one kind of model, `structured`: kinematics and joint limits from the MJCF, inertial parameters, armature and
damping learned from data (dynamics/identify.py), run in the same fused kernel as `warp`. It is for robots with a
fixed base and without contacts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ..dynamics.checkpoint import load_model, packaged_model
from ..dynamics.identify import Inertias
from ..robots.model import RobotModel
from .warp import WarpBackend


class NeuralBackend(WarpBackend):
    """A learned model in place of the solver. ``facts`` tells where it comes from and how far it errs."""

    name = "neural"
    options = {
        "model": "path of a model (default: the packaged one of this robot and teacher)",
        "teacher": "backend that the packaged model was learned from (default: warp)",
        "threads": "CPU threads (default: all)",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        model: str | Path | None = None,
        teacher: str = "warp",
        threads: int | None = None,
    ):
        path = packaged_model(robot, teacher) if model is None else model
        tensors, self.facts = load_model(path, robot)
        if self.facts["kind"] != "structured":
            raise ValueError(f"{Path(path).name} is a model of kind {self.facts['kind']!r}; valid: structured")
        self._inertias = Inertias(robot, tensors["parameters"], self.facts["rank"], self.facts["residual"])
        super().__init__(robot, num_envs, device, substeps=self.facts["substeps"], threads=threads)

    def _links(self) -> dict[str, np.ndarray]:
        return self._inertias.links()
