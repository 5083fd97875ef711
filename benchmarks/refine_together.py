"""Let a robot's learned model and the policies that train in it grow together: the same command goes on.

A policy that trains in a model to the end finds where the model is too good to be true. Here the shipped policies of a
robot stop on the way, the teacher plays them where they have come to, the model is trained further on that, and they
go on in the better model. The last model is to be packaged; `train_policies.py` with the same --work then ends the runs
in it.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tyro
from train_policies import SHIPPED, run_words


@dataclass
class Args:
    """Refine a model with the policies that train in it."""

    robot: str
    """Whose policies: the name of their folder."""
    start: Path
    """The model that they begin in."""
    data: tuple[Path, ...]
    """What it was trained on."""
    also: tuple[Path, ...] = ()
    """Policies trained elsewhere that the teacher plays at every stop too."""
    stops: tuple[str, ...] = ("2M", "4M", "6M", "7.8M")
    """Env-steps after which the policies wait for a better model."""
    new_transitions: str = "1.5M"
    """Transitions that the teacher plays at a stop."""
    steps: int = 6000
    """Steps of the model's optimiser at a stop."""
    lr: float = 5e-3
    """Its largest learning rate."""
    newest: float = 0.2
    """The part of every batch that is drawn from what was played at this stop alone."""
    only: str = ""
    """Only policies whose name contains this text."""
    jobs: int = 2
    """Policies at once, one thread each."""
    lib: str = "rl-games"
    """The library."""
    work: Path = Path("out/policies")
    """Folder of the runs and models."""


def run(words: list[str], log: Path) -> None:
    """A command of nerd-gym, with what it prints in a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        subprocess.run([sys.executable, "-m", "nerd_gym.cli", *words], stdout=file, stderr=file, check=True)


def main(args: Args) -> None:
    policies = [
        (shipped, seed, f"{shipped.folder}/{shipped.name}-neural-seed{seed}")
        for shipped in SHIPPED
        for seed in shipped.seeds_of("neural")
        if shipped.folder == args.robot
    ]
    policies = [policy for policy in policies if args.only in policy[2]]
    if not policies:
        raise SystemExit(f"{args.robot} has no shipped policy that trains in its model; of: {args.only!r}")
    model, data = args.start, list(args.data)
    for number, stop in enumerate(args.stops, 1):

        def learn(policy, model=model, stop=stop) -> Path:
            shipped, seed, name = policy
            folder = args.work / name
            words = run_words(shipped, "neural", seed, args.lib, folder, extra=(f"model={model}",))
            run([*words, "--until", stop], folder.with_suffix(".txt"))
            return folder / "policy-so-far.safetensors"

        with ThreadPoolExecutor(args.jobs) as pool:
            files = [*pool.map(learn, policies), *args.also]
        print(f"{len(policies)} policies at {stop}", flush=True)
        out = args.work / f"{args.robot}-{number}.safetensors"
        if not out.exists():
            words = ["train", args.robot, "--data", *map(str, data), "--start", str(model), "--refine"]
            words += [
                *map(str, files),
                "--new-transitions",
                args.new_transitions,
                "--steps",
                str(args.steps),
                "--lr",
                str(args.lr),
            ]
            words += ["--newest", str(args.newest)]
            run([*words, "--out", str(out)], out.with_suffix(".txt"))
        data += sorted(args.work.glob(f"{args.robot}-{number}-*.h5"))
        model = out
        print(f"model {number} of {len(args.stops)}: {out}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Args))
