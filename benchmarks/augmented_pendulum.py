"""The measured double pendulum of IBM: identified, and with networks on its joint forces, on runs that were held back.

The data are measured (a camera at 400 Hz); they are not part of this project. Angles come from markers, rates from a
Savitzky-Golay filter over 21 frames. Runs 0 to 9 train, 10 to 12 decide what is kept, 13 to 15 are only tested. Every
window starts from the filtered state of its first frame and is rolled out; nothing of its later frames but the ten that
the filter saw is known. Its error is the mean over frames of the absolute error of a link's own angle.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from scipy.signal import savgol_filter
from torch import Tensor

from nerd_gym import RobotModel
from nerd_gym.augmented import AugmentedModel, Blueprint
from nerd_gym.augmented.training.train import Settings, Trainer, new_model
from nerd_gym.augmented.training.windows import Trajectories, cut, errors_of, rolled, rows_of
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

HERE = Path(__file__).parent
CHECKPOINTS = Path("out/augmented")  # a run that is stopped goes on from there
ROBOT = HERE / "robots" / "double_pendulum_ibm.xml"
RATE, SMOOTHED = 400, 21  # Hz, frames of the filter
TRAIN, HELD, TEST = range(10), range(10, 13), range(13, 16)
IDENTIFIED = ("mass", "com", "inertia", "offset", "gravity")
FRICTION = ("damping", "dry_friction")
HORIZON, WINDOWS, RIDGE = 40, 800, 1e-8
WIRES = Blueprint().wire("tau/*", ["qd/*", "up/*/x", "up/*/z"], hidden=(5, 5), activation="tanh")


@dataclass
class Args:
    """Identify and augment the measured double pendulum."""

    data: Path
    """Folder with run_NN.npz, `marker_xy` [frames, 6]."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of windows and networks."""
    steps: int = 4
    """Of least squares, per stage."""
    final: bool = False
    """Measure the test runs too; until then only those that decide."""
    out: Path = HERE / "results" / "augmented_pendulum.json"
    """Where to write the json."""


def read_run(path: Path) -> tuple[Tensor, Tensor]:
    """q and qd [T, 2]. Gravity points along the image's x."""
    pivot, joint, tip = np.split(np.load(path)["marker_xy"].astype(float), 3, axis=1)
    absolute = [np.unwrap(np.arctan2(d[:, 1], d[:, 0])) for d in (joint - pivot, tip - joint)]
    q = np.stack([absolute[0], absolute[1] - absolute[0]], 1)
    smooth = savgol_filter(q, SMOOTHED, 3, axis=0)
    rate = savgol_filter(q, SMOOTHED, 3, deriv=1, delta=1 / RATE, axis=0)
    return torch.as_tensor(smooth), torch.as_tensor(rate)


def windows(folder: Path, runs: range, frames: int, stride: int, count: int, seed: int) -> Trajectories:
    """Some windows of `frames` frames of these runs."""
    found = []
    for k in runs:
        q, qd = (x[None, SMOOTHED:-SMOOTHED] for x in read_run(folder / f"run_{k:02d}.npz"))
        run = {"q": q, "qd": qd, "force": q.new_zeros(1, q.shape[1] - 1, 2)}
        run |= {name: q.new_zeros(1, 3) for name in ("ground_point", "ground_normal")}
        found.append(cut(run, frames, stride))
    joined = {name: torch.cat([part[name] for part in found]) for name in found[0]}
    order = torch.randperm(len(joined["q"]), generator=torch.Generator().manual_seed(seed))
    return rows_of(joined, order[:count].sort().values)


def link_errors(model: AugmentedModel, test: Trajectories) -> Tensor:
    """[M, 2]: degrees, of the links' own angles."""
    q, _ = rolled(model, test)
    off = errors_of(model.robot, test, q)[:, 1:]
    return torch.rad2deg(torch.cumsum(off, -1).abs().mean(1))


