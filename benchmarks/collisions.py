"""Collisions: how fast they are generated, how well networks predict them, how well they adapt to surrogate reality.

- 100,000 collisions of the semicylinder at dt 0.25 ms on two threads, collisions per second;
- the packaged network, and the published one trained on the same data, on 5,000 unseen collisions of each shape;
- six settings of surrogate reality, three controls without a gap and three harder settings: ten samples
  to adapt, 100 to test, three seeds.

Rows of the last table: the training simulator with parameters searched by CMA-ES (200 evaluations on the ten samples);
identified, and identified and tuned in ten steps, as published; the packaged network identified with a prior; the
default fine-tuning; a network from scratch. Surrogate reality (surrogate_reality.py) runs as a process of its own, and
only its samples are read here. Sections that are in the json already are kept, unless --again.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from searched_mujoco import measured, searched

from nerd_gym.collision import CollisionModel
from nerd_gym.collision.models.finetune import Component, paper_finetune, paper_identify
from nerd_gym.collision.models.laws import StrikeLaw
from nerd_gym.collision.models.scratch import train_scratch
from nerd_gym.collision.models.surrogate import OutcomeNet, relative_error, share_within
from nerd_gym.collision.scenes.columns import COLUMNS, OUTCOME
from nerd_gym.collision.scenes.mjcf import TIMESTEP
from nerd_gym.collision.scenes.shapes import SHAPES
from nerd_gym.collision.scenes.simulate import CollisionSimulator
from nerd_gym.collision.training.dataset import CollisionPlan, generate
from nerd_gym.collision.training.evaluate import plot, unseen
from nerd_gym.collision.training.train import TrainSettings, train_net
from nerd_gym.utils.timing import save

HERE = Path(__file__).parent
RESULT = HERE / "results" / "collisions.json"
PICTURE = HERE.parent / "docs" / "pictures" / "collisions.png"
SETTINGS = ("A1", "A2", "B1", "B2", "C1", "C2")
CONTROLS = ("N1", "N2", "N3")
HARDER = ("H1", "H2", "H3")
ADAPT, TEST = 10, 100
# Table II of the paper, by shape, measured on a robot; its threshold is not known.
PAPER = {
    "MuJoCo, grid search": {"semicylinder": 0.64, "square": 0.50, "triangle": 0.49},
    "from scratch": {"semicylinder": 0.42, "square": 0.42, "triangle": 0.36},
    "CLASH": {"semicylinder": 0.76, "square": 0.55, "triangle": 0.54},
}
SECTIONS = ("generation", "accuracy", "adaptation")


@dataclass
class Args:
    """Measure collisions."""

    sections: tuple[str, ...] = SECTIONS
    """Which: generation, accuracy, adaptation."""
    shape: str = "semicylinder"
    """Of the block in surrogate reality."""
    seeds: int = 3
    """Draws of samples per setting."""
    data: Path = Path("out/collision")
    """Folder of datasets, which are made if they are not there."""
    again: bool = False
    """Measure settings that are in the json already."""
    out: Path = RESULT
    """Where to write the json."""


def generation() -> dict[str, Any]:
    """A dataset as the command makes it, in a folder that is thrown away."""
    plan, load = CollisionPlan("semicylinder", 100_000, seed=1), os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        generate(plan, Path(folder) / "collisions.h5", threads=2)
        seconds = time.perf_counter() - start
    return {
        "collisions": plan.collisions,
        "timestep": TIMESTEP,
        "threads": 2,
        "seconds": round(seconds, 1),
        "collisions_per_s": round(plan.collisions / seconds),
        "load_average_before": [round(value, 2) for value in load],
    }


def published_net(shape: str, data: Path) -> OutcomeNet:
    """The published recipe on the same data as the packaged network."""
    path = data / f"{shape}.h5"
    generate(CollisionPlan(shape), path)
    return train_net(path, shape, False, TrainSettings("plain"), data / f"{shape}-plain.ckpt")[0]


def accuracy(shape: str, data: Path) -> dict[str, Any]:
    """Errors on collisions that no training saw; also with strikes that begin between two time steps."""
    rows = unseen(shape, 5000, 500)
    pre, post = (torch.from_numpy(np.stack([rows[n] for n in names], -1)).float() for names in (COLUMNS, OUTCOME))
    nets = {
        "packaged": CollisionModel.packaged(shape).laws[0],
        "published recipe": StrikeLaw(published_net(shape, data)),
    }
    gap = np.random.default_rng(0).uniform(0, 1, len(pre)) * (pre[:, 0] * pre[:, 2].cos()).numpy() * TIMESTEP
    late = torch.from_numpy(CollisionSimulator(SHAPES[shape])(pre.double().numpy(), gap)).float()
    found: dict[str, Any] = {"collisions": len(pre)}
    curves = {}
    for name, law in nets.items():
        assert isinstance(law, StrikeLaw)
        with torch.no_grad():
            predicted = law.net(pre)
        error, between = (relative_error(predicted, true) for true in (post, late))
        curves[name] = (error, predicted, post, OUTCOME)
        found[name] = {
            "within": share_within(error),
            "median_error": float(error.median()),
            "within_if_touching_between_steps": share_within(between),
        }
    if shape == "semicylinder":
        plot(curves, PICTURE)
    return found


def adaptation(
    setting: str, shape: str, seed: int, model: CollisionModel, plain: StrikeLaw, simulator
) -> dict[str, Any]:
    """Shares within 10 % of each row on the test samples, and within 5 and 20 %."""
    pre, post = measured(setting, shape, seed, ADAPT + TEST)
    x, y, test, true = pre[:ADAPT], post[:ADAPT], pre[ADAPT:], post[ADAPT:]
    base = model.laws[0]
    assert isinstance(base, StrikeLaw)

    def by(component: Component):
        return lambda strikes: component.relative(strikes)[:, :3] * component.law.scale(strikes)[:, :3]

    start = time.perf_counter()
    adapted = model.finetune(x, y, seed=seed)
    seconds = time.perf_counter() - start
    paper = paper_identify(plain, x, y)
    rows = {
        "MuJoCo, searched": searched(simulator, base, x, y, seed),
        "identified (published)": by(paper),
        "identified and ten steps (published)": by(paper_finetune(paper, x, y)),
        "identified with a prior": model.identify(x, y, seed).predict,
        "adapted (ours)": adapted.predict,
        "from scratch": by(Component(train_scratch(base, x, y, seed), torch.zeros(1, 0))),
    }
    with torch.no_grad():
        shares = {name: share_within(relative_error(predict(test), true)) for name, predict in rows.items()}
    return {"within": shares, "adapt_seconds": round(seconds, 1), "adapted": adapted.facts["adapted"]}


def summary(runs: dict[str, list[dict[str, Any]]], limit: str) -> dict[str, dict[str, float]]:
    """By row and setting, the mean over seeds of the share within a limit."""

    def share(name: str, found: list[dict[str, Any]]) -> float:
        return round(float(np.mean([run["within"][name][limit] for run in found])), 4)

    names = next(iter(runs.values()))[0]["within"]
    return {name: {setting: share(name, found) for setting, found in runs.items()} for name in names}


def print_table(head: str, table: dict[str, dict[str, float]]) -> None:
    settings = list(next(iter(table.values())))
    print(f"{head:40s}" + "".join(f"{s:>7s}" for s in settings) + f"{'A1-C2':>8s}")
    for name, row in table.items():
        mean = np.mean([row[s] for s in SETTINGS if s in row])
        print(f"{name:40s}" + "".join(f"{row[s]:7.3f}" for s in settings) + f"{mean:8.3f}")


def main(args: Args) -> None:
    odd = [name for name in args.sections if name not in SECTIONS]
    if odd:
        raise ValueError(f"unknown section {odd[0]!r}; valid: {', '.join(SECTIONS)}")
    torch.set_num_threads(1)
    what = "collisions: generation, networks, surrogate reality"
    result: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {"what": what}
    result["paper"] = PAPER
    if "generation" in args.sections:
        result["generation"] = generation()
        print(result["generation"])
        save(args.out, result)
    if "accuracy" in args.sections:
        result["accuracy"] = {shape: accuracy(shape, args.data) for shape in SHAPES}
        for shape, rows in result["accuracy"].items():
            print(shape, {name: row["within"] for name, row in rows.items() if name != "collisions"})
        save(args.out, result)
    if "adaptation" in args.sections:
        model, simulator = CollisionModel.packaged(args.shape), CollisionSimulator(SHAPES[args.shape], 128)
        plain = StrikeLaw(published_net(args.shape, args.data))
        runs = {} if args.again else result.get("adaptation", {}).get(args.shape, {}).get("runs", {})
        for setting in (*SETTINGS, *CONTROLS, *HARDER):
            for seed in range(len(runs.setdefault(setting, [])), args.seeds):
                runs[setting].append(adaptation(setting, args.shape, seed, model, plain, simulator))
                print(setting, seed, {n: s["0.1"] for n, s in runs[setting][-1]["within"].items()}, flush=True)
                own = {"adapt": ADAPT, "test": TEST, "seeds": args.seeds, "runs": runs}
                result.setdefault("adaptation", {})[args.shape] = own
                save(args.out, result)
        for limit in ("0.05", "0.1"):
            table = summary(runs, limit)
            result["adaptation"][args.shape][f"within_{limit}"] = table
            print_table(f"within {float(limit):.0%}", table)
        save(args.out, result)
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
