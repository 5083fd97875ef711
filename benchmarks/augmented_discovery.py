"""Damping discovery: networks on both joints of a double pendulum find out by themselves that they need its rates.

The data are simulated: the engine itself with joint damping 0.5 and 0.3, of which the augmented engine knows nothing.
Each joint's network may read angles and rates of both joints, where both links point, velocities of the lower link, and
the time; those of the upper link are the shoulder's rate over again. A feed-forward network that predicts the next
rates is trained on as many samples and on more. Penalty and sizes were chosen with seeds from 10 on.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor, nn

from nerd_gym import RobotModel
from nerd_gym.augmented import AugmentedModel, Blueprint
from nerd_gym.augmented.training.discovery import Lasso, train_sparse
from nerd_gym.augmented.training.train import Settings, new_model
from nerd_gym.augmented.training.windows import Trajectories, cut, errors_of, rolled
from nerd_gym.dynamics.training.loop import Recipe, TrainingLoop
from nerd_gym.utils.timing import save

HERE = Path(__file__).parent
ROBOT = HERE / "robots" / "double_pendulum.xml"
DAMPING = (0.5, 0.3)
INPUTS = ["q/*", "qd/*", "up/*/x", "up/*/z", "velocity/lower/vx", "velocity/lower/vz", "velocity/lower/wy", "time"]
STEPS, FREE = 15, 7


@dataclass
class Args:
    """Discover damping."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Of data and networks."""
    lasso: float = 3e-3
    """Size of the penalty, beside a loss that is 1 at the start."""
    samples: tuple[int, ...] = (2_000, 20_000, 200_000)
    """Transitions that the feed-forward networks are trained on."""
    out: Path = HERE / "results" / "augmented_discovery.json"
    """Where to write the json."""


def simulated(robot: RobotModel, count: int, frames: int, seed: int) -> Trajectories:
    """Trajectories of the damped pendulum from random states."""
    generator = torch.Generator().manual_seed(seed)
    model = AugmentedModel(robot, values={"damping": torch.tensor(DAMPING)})
    q = torch.pi * (2 * torch.rand(count, 2, generator=generator).double() - 1)
    qd = torch.randn(count, 2, generator=generator).double()
    data = {"q": q[:, None].expand(-1, frames + 1, -1), "qd": qd[:, None].expand(-1, frames + 1, -1)}
    data |= {"force": q.new_zeros(count, frames, 2)}
    data |= {name: q.new_zeros(count, 3) for name in ("ground_point", "ground_normal")}
    windows = cut(data, frames)
    q, qd = rolled(model, windows)
    return windows | {"q": q, "qd": qd}


def rmse(robot: RobotModel, test: Trajectories, q: Tensor) -> float:
    """Over all frames and joints, rad."""
    return float(errors_of(robot, test, q)[:, 1:].square().mean().sqrt())


class FeedForward(nn.Module):
    """Change of the rates in a frame, from rates and the angles' sines and cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).double()

    def forward(self, q: Tensor, qd: Tensor) -> Tensor:
        return 0.3 * self.net(torch.cat([torch.sin(q), torch.cos(q), qd / 4], -1))


def feed_forward(robot: RobotModel, samples: int, test: Trajectories, seed: int, folder: Path) -> dict[str, Any]:
    """Trained on so many transitions."""
    frames = 200
    data = simulated(robot, samples // frames, frames, 1000 + seed)
    q, qd = (data[name].flatten(0, 1) for name in ("q", "qd"))
    ends = torch.arange(len(q)) % (frames + 1) == frames
    rows = (~ends).nonzero().squeeze(1)
    torch.manual_seed(seed)
    module = FeedForward()
    step = qd[rows + 1] - qd[rows]
    held = {name: value[:20, :101] for name, value in test.items() if name in ("q", "qd")}

    def sample(generator: torch.Generator, size: int) -> Tensor:
        return torch.randint(len(rows), (size,), generator=generator)

    def loss(pick: Tensor) -> Tensor:
        return (module(q[rows[pick]], qd[rows[pick]]) - step[pick]).square().mean() / step.square().mean()

    def validate() -> dict[str, float]:
        found = predicted(robot, module, held["q"][:, 0], held["qd"][:, 0], 100)
        return {"held": rmse(robot, held, found)}

    recipe = Recipe(steps=3000, batch=1024, optimiser="adamw", lr=3e-3, polish=500, seed=seed)
    path = folder / f"ff-{samples}-{seed}.checkpoint"
    TrainingLoop(module, sample, loss, validate, recipe, path, {}, f"{samples} samples").run()
    frames = test["q"].shape[1] - 1
    with torch.no_grad():
        found = predicted(robot, module, test["q"][:, 0], test["qd"][:, 0], frames)
    return {"samples": samples, "rmse": rmse(robot, test, found)}


def predicted(robot: RobotModel, module: FeedForward, q: Tensor, qd: Tensor, frames: int) -> Tensor:
    """q [M, frames + 1, 2] of rollouts."""
    found = [q]
    for _ in range(frames):
        before = qd
        qd = qd + module(q, qd)
        q = q + 0.5 * robot.frame_dt * (before + qd)
        found.append(q)
    return torch.stack(found, 1)


def one_seed(args: Args, robot: RobotModel, seed: int, folder: Path) -> dict[str, Any]:
    train, held = simulated(robot, 10, 200, 10 * seed), simulated(robot, 5, 200, 10 * seed + 1)
    test = simulated(robot, 20, 900, 10 * seed + 2)
    blueprint = Blueprint()
    for joint in robot.joint_names:
        blueprint.wire(f"tau/{joint}", INPUTS, hidden=(5, 5))
    model = new_model(robot, blueprint, cut(train, 1), seed=seed)
    settings = Settings(horizon=1, steps=STEPS, position=0.0, ridge=1e-9, held_frames=200, seed=seed)
    lasso = Lasso(args.lasso)
    told = train_sparse(model, train, held, settings, lasso, folder / f"lasso-{seed}.checkpoint", FREE).facts
    right = [[f"qd/{joint}"] for joint in robot.joint_names]
    plain, found = AugmentedModel(robot), rolled(model, test)[0]
    row = {"seed": seed, "offered": len(model.wires[0].inputs[0]), "surviving": told["surviving"]}
    row |= {"right": [list(one) for one in told["surviving"]] == right, "rmse": rmse(robot, test, found)}
    row |= {"rmse_plain": rmse(robot, test, rolled(plain, test)[0]), "samples": 2000}
    print(row, flush=True)
    row["feed_forward"] = [feed_forward(robot, samples, test, seed, folder) for samples in args.samples]
    print(row["feed_forward"], flush=True)
    return row


def main(args: Args) -> None:
    torch.set_num_threads(1)
    robot, rows = RobotModel.from_mjcf(ROBOT), []
    with tempfile.TemporaryDirectory() as folder:
        for seed in args.seeds:
            rows.append(one_seed(args, robot, seed, Path(folder)))
            about = {"what": __doc__.splitlines()[0], "damping": DAMPING, "inputs": INPUTS, "lasso": args.lasso}
            save(args.out, about | {"steps": STEPS, "of_which_without_penalty": FREE, "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
