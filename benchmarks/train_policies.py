"""Train the policies that the project ships, into policies/: the same command goes on with what was stopped.

Every task gets policies trained in its robot's learned model alone and as many twins trained in the model's teacher,
with the same config and steps: three seeds of robots with a fixed base and of Ant's run, one of the other legged ones.
Where seed 0 fails in the model itself, another that does not is shipped. Strike's routes are trained on `hybrid` and on
`mujoco`, by SAC.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tyro

ROOT = Path(__file__).parent.parent
BACKENDS = ("neural", "warp")
SAC = ("--lib", "sb3", "--algo", "sac", "--num-envs", "32")


@dataclass(frozen=True)
class Shipped:
    """A policy to train: file policies/FOLDER/NAME-BACKEND-seedN."""

    folder: str
    name: str
    env_id: str
    options: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    chosen: tuple[int, ...] = ()  # seeds that are shipped of `neural` instead, by what they earn in the model itself
    backends: tuple[str, ...] = BACKENDS
    words: tuple[str, ...] = ()  # of the command, in place of the library

    def seeds_of(self, backend: str) -> tuple[int, ...]:
        """The seeds that are shipped of a backend."""
        return self.chosen if self.chosen and backend == "neural" else self.seeds


SHIPPED = (
    Shipped("cartpole", "swingup", "NeRD/Cartpole-v0"),
    Shipped("pendulum_contact", "swingup", "NeRD/PendulumContact-v0"),
    Shipped("franka", "position", "NeRD/Franka-v0"),
    Shipped("franka", "torque", "NeRD/Franka-v0", ("control=torque",)),
    Shipped("ant", "run", "NeRD/Ant-v0"),
    Shipped("ant", "spin", "NeRD/Ant-v0", ("task=spin",), (0,)),
    Shipped("ant", "spin_track", "NeRD/Ant-v0", ("task=spin_track",), (0,), chosen=(1,)),
    Shipped("anymal", "forward", "NeRD/Anymal-v0", seeds=(0,), chosen=(1,)),
    Shipped("anymal", "side", "NeRD/Anymal-v0", ("task=side",), seeds=(0,)),
)
# Neither of its backends is `neural` or `warp`: strike_policies.py judges these.
ROUTE = Shipped("strike", "route", "NeRD/Strike-v0", ("task=route",), (0,), backends=("hybrid", "mujoco"), words=SAC)


@dataclass
class Args:
    """Train the shipped policies."""

    only: str = ""
    """Only files whose name contains this text, e.g. franka/torque."""
    jobs: int = 2
    """Runs at once, one thread each."""
    lib: str = "rl-games"
    """The library."""
    work: Path = Path("out/policies")
    """Folder of the runs."""
    out: Path = ROOT / "policies"
    """Where policies and their curves go."""


def run_words(shipped: Shipped, backend: str, seed: int, lib: str, folder: Path, extra: tuple[str, ...] = ()) -> list:
    """The words of `nerd-gym` that make a policy in a folder, with more options."""
    own = list(shipped.words) or ["--lib", lib]
    words = ["rl", "train", shipped.env_id, *own, "--backend", backend, "--seed", str(seed)]
    options = shipped.options + extra
    words += ["--option", *options] if options else []
    return [*words, "--threads", "1", "--out", str(folder)]


def train(shipped: Shipped, backend: str, seed: int, args: Args) -> str:
    """One run, in a process of its own; returns the name of its file."""
    name = f"{shipped.folder}/{shipped.name}-{backend}-seed{seed}"
    folder = args.work / name
    words = run_words(shipped, backend, seed, args.lib, folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".txt").open("w") as log:
        subprocess.run([sys.executable, "-m", "nerd_gym.cli", *words], stdout=log, stderr=log, check=True)
    (args.out / shipped.folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "policy.safetensors", args.out / f"{name}.safetensors")
    shutil.copy(folder / "curve.csv", args.out / f"{name}.csv")
    return name


def main(args: Args) -> None:
    runs = [
        (shipped, backend, seed)
        for shipped in (*SHIPPED, ROUTE)
        for backend in shipped.backends
        for seed in shipped.seeds_of(backend)
        if args.only in f"{shipped.folder}/{shipped.name}-{backend}-seed{seed}"
    ]
    if not runs:
        raise SystemExit(f"no shipped policy has {args.only!r} in its name")
    print(f"{len(runs)} runs, {args.jobs} at once; each shows its progress in {args.work}/*/*.txt", flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        for done, name in enumerate(pool.map(lambda run: train(*run, args), runs), 1):
            print(f"{done} of {len(runs)}: {name}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Args))
