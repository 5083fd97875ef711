"""`warp` with reference=True against recorded states of the published simulator, 1 and 20 control steps ahead.

The recorded sets are not part of the project: --reference names the folder with `convert.py` and `trajectories/`.
--excerpt FOLDER writes a few dozen frames per robot, in our conventions, as tests read them.
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


# An excerpt has a few dozen frames per robot: one row, a longer piece of one random rollout, short ones of the others.
LONG, SHORT = 24, 6
LONGER = ("Cartpole", "PendulumContact_cfg0", "Ant_run", "AnymalPD_forward", "FrankaReach_jpc")
BEFORE_CONTACT = 2  # frames
TASK_PARTS = ("obs", "reward", "terminated", "contact_depth", "targets")  # read by tests of tasks, of one kind


class Recorded:
    """A recorded set in our conventions: `q`, `qd` [T+1, N, ...], `force`, `actions` [T, N, ...] per kind.

    ``data`` has them as `<kind>_q` and so on, with the published observations, rewards, terminations, targets and
    depths of contacts as they were recorded, and `control_steps`, the frames of a control step.
    """

    def __init__(self, name: str, data: dict[str, np.ndarray]):
        self.name, self.data = name, data
        self.robot = nerd_gym.RobotModel.named(SETS[name][0])
        self.friction = SETS[name][1]

    @classmethod
    def of_folder(cls, folder: Path, name: str) -> Recorded:
        """A whole set from the folder with `convert.py`."""
        sys.path.insert(0, str(folder))
        try:
            from convert import load
        finally:
            sys.path.pop(0)
        return cls(name, in_our_order(nerd_gym.RobotModel.named(SETS[name][0]), load(name)))

    @classmethod
    def of_file(cls, path: Path) -> Recorded:
        """An excerpt that :meth:`save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            return cls(path.stem, dict(file))

    def save(self, path: Path) -> None:
        """Write the set as one compressed file."""
        np.savez_compressed(path, **self.data)

    def excerpt(self) -> Recorded:
        """Some frames of one row, in float32."""
        cut = {}
        for name, values in self.data.items():
            kind, _, part = name.partition("_")
            if kind in KINDS:
                frames, row = self.window(kind)
                if part == "targets":  # [N, 3], for all frames
                    values = values[row : row + 1]
                else:
                    values = values[frames.start : frames.stop + (part in ("q", "qd", "obs")), row : row + 1]
            if kind != "passive" or part not in TASK_PARTS:
                cut[name] = values.astype(np.float32) if values.dtype.kind == "f" else values
        return Recorded(self.name, cut)

    def window(self, kind: str) -> tuple[slice, int]:
        """Frames and row of an excerpt: the first ones, or those at a pendulum's first recorded contact."""
        start, row = 0, 0
        touching = (self.data[f"{kind}_contact_depth"] < 0).any(-1)  # [T, N]
        if self.robot.name == "pendulum_contact" and touching.any():
            first = np.where(touching.any(0), touching.argmax(0), len(touching))
            row = int(first.argmin())
            start = int(first[row]) - BEFORE_CONTACT
        return slice(start, start + (LONG if self.name in LONGER and kind == "random" else SHORT)), row

    def q(self, kind: str) -> Tensor:
        return self._tensor(f"{kind}_q")

    def qd(self, kind: str) -> Tensor:
        return self._tensor(f"{kind}_qd")

    def force(self, kind: str) -> Tensor:
        return self._tensor(f"{kind}_force")

    def actions(self, kind: str) -> Tensor:
        return self._tensor(f"{kind}_actions")

    def ground(self, n: int) -> tuple[Tensor, Tensor] | None:
        if "ground_point" not in self.data:
            return None
        return tuple(self._tensor(f"ground_{part}").expand(n, 3) for part in ("point", "normal"))

    def _tensor(self, name: str) -> Tensor:
        return torch.as_tensor(self.data[name], dtype=torch.float32)


def in_our_order(robot: nerd_gym.RobotModel, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A converted set with its joints in the MJCF's order: the published Anymal has its legs in another one."""
    theirs = list(robot.joint_names)
    if robot.name == "anymal":
        theirs = [joint for leg in ("RH", "LH", "RF", "LF") for joint in theirs if joint.startswith(leg)]
    order = [theirs.index(joint) for joint in robot.joint_names]

    def ordered(values: np.ndarray, first: int) -> np.ndarray:
        return np.concatenate([values[..., :first], values[..., first:][..., order]], -1)

    data = dict(data)
    for kind in KINDS:
        data[f"{kind}_q"] = ordered(data[f"{kind}_q"], robot.joint_q.start)
        data[f"{kind}_qd"] = ordered(data[f"{kind}_qd"], robot.joint_qd.start)
        data[f"{kind}_force"] = ordered(data.pop(f"{kind}_joint_acts"), 0)
        if robot.name == "anymal":
            data[f"{kind}_actions"] = ordered(data[f"{kind}_actions"], 0)
    return data


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
    excerpt: Path | None = None
    """Write excerpts of the sets, a few dozen frames per robot, into this folder, and replay nothing."""


def write_excerpts(reference: Path, folder: Path) -> None:
    """One file per set."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in progress(SETS, desc="sets"):
        Recorded.of_folder(reference, name).excerpt().save(folder / f"{name}.npz")


def main(args: Args) -> None:
    if args.excerpt is not None:
        write_excerpts(args.reference, args.excerpt)
        print(f"written: {args.excerpt}")
        return
    rows = []
    for name in progress(SETS, desc="sets"):
        rec = Recorded.of_folder(args.reference, name)
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
