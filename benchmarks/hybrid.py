"""`hybrid` of articulated robots beside its teachers: env-steps per second, and what shipped policies earn.

Speed: over `mujoco`, N = 512, one thread, random actions, one interleaved run. Policies: `nerd_gym.compare` of the
teacher and of `hybrid` taught by it, the same starts on both; a verdict each. Both are simulated, nothing is measured.
Run it on an otherwise idle machine.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from nerd_gym.compare import compare
from nerd_gym.envs.throughput import env_subject
from nerd_gym.policies.policy import Policy
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import Subject, save, time_interleaved

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "hybrid.json"
SPEED = ("NeRD/Ant-v0", "NeRD/Anymal-v0", "NeRD/PendulumContact-v0", "NeRD/Franka-v0", "NeRD/Cartpole-v0")
OF_MUJOCO = ("NeRD/Ant-v0", "NeRD/Anymal-v0")  # with packaged contacts of `mujoco`


@dataclass
class Args:
    """Measure `hybrid` beside its teachers."""

    num_envs: int = 512
    """Batch size of the speeds."""
    repeats: int = 5
    """Interleaved repeats; the median counts."""
    seconds: float = 1.0
    """Length of a repeat."""
    episodes: int = 256
    """Episodes of a policy on a backend."""
    policies: str = "*-warp-seed0.safetensors"
    """Which of the shipped policies of legged robots are played."""
    only: Literal["", "speed", "policies"] = ""
    """Measure one of the two; the other stays as the json has it."""
    out: Path = RESULT
    """Where to write the json."""


def speeds(args: Args) -> list[dict[str, Any]]:
    """Env-steps per second of `mujoco`, and of `hybrid` by teacher."""
    rows = []
    for env_id in SPEED:
        subjects: list[Subject] = []
        for backend, teacher in (("mujoco", None), ("hybrid", "warp"), ("hybrid", "mujoco")):
            if teacher == "mujoco" and env_id not in OF_MUJOCO:
                continue
            options = {} if teacher is None else {"teacher": teacher}
            subject = env_subject(env_id, backend, args.num_envs, 1, **options)
            subject.label = {"env": env_id, "backend": backend, "teacher": teacher}
            subjects.append(subject)
        found = time_interleaved(subjects, args.repeats, args.seconds)
        for row in found:
            row["over mujoco"] = round(row["env_steps_per_s"] / found[0]["env_steps_per_s"], 3)
            print("  ".join(f"{key} {value}" for key, value in row.items()))
        rows += found
    return rows


def returns(args: Args) -> list[dict[str, Any]]:
    """What policies earn on a teacher and on `hybrid` taught by it, with a verdict."""
    rows, paths = [], sorted(p for robot in ("ant", "anymal") for p in (ROOT / "policies" / robot).glob(args.policies))
    todo = [(path, teacher) for path in paths for teacher in ("warp", "mujoco")]
    for path, teacher in progress(todo, desc="policies", unit="comparison"):
        facts = Policy.load(path).facts
        options = {name: value for name, value in facts["options"].items() if name in ("task", "control")}
        found = compare(
            facts["env"], path, [teacher, f"hybrid:teacher={teacher}"], episodes=args.episodes, options=options
        )
        truth, hybrid = found.runs
        verdict = hybrid.verdict
        assert verdict is not None
        rows.append(
            {
                "policy": f"{path.parent.name}/{path.stem}",
                "teacher": teacher,
                "on teacher": truth.figures["return"].mean,
                "on hybrid": hybrid.figures["return"].mean,
                "difference": asdict(hybrid.differences["return"]),
                "verdict": asdict(verdict),
            }
        )
        print(f"{rows[-1]['policy']} {teacher}: {verdict.word}, {verdict.sentence}")
    return rows


def main(args: Args) -> None:
    """Print and write both tables."""
    torch.set_num_threads(1)
    old = json.loads(args.out.read_text()) if args.only and args.out.exists() else {}
    figures = {"num_envs": args.num_envs, "threads": 1, "episodes": args.episodes}
    figures["speed"] = old.get("speed", []) if args.only == "policies" else speeds(args)
    figures["policies"] = old.get("policies", []) if args.only == "speed" else returns(args)
    save(args.out, figures)
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
