"""A substep of `warp`, contacts and limits included, over Pinocchio's articulated-body algorithm alone.

Pinocchio's batched `abaInParallel` (package `pin`) computes one acceleration per robot of the same model on one thread;
`warp` computes that, contacts, limits and the integration. Both are taken turn by turn in one run.

Run it on an otherwise idle machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

from nerd_gym import RobotModel, make_backend
from nerd_gym.backends import backends_for
from nerd_gym.registration import PACKAGED
from nerd_gym.utils.optional import require
from nerd_gym.utils.timing import Subject, save, time_interleaved

RESULT = Path(__file__).parent / "results" / "engine_speed.json"


def warp_frames(robot: RobotModel, num_envs: int) -> Subject:
    """`backend.step` from states of random motion on the ground, set back every ten frames."""
    backend = make_backend("warp", robot, num_envs, threads=1)
    generator = torch.Generator().manual_seed(0)
    limit = torch.as_tensor(robot.force_limit, dtype=torch.float32)
    forces = [0.1 * limit * torch.randn(num_envs, robot.nj, generator=generator) for _ in range(10)]
    for force in forces:
        backend.step(force)
    start, count = backend.snapshot(), [0]

    def step() -> None:
        if count[0] % 10 == 0:
            backend.restore(start)
        backend.step(forces[count[0] % 10])
        count[0] += 1

    return Subject({"robot": robot.name, "engine": "warp"}, step, num_envs, robot.substeps, torch_threads=1)


def pinocchio_accelerations(robot: RobotModel, num_envs: int) -> Subject:
    """One articulated-body pass for every robot, without contacts."""
    pin = require("pinocchio", extra="bench")
    model = pin.buildModelFromMJCF(str(robot.path))
    if model.nv != robot.nv:
        raise ValueError(f"{robot.name}: Pinocchio has {model.nv} degrees of freedom, MuJoCo {robot.nv}")
    pool = pin.ModelPool(model, 1)
    rng = np.random.default_rng(0)
    q = np.stack([pin.integrate(model, pin.neutral(model), rng.normal(size=model.nv)) for _ in range(num_envs)], 1)
    v, tau = (np.asfortranarray(rng.normal(size=(model.nv, num_envs))) for _ in range(2))
    q, out = np.asfortranarray(q), np.zeros((model.nv, num_envs), order="F")

    def step() -> None:
        pin.abaInParallel(1, pool, q, v, tau, out)

    step()
    return Subject({"robot": robot.name, "engine": "pinocchio abaInParallel"}, step, num_envs, 1)


@dataclass
class Args:
    """Measure a substep of `warp` over Pinocchio's ABA."""

    num_envs: int = 512
    """Robots."""
    repeats: int = 7
    """Interleaved repeats; the median of the ratios counts."""
    seconds: float = 0.5
    """Length of a repeat."""
    out: Path = RESULT
    """Where to write the json."""


def main(args: Args) -> None:
    """Print and write a row per robot."""
    robots = [spec.robot({}) for spec in PACKAGED.values() if "warp" in backends_for(spec.robot({}))]
    subjects = [make(robot, args.num_envs) for robot in robots for make in (warp_frames, pinocchio_accelerations)]
    time_interleaved(subjects, args.repeats, args.seconds)
    rows = []
    for robot, ours, theirs in zip(robots, subjects[::2], subjects[1::2], strict=True):
        substep = [1e6 / (rate * robot.substeps) for rate in ours.rates]
        aba = [1e6 / rate for rate in theirs.rates]
        ratios = [a / b for a, b in zip(substep, aba, strict=True)]
        row = {"robot": robot.name, "warp substep (us)": substep, "ABA (us)": aba, "ratio": ratios}
        rows.append(
            {key: value if isinstance(value, str) else round(float(np.median(value)), 3) for key, value in row.items()}
        )
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()))
    save(args.out, {"num_envs": args.num_envs, "threads": 1, "rows": rows})


if __name__ == "__main__":
    main(tyro.cli(Args))
