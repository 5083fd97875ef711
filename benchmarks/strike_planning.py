"""NeRD/Strike-v0: strikes that CMA-ES plans on `mujoco` and on `hybrid`, carried out in surrogate reality.

Surrogate reality (surrogate_reality.py) stands in for a laboratory: nothing here was measured. In each of its settings
A1, B1 and C1, ten sampled strikes shape the simulators (strike_simulators.py tells how, and why that is fair). For five
targets and five repeats with searches of their own, a strike is planned on each simulator, with equal numbers of
candidates and iterations and the reward of the task `single`. The best one is executed in surrogate reality, where the
table is uneven: with the same draw of that for all simulators. The position error is in m; the yaw error is in rad, of
a block that looks the same after a turn by its symmetry.

Targets are outcomes of random strikes in surrogate reality, the first five that end 4 to 12 cm away as the task's own
do. `again` carries out the strike that made the target: what remains is the table's unevenness.

Run times are of the whole search on one thread, simulators turn by turn: those of the same plans, until --parts times
measures `mujoco` and adapted hybrid again, in the first setting alone.
Settings, targets, candidates and seeds were fixed before any figure was seen.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from strike_planning_summary import rounded, summary, times_of_plans, timing
from strike_simulators import ADAPTED, ENV, MUJOCO, NAMES, SAMPLES, Simulator, simulators, strike_env
from surrogate_strikes import SurrogateReality

from nerd_gym.collision.scenes.shapes import SHAPES
from nerd_gym.envs.strike_goals import MOST, start_goal, yaw_error
from nerd_gym.planning import Plan, plan
from nerd_gym.registration import env_spec
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "strike_planning.json"
PARTS = ("errors", "times")
AGAIN = "again"
NEAREST, FARTHEST, RANDOM_STRIKES = 0.04, 0.12, 200  # m; how many are drawn for the targets
TARGET_SEED, AGAIN_SEED, EXECUTION_SEED = 1000, 2000, 3000  # of surrogate reality's own draws
# Mean and standard deviation by shape of position (m) and orientation (rad), measured on a robot, and of the run time
# (s) of the optimisation: tables III and IV of the paper.
PAPER = {
    "MuJoCo": {
        "position": {"semicylinder": [0.0245, 0.0176], "square": [0.0222, 0.0124], "triangle": [0.0251, 0.0154]},
        "orientation": {"semicylinder": [0.7882, 0.6071], "square": [1.2696, 0.6926], "triangle": [0.6673, 0.4036]},
        "seconds": {"semicylinder": [27.42, 3.24], "square": [28.58, 3.71], "triangle": [25.20, 2.89]},
    },
    "hybrid": {
        "position": {"semicylinder": [0.0159, 0.0046], "square": [0.0163, 0.0080], "triangle": [0.0185, 0.0092]},
        "orientation": {"semicylinder": [0.4152, 0.3014], "square": [1.2479, 1.0630], "triangle": [0.7319, 0.5518]},
        "seconds": {"semicylinder": [15.81, 2.75], "square": [14.74, 1.83], "triangle": [13.21, 3.52]},
    },
}


@dataclass
class Args:
    """Plan strikes and carry them out in surrogate reality."""

    parts: tuple[str, ...] = ("errors",)
    """Which: errors, with the times of their plans; times, which are measured again."""
    settings: tuple[str, ...] = ("A1", "B1", "C1")
    """Of surrogate reality; --parts times takes the first."""
    shapes: tuple[str, ...] = tuple(SHAPES)
    """Of the block."""
    targets: int = 5
    """Per setting and shape."""
    repeats: int = 5
    """Searches per target."""
    candidates: int = 32
    """Strikes in an iteration of CMA-ES."""
    iterations: int = 20
    """Of CMA-ES."""
    seed: int = 0
    """Of samples, targets and searches."""
    simulators: tuple[str, ...] = NAMES
    """Which of them."""
    again: bool = False
    """Measure again what is in the json already."""
    out: Path = RESULT
    """Where to write the json."""


def targets(reality: SurrogateReality, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Poses [count, 3] that a strike can reach, and the strikes [count, 3] that did."""
    actions = np.random.default_rng(seed).uniform(-1, 1, (RANDOM_STRIKES, 3))
    ends = reality.strike(np.zeros_like(actions), actions)
    far = np.linalg.norm(ends[:, :2], axis=1)
    rows = np.nonzero((far >= NEAREST) & (far <= FARTHEST))[0][:count]
    if len(rows) < count:
        raise ValueError(f"{len(rows)} of {RANDOM_STRIKES} random strikes end 4 to 12 cm away; {count} are needed")
    return ends[rows], actions[rows]


