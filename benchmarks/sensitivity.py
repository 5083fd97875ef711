"""How precisely a teacher must be given a state, for its next frame to be told, as results/sensitivity.json.

A frame of the teacher is repeated from a state that is off by a little. What then is unexplained of the change of
velocity is what a learned model leaves unexplained that knows the state no better.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor

from nerd_gym import RobotModel, make_backend
from nerd_gym.data.reader import Data, windows
from nerd_gym.dynamics.training.train import unexplained
from nerd_gym.utils.arguments import key_value
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "sensitivity.json"
OFF = {"joints (rad)": (1e-4, 1e-3, 3e-3), "velocities (m/s, rad/s)": (1e-3, 1e-2, 3e-2)}


@dataclass
class Args:
    """Repeat frames of the teacher from states that are slightly off."""

    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROBOT=FILE")]
    """Datasets of `nerd-gym generate`, of legged robots; their held-back frames are repeated."""
    frames: int = 8192
    """How many."""
    seed: int = 0
    """Of the frames and of what is added to them."""
    out: Path = RESULT
    """Where to write the json."""


def rows_of(name: str, path: Path, args: Args) -> list[dict[str, float | str]]:
    """Of one robot."""
    robot = RobotModel.named(name)
    data = Data.load(path, robot)
    generator = torch.Generator().manual_seed(args.seed)
    batch = windows(data.held, 1, args.frames, generator)
    options = json.loads(data.facts["backend_options"])
    physics = "reference" if options.get("reference") else "default"
    backend = make_backend(str(data.facts["backend"]), robot, args.frames, **options)
    ground, everyone = (batch["ground_point"], batch["ground_normal"]), torch.ones(args.frames, dtype=torch.bool)

    def change(q: Tensor, qd: Tensor) -> Tensor:
        backend.reset(everyone, q, qd, ground)
        backend.step(batch["force"][:, 0])
        return backend.qd - qd

    q, qd = batch["q"][:, 0], batch["qd"][:, 0]
    truth = change(q, qd)
    rows = []
    for what, sizes in OFF.items():
        for size in sizes:
            near, moving = q.clone(), qd.clone()
            if what.startswith("joints"):
                near[:, robot.joint_q] += size * torch.randn(args.frames, robot.nj, generator=generator)
            else:
                moving += size * torch.randn(qd.shape, generator=generator)
            parts = unexplained(robot, truth, change(near, moving) - truth)
            rows.append({"robot": name, "physics": physics, "off": what, "by": size, **parts})
            print(rows[-1], flush=True)
    backend.close()
    return rows


def main(args: Args) -> None:
    rows = [row for name, path in map(key_value, args.data) for row in rows_of(name, Path(str(path)), args)]
    about = {"frames": args.frames, "seed": args.seed}
    save(args.out, {"what": __doc__.splitlines()[0], **about, "rows": rows})
    print(f"written: {args.out.name}")


if __name__ == "__main__":
    main(tyro.cli(Args))
