"""NeRD/Strike-v0: run time of a batch of candidate strikes on `hybrid` and on `mujoco`, and where the blocks end.

A candidate is one strike of a block at rest, up to where it rests again, as a planner evaluates it. `mujoco` runs at
several physics steps and `hybrid` at several slide steps, turn by turn in one process on one thread. Errors are those
of the final pose from MuJoCo at 0.25 ms, the step of the collisions that the packaged models were distilled from; that
one has no error by definition. Two ratios are told for each slide step: over MuJoCo at the same step, and over the
fastest MuJoCo that errs no more in the median position.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import tyro

from nerd_gym.collision.scenes.robot import Scene, scene_of
from nerd_gym.collision.scenes.shapes import SHAPES
from nerd_gym.envs.factory import manual_reset_env
from nerd_gym.envs.strike_goals import yaw_error
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "strike.json"
STRIKE = "NeRD/Strike-v0"
SUBSTEPS = (16, 12, 10, 8, 6, 4, 2)  # of mujoco in a frame of 4 ms
SLIDE_STEPS = (0.00025, 0.0005, 0.001, 0.002, 0.004)  # s
REFERENCE = ("mujoco", 0.25)


@dataclass
class Args:
    """Time candidate strikes."""

    num_envs: int = 256
    """Candidates in a batch."""
    repeats: int = 5
    """Interleaved repeats, each with strikes of its own; medians count."""
    shapes: tuple[str, ...] = tuple(SHAPES)
    """Of the block."""
    out: Path = RESULT
    """Where to write the json."""


class Candidates:
    """One backend at one physics step."""

    def __init__(self, shape: str, num_envs: int, backend: str, step_ms: float, **options: Any):
        self.key = (backend, step_ms)
        self.env: NerdVectorEnv = manual_reset_env(STRIKE, num_envs, backend, shape=shape, threads=1, **options)
        self.env.reset(seed=0)
        self.start = self.env.snapshot()
        self.seconds: list[float] = []
        self.ends: list[Scene] = []
        self.out_of_range = 0

    def evaluate(self, action: torch.Tensor) -> None:
        """The strikes [N, 3] from the start."""
        self.env.restore(self.start)
        before = time.perf_counter()
        *_, info = self.env.step(action)
        self.seconds.append(time.perf_counter() - before)
        self.ends.append(scene_of(self.env.backend.q.clone()))
        self.out_of_range += int(info["out_of_range"].sum()) if "out_of_range" in info else 0

    def row(self, reference: Candidates) -> dict[str, Any]:
        """Run time per candidate and errors of the final pose."""
        pairs = list(zip(self.ends, reference.ends, strict=True))
        position = torch.cat([(a.block - b.block).norm(dim=-1) for a, b in pairs]) * 1000
        yaw = torch.cat([yaw_error(a.yaw, b.yaw, 1).abs() for a, b in pairs])
        return {
            "backend": self.key[0],
            "step_ms": self.key[1],
            "ms_per_candidate": round(1000 * median(self.seconds) / self.env.num_envs, 4),
            "position_mm": {"median": round(float(position.median()), 3), "mean": round(float(position.mean()), 3)},
            "yaw_rad": {"median": round(float(yaw.median()), 4), "mean": round(float(yaw.mean()), 4)},
            "out_of_range": self.out_of_range,
        }


def subjects(shape: str, num_envs: int) -> list[Candidates]:
    """All of one shape, the reference first."""
    frame_ms = 4.0
    found = [Candidates(shape, num_envs, "mujoco", round(frame_ms / n, 4), substeps=n) for n in SUBSTEPS]
    return found + [Candidates(shape, num_envs, "hybrid", 1000 * s, slide_step=s) for s in SLIDE_STEPS]


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run times of hybrid over those of mujoco at the same step, and at no larger error."""
    simulated = [row for row in rows if row["backend"] == "mujoco"]
    for row in rows:
        if row["backend"] == "mujoco":
            continue
        same = [other for other in simulated if other["step_ms"] == row["step_ms"]]
        as_good = [o for o in simulated if o["position_mm"]["median"] <= row["position_mm"]["median"]]
        fastest = min(as_good, key=lambda other: other["ms_per_candidate"])
        row["over_mujoco"] = {
            "at_equal_step": round(row["ms_per_candidate"] / same[0]["ms_per_candidate"], 3) if same else None,
            "at_matched_accuracy": round(row["ms_per_candidate"] / fastest["ms_per_candidate"], 3),
            "matched_step_ms": fastest["step_ms"],
        }
    return rows


def measure(shape: str, num_envs: int, repeats: int) -> dict[str, Any]:
    """One shape."""
    everyone, generator = subjects(shape, num_envs), torch.Generator().manual_seed(0)
    everyone[0].evaluate(torch.zeros(num_envs, 3))  # whatever is done once
    for candidates in everyone[1:]:
        candidates.evaluate(torch.zeros(num_envs, 3))
    for candidates in everyone:
        candidates.seconds.clear()
        candidates.ends.clear()
        candidates.out_of_range = 0
    for repeat in progress(range(repeats), desc=shape, unit="repeat"):
        action = 2 * torch.rand(num_envs, 3, generator=generator) - 1
        for k in range(len(everyone)):
            everyone[(repeat + k) % len(everyone)].evaluate(action)
    reference = everyone[0]
    assert reference.key == REFERENCE
    start = scene_of(reference.start["backend"]["q"])
    travel = torch.cat([(end.block - start.block).norm(dim=-1) for end in reference.ends])
    rows = with_ratios([candidates.row(reference) for candidates in everyone])
    for candidates in everyone:
        candidates.env.close()
    return {"median_travel_mm": round(1000 * float(travel.median()), 1), "rows": rows}


def print_table(shape: str, found: dict[str, Any]) -> None:
    print(f"{shape}: median travel {found['median_travel_mm']} mm")
    for row in found["rows"]:
        line = f"  {row['backend']:8s}{row['step_ms']:7.3f} ms{row['ms_per_candidate']:9.3f} ms a candidate"
        line += f"{row['position_mm']['median']:8.2f} mm{row['yaw_rad']['median']:8.4f} rad"
        if "over_mujoco" in row:
            ratios = row["over_mujoco"]
            line += f"   over mujoco {ratios['at_equal_step'] or '-'} at the same step, "
            line += f"{ratios['at_matched_accuracy']} at no larger error ({ratios['matched_step_ms']} ms)"
        print(line)


def main(args: Args) -> None:
    odd = [name for name in args.shapes if name not in SHAPES]
    if odd:
        raise ValueError(f"unknown shape {odd[0]!r}; valid: {', '.join(SHAPES)}")
    if args.num_envs < 1 or args.repeats < 1:
        raise ValueError(f"num_envs is {args.num_envs} and repeats {args.repeats}; both must be at least 1")
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "what": "candidate strikes: run time of hybrid over mujoco, errors of the final pose from mujoco at 0.25 ms",
        "num_envs": args.num_envs,
        "repeats": args.repeats,
        "threads": 1,
        "load_average_before": [round(value, 2) for value in os.getloadavg()],
        # Of the whole optimisation, MuJoCo and hybrid, in s: table IV of the paper.
        "paper": {"semicylinder": [27.42, 15.81], "square": [28.58, 14.74], "triangle": [25.20, 13.21]},
        "shapes": {},
    }
    for shape in args.shapes:
        result["shapes"][shape] = measure(shape, args.num_envs, args.repeats)
        print_table(shape, result["shapes"][shape])
        save(args.out, result)
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
