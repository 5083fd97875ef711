"""Speed of the backend `neural` over `warp` and `mujoco`: env-steps per second, N = 512, one thread, one run.

python benchmarks/neural_speed.py                                  the packaged models
python benchmarks/neural_speed.py --model out/models/*.safetensors   and others, by the robot that their file names

Run it on an otherwise idle machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
import tyro

from nerd_gym.bench import env_subject, save, time_interleaved
from nerd_gym.dynamics.checkpoint import has_packaged_model
from nerd_gym.files import load_tensors
from nerd_gym.registration import PACKAGED

RESULT = Path(__file__).parent / "results" / "neural_speed.json"


@dataclass
class Args:
    """Measure learned models beside the simulators."""

    model: tuple[Path, ...] = ()
    """Models besides the packaged ones."""
    num_envs: int = 512
    """Batch size."""
    repeats: int = 7
    """Interleaved repeats; the median counts."""
    seconds: float = 1.0
    """Length of a repeat."""
    out: Path = RESULT
    """Where to write the json."""


def main(args: Args) -> None:
    torch.set_num_threads(1)
    facts = [(path, load_tensors(path)[1]) for path in args.model]
    rows = []
    for env_id, spec in PACKAGED.items():
        robot = spec.robot_name
        if not has_packaged_model(robot, "warp"):
            continue
        kinds: dict[str, dict] = {"structured (packaged)": {}}
        kinds |= {f["kind"]: {"model": path} for path, f in facts if f["robot"] == robot}
        backends = [("warp", "warp", {}), ("mujoco", "mujoco", {})]
        backends += [(kind, "neural", options) for kind, options in kinds.items()]
        subjects = {
            name: env_subject(env_id, backend, args.num_envs, threads=1, **options)
            for name, backend, options in backends
        }
        time_interleaved(list(subjects.values()), args.repeats, args.seconds)
        for kind in kinds:
            rates = subjects[kind].rates
            over = {
                peer: round(median(a / b for a, b in zip(rates, subjects[peer].rates, strict=True)), 3)
                for peer in ("warp", "mujoco")
            }
            rows.append({"env": env_id, "model": kind, "env_steps_per_s": round(median(rates)), "over": over})
    for row in rows:
        figures = "  ".join(f"{value:6.2f} x {peer}" for peer, value in row["over"].items())
        print(f"{row['env']:26s}{row['model']:24s}{row['env_steps_per_s']:10,d}/s  {figures}")
    what = f"env-steps/s of backend neural, N = {args.num_envs}, one thread, and ratios to its peers in the same run"
    save(args.out, {"what": what, "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
