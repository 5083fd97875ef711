"""Env-steps per second of `augmented` with networks on torque and contact, over `warp`, in one interleaved run.

Ant, N = 512, random actions. The networks have the usual sizes and random weights small enough not to change the gait:
what they are does not change what they cost. In the torch engine the same model is as slow as any other wiring.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from nerd_gym import RobotModel
from nerd_gym.augmented import AugmentedModel, Blueprint
from nerd_gym.envs.throughput import env_subject
from nerd_gym.utils.timing import save, time_interleaved

HERE = Path(__file__).parent
ENV, ROBOT = "NeRD/Ant-v0", "ant"


@dataclass
class Args:
    """Measure the speed of networks inside the engine."""

    num_envs: int = 512
    """Robots in the batch."""
    repeats: int = 7
    """Turns of each."""
    seconds: float = 0.5
    """Of a turn."""
    out: Path = HERE / "results" / "augmented_speed.json"
    """Where to write the json."""


def wired() -> AugmentedModel:
    """Networks on every joint and on every contact, which give little."""
    torch.manual_seed(0)
    blueprint = Blueprint().wire("tau/*", ["q/@", "qd/@"])
    blueprint.wire(["normal/*", "friction/*"], ["depth/@", "along/@", "slip/@"], hidden=(8, 8))
    model = AugmentedModel(RobotModel.named(ROBOT), blueprint)
    with torch.no_grad():
        for net in model.scalar_nets:
            net.linears[-1].weight.normal_(std=0.01)
    return model


def main(args: Args) -> None:
    model, threads = wired(), 1
    cases = {
        "warp": ("warp", {}),
        "augmented, no model": ("augmented", {}),
        "augmented, fused kernel": ("augmented", {"model": model}),
        "augmented, torch engine": ("augmented", {"model": model, "fused": False}),
    }
    subjects = []
    for name, (backend, options) in cases.items():
        subject = env_subject(ENV, backend, args.num_envs, threads=threads, **options)
        subject.label = {"case": name}
        subjects.append(subject)
    rows = time_interleaved(subjects, args.repeats, args.seconds)
    base = rows[0]["env_steps_per_s"]
    for row in rows:
        row["over_warp"] = round(row["env_steps_per_s"] / base, 4)
        print(f"{row['case']:28s}{row['env_steps_per_s']:12,.0f} env-steps/s  {row['over_warp']:.3f} of warp")
    save(args.out, {"what": __doc__.splitlines()[0], "env": ENV, "threads": threads, "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
