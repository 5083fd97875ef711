"""Measured tosses of a cube: identified contact and body, and with a network on contact forces, on tosses held back.

The data are measured (cameras at 148 Hz); they are not part of this project. 32 tosses train, 32 decide what is kept,
all others are only tested. A window begins in contact and in motion and is rolled out for 16 frames from its recorded
state; nothing of its later frames is known. Its error is the mean over these frames of the distance between the bodies'
origins and of the angle between their orientations.

Recorded linear velocities are differences backwards, half a frame late: where no corner was near the floor in between,
half a frame of free fall is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from nerd_gym import RobotModel
from nerd_gym.augmented import AugmentedModel, Blueprint
from nerd_gym.augmented.training.train import Settings, Trainer, new_model
from nerd_gym.augmented.training.windows import Trajectories, cut, errors_of, rolled, rows_of
from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

HERE = Path(__file__).parent
CHECKPOINTS = Path("out/augmented")  # a run that is stopped goes on from there
ROBOT = HERE / "robots" / "cube.xml"
UNIT = 0.0524  # m, in which places and linear velocities are recorded
FRAMES, NEAR, MOVING, FALLING = 16, 2e-3, 0.15, -9.61  # m over the floor, m/s, and m/s^2 as measured
TRAIN, HELD = 32, 32  # tosses
WINDOWS, RIDGE = 480, 1e-4  # to train on
IDENTIFIED = ("com", "inertia", "candidate", "gravity")
WIRES = Blueprint().wire(["normal/*", "friction/*"], ["depth/@", "along/@", "slip/@"], hidden=(8,), activation="tanh")


@dataclass
class Args:
    """Identify and augment the measured cube."""

    data: Path
    """cube_tosses.npz."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of splits, windows and networks."""
    steps: int = 5
    """Of least squares, per stage."""
    final: bool = False
    """Measure the tosses that are only tested; until then those that decide."""
    out: Path = HERE / "results" / "augmented_cube.json"
    """Where to write the json."""


def read_tosses(path: Path, robot: RobotModel) -> list[Trajectories]:
    """Every toss as a trajectory of its own."""
    with np.load(path, allow_pickle=False) as file:
        rows, offsets = torch.as_tensor(file["data"]).double(), file["offsets"]
    finder, tosses = Articulated(robot), []
    for first, end in pairwise(offsets):
        toss = rows[first:end]
        q = torch.cat([UNIT * toss[:, :3], torch.nn.functional.normalize(toss[:, 3:7], dim=-1)], 1)
        qd = torch.cat([UNIT * toss[:, 7:10], toss[:, 10:13]], 1)
        low = depths(finder, q, qd).amax(1)
        free = (low < -NEAR) & (torch.cat([low[:1], low[:-1]]) < -NEAR)
        qd[:, 2] += torch.where(free, 0.5 * robot.frame_dt * FALLING, 0.0)
        one = {"q": q[None], "qd": qd[None], "force": q.new_zeros(1, len(q) - 1, 0)}
        one["ground_point"] = q.new_zeros(1, 3)
        tosses.append(one | {"ground_normal": torch.tensor([[0.0, 0.0, 1.0]]).double()})
    return tosses


def depths(engine: Articulated, q: Tensor, qd: Tensor) -> Tensor:
    """[T, 8] of the corners in the floor."""
    ground = q.new_zeros(len(q), 3), torch.tensor([0.0, 0.0, 1.0]).double().expand(len(q), 3)
    return engine.contact_points(q, engine.pose(q), qd, ground).depth


def windows(tosses: list[Trajectories], robot: RobotModel, stride: int) -> Trajectories:
    """Those that begin in contact and in motion."""
    found = []
    for toss in tosses:
        if toss["force"].shape[1] < FRAMES:
            continue
        parts = cut(toss, FRAMES, stride)
        q, qd = parts["q"][:, 0], parts["qd"][:, 0]
        fine = (depths(Articulated(robot), q, qd).amax(1) > -NEAR) & (qd[:, :3].norm(dim=-1) > MOVING)
        found.append(rows_of(parts, fine.nonzero()[:, 0]))
    return {name: torch.cat([part[name] for part in found]) for name in found[0]}