def measure(model: AugmentedModel, folder: Path, runs: range) -> dict[str, Any]:
    """Mean and median over windows, at two horizons."""
    found = {}
    for frames in (100, 400):
        errors = link_errors(model, windows(folder, runs, frames, frames, 10**9, 0))
        found[str(frames)] = {
            "windows": len(errors),
            "mean": [round(float(x), 4) for x in errors.mean(0)],
            "median": [round(float(x), 4) for x in errors.median(0).values],
        }
    return found


def masks(robot: RobotModel) -> dict[str, Tensor]:
    """What of the parameters a plane motion can tell: com and joint along and across the links, gravity in the plane.

    The first link's joint stays where it is, and so does the first mass: only ratios of masses matter.
    """
    plane = torch.tensor([1.0, 0.0, 1.0])
    return {
        "mass": torch.tensor([0.0, 1.0]),
        "com": plane.repeat(2, 1),
        "offset": torch.stack([torch.zeros(3), plane]),
        "gravity": plane,
    }


def stage(
    robot: RobotModel, start: AugmentedModel | None, blueprint: Blueprint | None, names: tuple[str, ...],
    data: tuple[Trajectories, Trajectories], seed: int, args: Args, name: str,
) -> tuple[AugmentedModel, dict[str, Any]]:  # fmt: skip
    """Train one kind of model from another's values; beside networks only friction is trained."""
    model = new_model(robot, blueprint, data[0], identify=names, seed=seed)
    if start is not None:
        with torch.no_grad():
            for key, value in start.values.items():
                model.values[key].copy_(value)
        for key in IDENTIFIED if blueprint is not None else ():
            model.values[key].requires_grad_(False)
    settings = Settings(
        horizon=HORIZON,
        steps=args.steps,
        optimiser="gauss_newton",
        ridge=RIDGE,
        held_frames=100,
        seed=seed,
        identify=names,
    )
    trainer = Trainer(model, *data, settings, masks(robot))
    checkpoint = CHECKPOINTS / f"{args.out.stem}-{name}-{seed}.checkpoint"
    return model, trainer.run(checkpoint, {"stage": name})


def one_seed(args: Args, robot: RobotModel, seed: int) -> dict[str, Any]:
    train = windows(args.data, TRAIN, HORIZON, HORIZON, WINDOWS, seed)
    held = windows(args.data, HELD, 100, 100, 200, 0)
    runs = TEST if args.final else HELD
    rows: dict[str, Any] = {}

    def tell(name: str, model: AugmentedModel) -> None:
        rows[name] = measure(model, args.data, runs) | {"validation": measure(model, args.data, HELD)}
        told = "".join(f"  {n}: {rows[name][n]['mean']} {rows[name][n]['median']}" for n in ("100", "400"))
        print(f"seed {seed}  {name:40s}{told}", flush=True)

    data = train, held
    tell("uniform rods", AugmentedModel(robot))
    identified, _ = stage(robot, None, None, IDENTIFIED, data, seed, args, "identified")
    tell("identified, no friction", identified)
    friction, _ = stage(robot, identified, None, IDENTIFIED + FRICTION, data, seed, args, "friction")
    tell("identified, viscous and dry friction", friction)
    wired, _ = stage(robot, friction, WIRES, IDENTIFIED + FRICTION, data, seed, args, "network")
    tell("the same with networks", wired)
    return rows


def main(args: Args) -> None:
    torch.set_num_threads(1)
    robot = RobotModel.from_mjcf(ROBOT)
    found = []
    with progress(args.seeds, desc="seeds", unit="seed") as bar:
        for seed in bar:
            found.append(one_seed(args, robot, seed))
            about = {"what": __doc__.splitlines()[0], "runs": "test" if args.final else "validation"}
            about |= {"horizon": HORIZON, "windows": WINDOWS, "steps": args.steps}
            save(args.out, about | {"seeds": found})


if __name__ == "__main__":
    main(tyro.cli(Args))
