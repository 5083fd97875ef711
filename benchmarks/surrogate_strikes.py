"""Execute strikes of NeRD/Strike-v0 in surrogate reality, a process of its own that only arrays leave.

    with SurrogateReality("A1", "square") as reality:
        pose = reality.strike(pose, action)    # [N, 3] x, y, yaw of blocks at rest; [N, 3] in [-1, 1] -> [N, 3]

It is a stand-in for a laboratory (surrogate_reality.py) and says nothing about real strikes. Planners and policies may
look at the poses and at nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from array_pipe import receive, send

from nerd_gym.registration import env_spec

SCRIPT = Path(__file__).parent / "surrogate_reality.py"


class SurrogateReality:
    """One shape of block and one setting; the same seed and the same calls give the same poses."""

    def __init__(self, setting: str, shape: str = "semicylinder", seed: int = 0):
        spec = env_spec("NeRD/Strike-v0")
        options = {"shape": shape}
        self._strike_of = spec.task_class()(spec.robot(options), spec.config(options)).strike_of
        words = [setting, "--shape", shape, "--seed", str(seed), "--serve"]
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._receive()  # it is ready

    def strike(self, pose: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Where blocks [N, 3] (x, y, yaw) that rest come to rest again after strikes [N, 3] as the environment has
        them; the yaw goes on counting."""
        pose, action = np.asarray(pose, np.float64), np.asarray(action, np.float64)
        if pose.ndim != 2 or pose.shape[1] != 3 or action.shape != pose.shape:
            raise ValueError(f"pose has shape {pose.shape} and action {action.shape}; both must be [N, 3]")
        for name, given in (("pose", pose), ("action", action)):
            if not np.isfinite(given).all():
                raise ValueError(
                    f"{name} has a number that is not finite in row {int((~np.isfinite(given)).argmax()) // 3}"
                )
        if len(pose) == 0:
            return pose
        columns, face = self._strike_of(torch.from_numpy(action))
        assert self._process.stdin is not None
        send(self._process.stdin, pose=pose, strike=columns.numpy(), face=face.numpy())
        return self._receive()["pose"]

    def _receive(self) -> dict[str, np.ndarray]:
        assert self._process.stdout is not None and self._process.stderr is not None
        arrays = receive(self._process.stdout)
        if arrays is None:
            lines = self._process.stderr.read().decode().strip().splitlines()
            self.close()
            raise RuntimeError(f"surrogate reality has ended: {lines[-1] if lines else 'it said nothing'}")
        return arrays

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.communicate()  # closes its input, on which it ends
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> SurrogateReality:
        return self

    def __exit__(self, *_) -> None:
        self.close()