def measure(model: AugmentedModel, test: Trajectories) -> dict[str, Any]:
    """Mean and median over windows, mm and degrees."""
    q, _ = rolled(model, test)
    off = errors_of(model.robot, test, q)[:, 1:]
    place, angle = 1e3 * off[..., :3].norm(dim=-1).mean(1), torch.rad2deg(off[..., 3:6].norm(dim=-1)).mean(1)
    return {
        "windows": len(place),
        "mm": [round(float(x), 3) for x in (place.mean(), place.median())],
        "degrees": [round(float(x), 3) for x in (angle.mean(), angle.median())],
    }


def stage(
    robot: RobotModel, start: AugmentedModel | None, blueprint: Blueprint | None, contact: str,
    data: tuple[Trajectories, Trajectories], seed: int, args: Args, name: str,
) -> tuple[AugmentedModel, dict[str, Any]]:  # fmt: skip
    """Train one kind of model from another's values; beside a network only the contact law's are trained."""
    model = new_model(robot, blueprint, data[0], contact, IDENTIFIED, seed)
    if start is not None:
        with torch.no_grad():
            for key, value in start.values.items():
                model.values[key].copy_(value)
            if start.contact_values is not None and model.contact_values is not None:
                model.contact_values.copy_(start.contact_values)
        for value in model.values.values() if blueprint is not None else ():
            value.requires_grad_(False)
    settings = Settings(
        horizon=FRAMES,
        steps=args.steps,
        optimiser="gauss_newton",
        velocity=0.0,
        ridge=RIDGE,
        held_frames=FRAMES,
        seed=seed,
        identify=IDENTIFIED,
    )
    trainer = Trainer(model, *data, settings)
    return model, trainer.run(CHECKPOINTS / f"{args.out.stem}-{name}-{seed}.checkpoint", {"stage": name})


def one_seed(args: Args, robot: RobotModel, tosses: list[Trajectories], seed: int) -> dict[str, Any]:
    order = torch.randperm(len(tosses), generator=torch.Generator().manual_seed(seed)).tolist()
    parts = [order[:TRAIN], order[TRAIN : TRAIN + HELD], order[TRAIN + HELD :]]
    train, held, rest = ([tosses[k] for k in part] for part in parts)
    many = windows(train, robot, 1)
    pick = torch.randperm(len(many["q"]), generator=torch.Generator().manual_seed(seed))[:WINDOWS]
    data = rows_of(many, pick.sort().values), windows(held, robot, 4)
    test = windows(rest, robot, FRAMES) if args.final else data[1]
    rows = {"published": measure(AugmentedModel(robot, contact="hunt_crossley"), test)}
    identified, told = stage(robot, None, None, "hunt_crossley", data, seed, args, "identified")
    rows["identified"] = measure(identified, test) | {"validation": measure(identified, data[1]), "kept": told["kept"]}
    wired, told = stage(robot, identified, WIRES, "hunt_crossley", data, seed, args, "network")
    rows["with a network on contacts"] = measure(wired, test) | {
        "validation": measure(wired, data[1]),
        "kept": told["kept"],
    }
    return {"seed": seed, "rows": rows}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    robot = RobotModel.from_mjcf(ROBOT)
    tosses, found = read_tosses(args.data, robot), []
    with progress(args.seeds, desc="seeds", unit="seed") as bar:
        for seed in bar:
            found.append(one_seed(args, robot, tosses, seed))
            for name, row in found[-1]["rows"].items():
                print(f"seed {seed}  {name:32s} {row['mm']} mm {row['degrees']} degrees", flush=True)
            about = {"what": __doc__.splitlines()[0], "windows_of": "test" if args.final else "validation"}
            about |= {"train": TRAIN, "held": HELD, "frames": FRAMES, "windows": WINDOWS, "steps": args.steps}
            save(args.out, about | {"seeds": found})


if __name__ == "__main__":
    main(tyro.cli(Args))