def planned(shape: str, simulator: Simulator, target: np.ndarray, seed: int, args: Args) -> Plan:
    """One strike."""
    env = strike_env(shape, 1, simulator.backend, task="single", **simulator.options)
    points = torch.zeros(1, MOST + 1, 3)
    points[:, 1:] = torch.from_numpy(target).float()
    env.state.goal = start_goal(points, torch.ones(1))
    try:
        return plan(env, horizon=1, candidates=args.candidates, iterations=args.iterations, seed=seed)
    finally:
        env.close()


def all_planned(shape: str, own: list[Simulator], goals: np.ndarray, args: Args) -> dict[str, list[Plan]]:
    """By simulator, the plans for every target and repeat, turn by turn, each turn begun by the next."""
    found: dict[str, list[Plan]] = {simulator.name: [] for simulator in own}
    for index, target in enumerate(np.repeat(goals, args.repeats, 0)):
        for k in range(len(own)):
            simulator = own[(index + k) % len(own)]
            found[simulator.name].append(planned(shape, simulator, target, 1000 * args.seed + index, args))
    return found


def executed(setting: str, shape: str, actions: np.ndarray, goals: np.ndarray, seed: int) -> dict[str, list[float]]:
    """Errors of strikes [N, 3] from the origin, in surrogate reality."""
    with SurrogateReality(setting, shape, seed) as reality:
        ends = torch.from_numpy(reality.strike(np.zeros_like(actions), actions))
    wanted = torch.from_numpy(goals)
    return {
        "position": (ends[:, :2] - wanted[:, :2]).norm(dim=-1).tolist(),
        "orientation": yaw_error(ends[:, 2], wanted[:, 2], SHAPES[shape].faces).abs().tolist(),
    }


def errors(setting: str, shape: str, args: Args, folder: Path, known: dict[str, Any]) -> dict[str, Any]:
    """One setting and shape: what is known of simulators, and those that are asked for."""
    runs, facts = dict(known.get("runs", {})), {one["name"]: one for one in known.get("simulators", [])}
    load = known.get("load_average_before", rounded(os.getloadavg()))
    own, seconds = simulators(setting, shape, args.seed, folder, [name for name in args.simulators if name not in runs])
    with SurrogateReality(setting, shape, TARGET_SEED + args.seed) as reality:
        goals, strikes = targets(reality, args.targets, args.seed)
    plans = all_planned(shape, own, goals, args)
    wanted = np.repeat(goals, args.repeats, 0)
    for simulator in own:
        facts[simulator.name] = simulator.facts()
        actions = np.stack([one.actions[0].double().numpy() for one in plans[simulator.name]])
        runs[simulator.name] = executed(setting, shape, actions, wanted, EXECUTION_SEED + args.seed) | {
            "planned": [round(one.value, 5) for one in plans[simulator.name]],
            "seconds": [round(one.seconds, 3) for one in plans[simulator.name]],
        }
    again = np.repeat(strikes, args.repeats, 0)
    runs[AGAIN] = executed(setting, shape, again, wanted, AGAIN_SEED + args.seed)
    return {
        "adapt_seconds": known.get("adapt_seconds", {}) | seconds,
        "load_average_before": load,
        "simulators": [facts[name] for name in NAMES if name in facts],
        "targets": goals.round(4).tolist(),
        "runs": {name: runs[name] for name in (*NAMES, AGAIN) if name in runs},
    }


