"""Swimmers in four media: drag on their links, learned from MuJoCo's motion, beside a recurrent network.

The data are simulated: MuJoCo's own model of drag in a medium, of which the augmented engine knows nothing. One network
for all links reads a link's velocity in its own axes and gives the force and moment on it. It is trained on ten
trajectories of 200 frames from rest under random torques, a frame at a time, and rolled out over 900 frames of twenty
unseen ones. An LSTM that predicts the next rates is trained on the same trajectories. Both are chosen by rollouts of
five others.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
import tyro
from torch import Tensor, nn

from nerd_gym import RobotModel
from nerd_gym.augmented import AugmentedModel, Blueprint
from nerd_gym.augmented.training.train import Settings, Trainer, new_model
from nerd_gym.augmented.training.windows import Trajectories, errors_of, rolled
from nerd_gym.dynamics.training.loop import Recipe, TrainingLoop
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

HERE = Path(__file__).parent
# Density (kg/m^3) and viscosity (Pa s).
MEDIA = {
    "vacuum": (0.0, 0.0),
    "air": (1.184, 0.00001849),
    "water, 25 degrees": (997.0, 0.00089),
    "water, 5 degrees": (1000.0, 0.001518),
}
TORQUE, TRAIN_FRAMES, TEST_FRAMES = 20.0, 200, 900  # N m, and frames
SPEED = 0.5  # m/s across a link, at which media are ranked
WIRE = (["drag/*/fx", "drag/*/fy", "drag/*/mz"], ["velocity/@/vx", "velocity/@/vy", "velocity/@/wz"])
HIDDEN, UNITS = (32, 32), 17  # of the networks inside the engine, and of the LSTM


@dataclass
class Args:
    """Learn drag."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Of data and networks."""
    joints: tuple[int, ...] = (1, 5)
    """Of swimmers; one joint has two links."""
    media: tuple[str, ...] = tuple(MEDIA)
    """Which; the LSTM is trained in water of 25 degrees."""
    steps: int = 60
    """Of 20 iterations of L-BFGS each."""
    lstm_steps: int = 3000
    """Of AdamW."""
    out: Path = HERE / "results" / "augmented_swimmer.json"
    """Where to write the json."""


def mjcf(joints: int) -> str:
    """A chain of capsules in a plane."""
    link = '<geom type="capsule" fromto="0 0 0 -1 0 0" size="0.1" density="1000" contype="0" conaffinity="0"/>'
    inner = ""
    for k in range(joints, 0, -1):
        joint = f'<joint name="joint{k}" type="hinge" axis="0 0 1"/>'
        inner = f'<body name="link{k}" pos="-1 0 0">{joint}{link}{inner}</body>'
    root = '<joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>'
    root += '<joint name="turn" type="hinge" axis="0 0 1"/>'
    return f"""<mujoco model="swimmer{joints}">
  <option timestep="0.005" gravity="0 0 0"/>
  <custom><numeric name="substeps" data="2"/></custom>
  <worldbody><body name="head" pos="0 0 1">{root}{link}{inner}</body></worldbody>
</mujoco>"""


