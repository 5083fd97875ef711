"""Link lengths of a double pendulum, 3 m and 4 m, from simulated motion: single descents against basin hopping.

The data are simulated: 4 s of the engine's own motion of two uniform rods from a random state. A descent from random
lengths may end in another minimum, because a rod of the wrong length is soon half a swing behind. Every run of basin
hopping has its own data, starts and hops; it knows the lengths' bounds and stops where the loss is as good as none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import torch
import tyro
from torch import Tensor

from nerd_gym import RobotModel
from nerd_gym.augmented.pictures import plot_landscape
from nerd_gym.augmented.training.search import Bounds, Loss, basin_hopping, landscape, minimise, population_search
from nerd_gym.physics.torch.engine import Articulated, read_parameters
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

HERE = Path(__file__).parent
ROBOT = HERE / "robots" / "double_pendulum.xml"
PICTURE = HERE.parent / "docs" / "pictures" / "link-lengths.png"
TRUE, LEAST, MOST = (3.0, 4.0), 0.8, 5.3  # m
STEPS, DT = 100, 0.04
CLOSE, TARGET = 0.01, 1e-6  # m; mean squared error in rad^2 at which a search stops
THIN = 0.001  # kg m^2 about a rod's own axis


@dataclass
class Args:
    """Find link lengths."""

    runs: int = 20
    """Of basin hopping, and of CMA-ES."""
    starts: int = 8
    """Single descents beside a run."""
    chains: int = 1
    """Of basin hopping, from the first of these starts on."""
    hops: int = 20
    """Of a run at most."""
    iterations: int = 30
    """Of L-BFGS in a descent."""
    trajectories: int = 1
    """Of a run's data."""
    seed: int = 0
    """Of the first run."""
    out: Path = HERE / "results" / "augmented_link_lengths.json"
    """Where to write the json."""
    picture: Path = PICTURE
    """Where to draw the loss."""


def pendulum(engine: Articulated, lengths: Tensor) -> Articulated:
    """With uniform rods of lengths [B, 2] and 1 kg."""
    p, zero = engine.parameters, torch.zeros_like(lengths)
    down = torch.stack([zero, zero, -lengths], -1)  # [B, 2, 3]
    offset = torch.stack([p.offset[0].expand(len(lengths), 3), down[:, 0]], 1)
    across = lengths.square() / 12 * p.mass
    inertia = torch.diag_embed(torch.stack([across, across, torch.full_like(across, THIN)], -1))
    return engine.but(com=0.5 * down, offset=offset, inertia=inertia)


def rolled(engine: Articulated, q: Tensor, qd: Tensor) -> Tensor:
    """[B, STEPS, 2]."""
    found, force = [], torch.zeros_like(q)
    for _ in range(STEPS):
        q, qd = engine.substep(q, qd, force, DT)
        found.append(q)
    return torch.stack(found, 1)


def loss_of(engine: Articulated, trajectories: int, seed: int) -> Loss:
    """Mean squared error of the angles, of lengths [S, 2]."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.pi * (2 * torch.rand(trajectories, 2, generator=generator).double() - 1)
    qd = torch.randn(trajectories, 2, generator=generator).double()
    with torch.no_grad():
        true = rolled(pendulum(engine, torch.tensor(TRUE).double().expand(trajectories, 2)), q, qd)

    def loss(lengths: Tensor) -> Tensor:
        count = len(lengths)
        every = lengths.repeat_interleave(trajectories, 0)
        found = rolled(pendulum(engine, every), q.repeat(count, 1), qd.repeat(count, 1))
        return (found - true.repeat(count, 1, 1)).square().mean((1, 2)).view(count, trajectories).mean(1)

    return loss


def off(lengths: Tensor) -> Tensor:
    """[S], the larger error of both, m."""
    return (lengths - torch.tensor(TRUE).double()).abs().amax(-1)


def one_run(engine: Articulated, bounds: Bounds, seed: int, args: Args) -> dict[str, Any]:
    loss = loss_of(engine, args.trajectories, seed)
    first = bounds.draw(args.starts, torch.Generator().manual_seed(1000 + seed))
    begin = process_time()
    single, _, count = minimise(loss, first, args.iterations, bounds)
    single_seconds, begin = process_time() - begin, process_time()
    hopped = basin_hopping(
        loss, bounds, args.chains, args.hops, args.iterations, target=TARGET, seed=seed, first=first[: args.chains]
    )
    hopped_seconds, begin = process_time() - begin, process_time()
    population = population_search(loss, bounds, 16, 80, TARGET, seed)
    return {
        "seed": seed,
        "single": {"off": [round(x, 6) for x in off(single).tolist()], "evaluations": count, "cpu_s": single_seconds},
        "basin_hopping": {
            "lengths": hopped.x.tolist(),
            "off": float(off(hopped.x)),
            "hops": len(hopped.history) - 1,
            "evaluations": hopped.evaluations,
            "cpu_s": hopped_seconds,
        },
        "cma_es": {
            "lengths": population.x.tolist(),
            "off": float(off(population.x)),
            "evaluations": population.evaluations,
            "cpu_s": process_time() - begin,
        },
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of what was found."""
    single = [x for row in rows for x in row["single"]["off"]]
    found = {"single": {"found": sum(x <= CLOSE for x in single), "of": len(single)}}
    for name in ("basin_hopping", "cma_es"):
        found[name] = {"found": sum(row[name]["off"] <= CLOSE for row in rows), "of": len(rows)}
    return found


def main(args: Args) -> None:
    torch.set_num_threads(1)
    robot = RobotModel.from_mjcf(ROBOT)
    engine = Articulated(robot, read_parameters(robot))
    bounds = Bounds(torch.full((2,), LEAST).double(), torch.full((2,), MOST).double())
    rows = []
    with progress(range(args.runs), desc="runs", unit="run") as bar:
        for k in bar:
            rows.append(one_run(engine, bounds, args.seed + k, args))
            about = {"what": __doc__.splitlines()[0], "true": TRUE, "bounds": [LEAST, MOST], "close": CLOSE}
            about |= {
                "steps": STEPS,
                "dt": DT,
                "iterations": args.iterations,
                "starts": args.starts,
                "chains": args.chains,
            }
            save(args.out, about | {"summary": summary(rows), "rows": rows})
    grid = torch.linspace(LEAST, MOST, 61).double()
    loss = loss_of(engine, args.trajectories, args.seed)
    values = torch.cat([landscape(loss, grid, y[None]) for y in grid])
    first = bounds.draw(args.starts, torch.Generator().manual_seed(1000 + args.seed))
    ends, _, _ = minimise(loss, first, args.iterations, bounds)
    names = ("length of the upper link, m", "length of the lower link, m")
    plot_landscape(grid.numpy(), grid.numpy(), values.numpy(), args.picture, names, ends.numpy())
    print(summary(rows))
    print(f"written: {args.out}, {args.picture}")


if __name__ == "__main__":
    main(tyro.cli(Args))
