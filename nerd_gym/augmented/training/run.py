"""What `nerd-gym augment` does: train a wiring, follow a lasso, or search over wirings; then save and draw the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nerd_gym.augmented.models.blueprint import Blueprint
from nerd_gym.augmented.models.file import save_augmented
from nerd_gym.augmented.models.model import CONTACTS, AugmentedModel
from nerd_gym.augmented.pictures import plot_path, plot_wiring
from nerd_gym.data.reader import Data
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.arguments import check_real

from .discovery import lasso_path, search_wirings, sparsest
from .train import Settings, Trainer, new_model, plain
from .windows import cut


def augment(
    robot: RobotModel,
    blueprints: Sequence[Blueprint],
    data: Sequence[Path],
    out: Path,
    settings: Settings,
    contact: str = "penalty",
    lasso: Sequence[float] = (),
    command: str = "",
) -> dict[str, Any]:
    """Train, write the model and its picture, print what was found; gives the facts.

    Several blueprints are candidates; penalties `lasso` go with one.
    """
    _check(robot, blueprints, settings, contact, lasso)
    told: dict[str, Any]
    loaded = Data.load(list(data), robot)
    train, held = ({name: value.double() for name, value in part.items()} for part in (loaded.train, loaded.held))
    facts: dict[str, Any] = {"command": command, "data_command": loaded.command(), "settings": plain(asdict(settings))}
    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = out.with_suffix(".checkpoint")
    if lasso:
        found = lasso_path(robot, blueprints[0], train, held, settings, lasso, checkpoint, contact)
        best = sparsest(found)
        rows = [one.facts for one in found]
        print(path_table(rows))
        plot_path(rows, out.with_suffix(".lasso.png"))
        model, told = best.model, best.facts | {"path": rows}
    elif len(blueprints) > 1:
        best, found = search_wirings(robot, blueprints, train, held, settings, checkpoint, contact)
        rows = [one.facts for one in found]
        print(wirings_table(rows))
        model, told = best.model, best.facts | {"candidates": rows}
    else:
        model = new_model(robot, blueprints[0], cut(train, 1), contact, settings.identify, settings.seed)
        told = Trainer(model, train, held, settings).run(checkpoint, facts)
    facts |= told
    save_augmented(out, model, facts)
    for path in (checkpoint, *checkpoint.parent.glob(f"{checkpoint.stem}.*.checkpoint")):
        path.unlink(missing_ok=True)
    error = told["held_error"]
    print(
        f"error over {error['frames']} held-back frames, in parts of the motion: {_change(error)}; kept {told['kept']}"
    )
    for name, value in model.values.items():
        print(f"{name}: {_rounded(value)}")
    written = [str(out)]
    if model.wires:
        plot_wiring(model.wires, out.with_suffix(".png"))
        written.append(str(out.with_suffix(".png")))
    print(f'written: {", ".join(written)}; use it with backend="augmented", model="{out}"')
    return facts


def _check(
    robot: RobotModel, blueprints: Sequence[Blueprint], settings: Settings, contact: str, lasso: Sequence[float]
) -> None:
    """Refuse wrong words before data are read."""
    if contact not in CONTACTS:
        raise ValueError(f"unknown contact {contact!r}; valid: {', '.join(CONTACTS)}")
    for size in lasso:
        check_real("lasso", size, 0, 1e6)
    wires = [wire for blueprint in blueprints for wire in blueprint.wires]
    if not wires and not settings.identify:
        raise ValueError("nothing to train: give a --wire, or parameters to --identify")
    if lasso and (not wires or len(blueprints) > 1):
        raise ValueError(f"--lasso takes one wiring; {len(blueprints) if wires else 0} were given")
    if contact == "impulses" and (settings.starts > 1 or settings.hops):
        raise ValueError("a global search cannot batch contact = 'impulses'; valid: penalty, hunt_crossley")
    for blueprint in blueprints:
        AugmentedModel(robot, blueprint, contact=contact)


def path_table(rows: Sequence[dict[str, Any]]) -> str:
    """What survives each penalty."""
    lines = [f"{'penalty':>9s}  {'held-back error':>15s}  signals that survive, by the norm of their columns"]
    for row in rows:
        wires = (", ".join(f"{n} {norm:.3g}" for n, norm in _by_size(one)) or "none" for one in row["surviving"])
        lines.append(f"{row['lasso']:9.3g}  {row['held_error']['end']:15.4g}  {'; '.join(wires)}")
    return "\n".join(lines)


def wirings_table(rows: Sequence[dict[str, Any]]) -> str:
    """How good each wiring is."""
    lines = [f"{'weights':>9s}  {'held-back error':>15s}  wiring"]
    lines += [f"{r['weights']:9d}  {r['held_error']['end']:15.4g}  {'; '.join(r['wires'])}" for r in rows]
    return "\n".join(lines)


def _by_size(columns: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(columns.items(), key=lambda item: -item[1])


def _change(error: dict[str, float]) -> str:
    return f"{error['start']:.4g} before, {error['end']:.4g} after"


def _rounded(value: torch.Tensor) -> Any:
    return [float(f"{x:.5g}") for x in value.detach().flatten().tolist()]