def times(shape: str, args: Args, folder: Path) -> dict[str, Any]:
    """Run time of a search on mujoco and on hybrid with an adapted model."""
    setting, load = args.settings[0], os.getloadavg()
    own, _ = simulators(setting, shape, args.seed, folder, (MUJOCO, ADAPTED))
    with SurrogateReality(setting, shape, TARGET_SEED + args.seed) as reality:
        goals, _ = targets(reality, args.targets, args.seed)
    for simulator in own:
        planned(shape, simulator, goals[0], 0, args)  # whatever is done once
    seconds = {name: [one.seconds for one in found] for name, found in all_planned(shape, own, goals, args).items()}
    return timing(seconds, [rounded(load)])


def steps_ms() -> dict[str, float]:
    """Physics steps of the backends as they are planned on."""
    frame = 1000 * env_spec(ENV).robot({}).frame_dt
    found = {}
    for backend in ("mujoco", "hybrid"):
        env = strike_env("semicylinder", 1, backend)
        steps = 1000 * env.backend.facts["slide_step"] if backend == "hybrid" else frame / env.backend.substeps
        found[backend] = round(steps, 4)
        env.close()
    return found


def print_tables(result: dict[str, Any]) -> None:
    for shape, found in result.get("summary", {}).items():
        for name, row in found["errors"].items():
            (x, dx), (yaw, dyaw) = row["position"], row["orientation"]
            print(f"{shape:14s}{name:20s}{x:9.4f} ({dx:.4f}) m{yaw:9.4f} ({dyaw:.4f}) rad")
        for name, changes in found["change"].items():
            for what, row in changes.items():
                print(f"{shape:14s}{what} of {name}: {row['mean']:+.1%} ({row['low']:+.1%} to {row['high']:+.1%})")
    for shape, found in result.get("times", {}).items():
        told = ", ".join(f"{name} {np.mean(s):.2f} s" for name, s in found["seconds"].items())
        print(f"{shape:14s}{told}, ratio {found['ratio']:.3f}")


def check(args: Args) -> None:
    kinds = (("part", args.parts, PARTS), ("shape", args.shapes, tuple(SHAPES)), ("simulator", args.simulators, NAMES))
    for what, given, valid in kinds:
        odd = [name for name in given if name not in valid]
        if odd:
            raise ValueError(f"unknown {what} {odd[0]!r}; valid: {', '.join(valid)}")
    counts = {"targets": args.targets, "repeats": args.repeats, "settings": len(args.settings)}
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")


def main(args: Args) -> None:
    check(args)
    torch.set_num_threads(1)
    result: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    asked = {name: getattr(args, name) for name in ("targets", "repeats", "candidates", "iterations", "seed")}
    asked |= {"samples": SAMPLES, "threads": 1, "physics_step_ms": steps_ms()}
    same = all(result.get(name, value) == value for name, value in asked.items())
    if not same and not args.again:
        raise ValueError(f"{args.out.name} was measured with other arguments; --again begins it anew")
    before = result.get("settings", {}) if same else {}
    taken = result.get("times", {}) if same and not args.again else {}
    result = {"what": __doc__.splitlines()[0], **asked, "paper": PAPER, "times": taken, "settings": before}
    with tempfile.TemporaryDirectory() as folder:
        if "errors" in args.parts:
            for setting in args.settings:
                for shape in args.shapes:
                    known = {} if args.again else before.get(setting, {}).get(shape, {})
                    if set(args.simulators) <= known.get("runs", {}).keys():
                        continue
                    before.setdefault(setting, {})[shape] = errors(setting, shape, args, Path(folder), known)
                    result |= {"summary": summary(before), "times": taken or times_of_plans(before)}
                    save(args.out, result)
        result["summary"] = summary(before)
        result["times"] = result["times"] or times_of_plans(before)
        if "times" in args.parts:
            for shape in args.shapes:
                result["times"][shape] = times(shape, args, Path(folder))
                save(args.out, result)
    save(args.out, result)
    print_tables(result)
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