def simulated(robot: RobotModel, medium: str, count: int, frames: int, seed: int) -> Trajectories:
    """MuJoCo's motion from rest under torques that change every 25 frames."""
    m = robot.mj_model.__copy__()
    m.opt.density, m.opt.viscosity = MEDIA[medium]
    rng, data = np.random.default_rng(seed), mujoco.MjData(m)
    force = np.zeros((count, frames, robot.nj))
    force[..., 3:] = TORQUE * rng.uniform(-1, 1, (count, -(-frames // 25), robot.nj - 3)).repeat(25, 1)[:, :frames]
    q, qd = np.zeros((count, frames + 1, robot.nq)), np.zeros((count, frames + 1, robot.nv))
    for row in range(count):
        mujoco.mj_resetData(m, data)
        data.qpos[3:] = rng.uniform(-0.5, 0.5, robot.nj - 3)
        q[row, 0] = data.qpos
        for k in range(frames):
            data.qfrc_applied[:] = force[row, k]
            mujoco.mj_step(m, data, robot.substeps)
            q[row, k + 1], qd[row, k + 1] = data.qpos, data.qvel
    arrays = {name: torch.as_tensor(x) for name, x in (("q", q), ("qd", qd), ("force", force))}
    arrays |= {name: torch.zeros(count, 3).double() for name in ("ground_point", "ground_normal")}
    return arrays | {"start": torch.zeros(count, dtype=torch.long)}


def rmse(robot: RobotModel, test: Trajectories, q: Tensor) -> float:
    """Over frames and coordinates, m and rad alike."""
    return float(errors_of(robot, test, q)[:, 1:].square().mean().sqrt())


class Recurrent(nn.Module):
    """Change of the rates in a frame, from rates, torques, and where the head and the joints point."""

    def __init__(self, robot: RobotModel, train: Trajectories):
        super().__init__()
        n = robot.nv
        self.cell = nn.LSTM(n + (n - 3) + 2 + (n - 3), UNITS, batch_first=True).double()
        self.head = nn.Linear(UNITS, n).double()
        step = train["qd"].diff(dim=1)
        self.register_buffer("rate", train["qd"].std((0, 1)))
        self.register_buffer("size", step.std((0, 1)))

    def forward(self, q: Tensor, qd: Tensor, force: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """[B, T, ...] each."""
        turn = q[..., 2:3]
        x = [qd / self.rate, force[..., 3:] / TORQUE, torch.sin(turn), torch.cos(turn), q[..., 3:]]
        out, state = self.cell(torch.cat(x, -1), state)
        return self.size * self.head(out), state

    @torch.no_grad()
    def rolled(self, test: Trajectories) -> Tensor:
        """q [M, T+1, nq] from the first states on."""
        q, qd, state, dt = test["q"][:, :1], test["qd"][:, :1], None, 0.01
        found = [q]
        for k in range(test["force"].shape[1]):
            change, state = self(q, qd, test["force"][:, k : k + 1], state)
            qd = qd + change
            q = q + dt * qd
            found.append(q)
        return torch.cat(found, 1)


def recurrent(robot: RobotModel, train: Trajectories, held: Trajectories, seed: int, steps: int, folder: Path):
    """Trained on whole trajectories."""
    torch.manual_seed(seed)
    module = Recurrent(robot, train)
    true = train["qd"].diff(dim=1) / module.size

    def loss(_: Any) -> Tensor:
        change, _ = module(train["q"][:, :-1], train["qd"][:, :-1], train["force"])
        return (change / module.size - true).square().mean()

    recipe = Recipe(steps=steps, batch=1, optimiser="adamw", lr=3e-3, seed=seed, validate=20)
    TrainingLoop(
        module,
        lambda *_: None,
        loss,
        lambda: {"held": rmse(robot, held, module.rolled(held))},
        recipe,
        folder / f"lstm-{seed}.checkpoint",
        {},
        "lstm",
    ).run()
    (folder / f"lstm-{seed}.checkpoint").unlink()
    return module


def drag_at(model: AugmentedModel) -> float:
    """Force against a link that moves sideways at SPEED, N."""
    x = torch.tensor([[0.0, SPEED, 0.0]]).double()
    with torch.no_grad():
        return -float(model.scalar_nets[0](x)[0, 1] - model.scalar_nets[0](0 * x)[0, 1])


def one(robot: RobotModel, medium: str, seed: int, args: Args, folder: Path) -> dict[str, Any]:
    train = simulated(robot, medium, 10, TRAIN_FRAMES, 100 * seed)
    held = simulated(robot, medium, 5, TRAIN_FRAMES, 100 * seed + 1)
    test = simulated(robot, medium, 20, TEST_FRAMES, 100 * seed + 2)
    model = new_model(robot, Blueprint().wire(*WIRE, hidden=HIDDEN, activation="silu"), train, seed=seed)
    settings = Settings(steps=args.steps, position=0.0, ridge=1e-10, held_frames=TRAIN_FRAMES, seed=seed)
    told = Trainer(model, train, held, settings).run(folder / f"drag-{seed}.checkpoint", {})
    (folder / f"drag-{seed}.checkpoint").unlink()
    row: dict[str, Any] = {"joints": robot.nj - 3, "medium": medium, "seed": seed, "kept": told["kept"]}
    row["weights"] = sum(p.numel() for p in model.networks.parameters())
    row["rmse"] = rmse(robot, test, rolled(model, test)[0])
    row["rmse_plain"] = rmse(robot, test, rolled(AugmentedModel(robot), test)[0])
    row["drag_N"] = drag_at(model)
    if medium.startswith("water, 25"):
        other = recurrent(robot, train, held, seed, args.lstm_steps, folder)
        row["lstm"] = {
            "weights": sum(p.numel() for p in other.parameters()),
            "rmse": rmse(robot, test, other.rolled(test)),
        }
    print(row, flush=True)
    return row


def main(args: Args) -> None:
    torch.set_num_threads(1)
    odd = [name for name in args.media if name not in MEDIA]
    if odd:
        raise ValueError(f"unknown medium {odd[0]!r}; valid: {', '.join(MEDIA)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cases = [(j, medium, seed) for j in args.joints for medium in args.media for seed in args.seeds]
        with progress(cases, desc="swimmers", unit="case") as bar:
            for joints, medium, seed in bar:
                path = Path(folder) / f"swimmer{joints}.xml"
                path.write_text(mjcf(joints))
                rows.append(one(RobotModel.from_mjcf(path), medium, seed, args, Path(folder)))
                about = {"what": __doc__.splitlines()[0], "media": MEDIA, "hidden": HIDDEN, "steps": args.steps}
                save(args.out, about | {"rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
