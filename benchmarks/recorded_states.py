"""`warp` with reference=True against recorded states of the published simulator, 1 and 20 control steps ahead.

The recorded sets are not part of the project: --reference names the folder with `convert.py` and `trajectories/`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor

import nerd_gym
from nerd_gym.backends import make_backend
from nerd_gym.envs.franka import Franka, FrankaConfig
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "recorded_states.json"
# Recorded with Warp 1.8, whose friction law is `huber`, but for one set with 1.5 (`coulomb`).
SETS = {
    "Cartpole": ("cartpole", "huber"),
    "PendulumContact_cfg0": ("pendulum_contact", "huber"),
    "PendulumContact_cfg1": ("pendulum_contact", "huber"),
    "PendulumContact_cfg3": ("pendulum_contact", "huber"),
    "Ant_run": ("ant", "huber"),
    "Ant_run_friction151": ("ant", "coulomb"),
    "Ant_spin": ("ant", "huber"),
    "Ant_spin_track": ("ant", "huber"),
    "AnymalPD_forward": ("anymal", "huber"),
    "AnymalPD_side": ("anymal", "huber"),
    "AnymalTorque_forward": ("anymal", "huber"),
    "FrankaReach_jpc": ("franka", "huber"),
    "FrankaReach_torque": ("franka", "huber"),
}
KINDS = ("passive", "random")


class Recorded:
    """A recorded set in our conventions: `q`, `qd` [T+1, N, ...], `force`, `actions` [T, N, ...] per kind."""

    def __init__(self, folder: Path, name: str):
        sys.path.insert(0, str(folder))
        try:
            from convert import load
        finally:
            sys.path.pop(0)
        self.data = load(name)
        self.robot = nerd_gym.RobotModel.named(SETS[name][0])
        self.friction = SETS[name][1]
        theirs = list(self.robot.joint_names)
        if self.robot.name == "anymal":
            theirs = [joint for leg in ("RH", "LH", "RF", "LF") for joint in theirs if joint.startswith(leg)]
        self._order = [theirs.index(joint) for joint in self.robot.joint_names]

    def _in_our_order(self, values: np.ndarray, first: int) -> Tensor:
        values = np.concatenate([values[..., :first], values[..., first:][..., self._order]], -1)
        return torch.as_tensor(values, dtype=torch.float32)

    def q(self, kind: str) -> Tensor:
        return self._in_our_order(self.data[f"{kind}_q"], self.robot.joint_q.start)

    def qd(self, kind: str) -> Tensor:
        return self._in_our_order(self.data[f"{kind}_qd"], self.robot.joint_qd.start)

    def force(self, kind: str) -> Tensor:
        return self._in_our_order(self.data[f"{kind}_joint_acts"], 0)

    def actions(self, kind: str) -> Tensor:
        actions = torch.as_tensor(self.data[f"{kind}_actions"], dtype=torch.float32)
        return actions[..., self._order] if self.robot.name == "anymal" else actions

    def ground(self, n: int) -> tuple[Tensor, Tensor] | None:
        if "ground_point" not in self.data:
            return None
        parts = (torch.as_tensor(self.data[f"ground_{part}"], dtype=torch.float32) for part in ("point", "normal"))
        return tuple(part.expand(n, 3) for part in parts)


def replay(rec: Recorded, kind: str, ahead: int, friction: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Largest error in q and in qd per start, `ahead` control steps from every recorded state."""
    robot = rec.robot
    q, qd, force = rec.q(kind), rec.qd(kind), rec.force(kind)
    starts = len(force) - ahead + 1
    n = starts * q.shape[1]

    def at(values: Tensor, k: int) -> Tensor:
        return values[k : k + starts].flatten(0, 1)

    backend = make_backend("warp", robot, n, reference=True, friction=friction or rec.friction)
    backend.reset(torch.ones(n, dtype=torch.bool), at(q, 0), at(qd, 0), rec.ground(n))
    for k in range(ahead):
        if int(rec.data["control_steps"]) == 1:
            backend.step(at(force, k))
        else:  # position control works out its torque anew in each frame
            task = Franka(robot, FrankaConfig(control="position"))
            for _ in range(task.frames):
                backend.step(task.joint_force(at(rec.actions(kind), k), backend))
    goal, goal_rate = at(q, ahead), at(qd, ahead)
    off = backend.q - goal
    joints = off[:, robot.joint_q]
    off[:, robot.joint_q] = torch.remainder(joints + torch.pi, 2 * torch.pi) - torch.pi
    if robot.free_base:
        sign = torch.sign((backend.q[:, 3:7] * goal[:, 3:7]).sum(-1, keepdim=True))
        off[:, 3:7] = sign * backend.q[:, 3:7] - goal[:, 3:7]
    return off.abs().amax(-1).numpy(), (backend.qd - goal_rate).abs().amax(-1).numpy()


def summary(errors: np.ndarray) -> dict[str, float]:
    """Median, 99 % quantile and maximum."""
    values = {"median": np.median(errors), "p99": np.quantile(errors, 0.99), "max": errors.max()}
    return {name: float(f"{value:.2e}") for name, value in values.items()}


@dataclass
class Args:
    """Replay recorded states of the published simulator."""

    reference: Path
    """Folder with convert.py and trajectories/."""
    out: Path = RESULT
    """Where to write the json."""


def main(args: Args) -> None:
    rows = []
    for name in progress(SETS, desc="sets"):
        rec = Recorded(args.reference, name)
        for kind in KINDS:
            row = {"set": name, "robot": rec.robot.name, "rollout": kind, "friction": rec.friction}
            for ahead in (1, 20):
                for part, errors in zip(("q", "qd"), replay(rec, kind, ahead), strict=True):
                    row[f"{part}, {ahead} ahead"] = summary(errors)
            rows.append(row)
            print(name, kind, {key: value for key, value in row.items() if "ahead" in key})
    save(args.out, {"what": "largest error per start, warp with reference=True, against recorded states", "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
