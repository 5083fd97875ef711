"""Collision models on disk: safetensors with their facts as json in the metadata. Loading runs no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.collision.scenes.columns import ranges
from nerd_gym.utils.files import check_facts, check_numbers, load_tensors, save_tensors, strip_prefix

from .finetune import Component
from .laws import ImpactLaw, StrikeLaw
from .model import CollisionModel
from .residual import ResidualProcess
from .rigid import RigidLaw
from .scratch import ScratchLaw
from .surrogate import NetConfig, OutcomeNet

FORMAT = 1
KIND = "collision"
NEEDED = {"kind": (str,), "format": (int,), "law": (str,), "nets": (dict,), "components": (list,)}
LAWS = ("strike", "rigid", "rigid_pair")
MOST_MEMBERS, MOST_COMPONENTS = 256, 8
WEIGHT_TOLERANCE = 1e-3  # of the sum of weights, which is one
BEYOND = 1e-3  # relative: by how much rounding may carry a parameter beyond its limits


def save_model(path: Path, model: CollisionModel) -> None:
    """Write a model, whole or not at all."""
    first = model.laws[0]
    tensors: dict[str, Tensor] = {}
    nets: dict[str, Any] = {}
    for law in model.laws:
        if isinstance(law, StrikeLaw):
            name = "wide" if law.net.config.wide else "base"
            nets[name] = law.net.config.as_dict()
            tensors |= {f"nets.{name}.{key}": value for key, value in law.net.state_dict().items()}
    components = []
    for k, component in enumerate(model.components):
        law, prefix = component.law, f"components.{k}."
        own = not any(law is known for known in model.laws)  # its weights are not those of a law above
        if own:
            tensors |= {f"{prefix}law.{key}": value for key, value in law.state_dict().items()}
        tensors[f"{prefix}values"] = component.values
        if component.process is not None:
            names = ("samples", "dual", "grid")
            tensors |= {f"{prefix}process.{name}": getattr(component.process, name) for name in names}
        components.append({"law": law.kind, "own": own, "weight": component.weight})
    kind = "strike" if isinstance(first, StrikeLaw) else ("rigid_pair" if first.columns[-1].endswith("_2") else "rigid")
    facts = {"kind": KIND, "format": FORMAT, "law": kind, "nets": nets, "components": components}
    save_tensors(path, {name: value.detach().clone() for name, value in tensors.items()}, model.facts | facts)


def load_model(path: Path, shape: str | None = None) -> CollisionModel:
    """A model, if it was trained for this shape (None: any)."""
    if not path.is_file():
        raise FileNotFoundError(f"no collision model at {path}")
    tensors, facts = load_tensors(path)
    name = path.name
    if facts.get("kind") != KIND:
        raise ValueError(f"{name} is of kind {facts.get('kind')!r}; a collision model has {KIND!r}")
    check_facts(name, facts, NEEDED)
    check_numbers(name, tensors)
    if facts["format"] != FORMAT:
        raise ValueError(f"{name} has format {facts['format']}; this version reads {FORMAT}")
    if facts["law"] not in LAWS:
        raise ValueError(f"{name} has the law {facts['law']!r}; valid: {', '.join(LAWS)}")
    laws = _strikes(name, tensors, facts["nets"]) if facts["law"] == "strike" else _rigid(facts["law"])
    if shape is not None:
        trained = laws[0].net.shape.name if isinstance(laws[0], StrikeLaw) else None
        if trained != shape:
            raise ValueError(f"{name} was trained for the shape {trained!r}, not {shape!r}")
    rows = facts["components"]
    if not 1 <= len(rows) <= MOST_COMPONENTS:
        raise ValueError(f"{name} has {len(rows)} components; valid: 1 to {MOST_COMPONENTS}")
    components = [_component(name, k, row, tensors, laws) for k, row in enumerate(rows)]
    total = sum(component.weight for component in components)
    if abs(total - 1) > WEIGHT_TOLERANCE:
        raise ValueError(f"{name} has weights that sum to {total:g}; they must sum to 1")
    own = {key: value for key, value in facts.items() if key not in NEEDED}
    model = CollisionModel(laws, components, own)
    with torch.no_grad():
        _check_predictions(name, model)
    return model


def _check_predictions(name: str, model: CollisionModel) -> None:
    """Refuse weights that overflow: outcomes at the corners of the ranges, or of a plain impact, must be numbers."""
    if model.shape is not None:
        bounds = ranges(model.shape)
        probes = torch.cartesian_prod(*(torch.tensor([low, (low + high) / 2, high]) for low, high in bounds.values()))
        strikes = torch.unique(probes[:, :3], dim=0)
        found = [model.predict(strikes), *([model.predict(probes)] if model.takes_parameters else [])]
    else:
        row = [1.0, 1e-3, 0.0, 0.0, -1.0, 0.3, 1.0, -0.05, 0.01, 1.0, 0.0, 1.0, 1e-3, -0.1, 0.0, 0.5, 0.0, 0.0]
        found = [model.predict(torch.tensor([row[: len(model.columns)]]))]
    if not all(bool(outcome.isfinite().all()) for outcome in found):
        raise ValueError(f"{name} predicts outcomes that are not finite")


def _strikes(name: str, tensors: dict[str, Tensor], nets: dict[str, Any]) -> list[ImpactLaw]:
    if "base" not in nets or set(nets) - {"base", "wide"}:
        raise ValueError(f"{name} has the networks {', '.join(nets) or 'none'}; valid: base, and wide or not")
    made = {}
    for key, sizes in nets.items():
        try:
            config = NetConfig(**sizes)
        except TypeError as error:
            raise ValueError(f"{name} has a network {key!r} with sizes that nobody knows: {error}") from error
        if config.wide != (key == "wide"):
            raise ValueError(f"{name} has a network {key!r} with wide = {config.wide}")
        made[key] = OutcomeNet(config)
        _fill(name, made[key], strip_prefix(tensors, f"nets.{key}."))
        if bool((made[key].std <= 0).any()):
            raise ValueError(f"{name} has a network {key!r} whose inputs have a spread that is not above 0")
    if len({net.config.shape for net in made.values()}) > 1:
        raise ValueError(f"{name} has networks of several shapes: {', '.join(n.config.shape for n in made.values())}")
    return CollisionModel.of_strikes(made["base"], made.get("wide")).laws


def _rigid(law: str) -> list[ImpactLaw]:
    return CollisionModel.rigid(law == "rigid_pair").laws


def _fill(name: str, module: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    wanted = {key: tuple(value.shape) for key, value in module.state_dict().items()}
    given = {key: tuple(value.shape) for key, value in tensors.items()}
    if wanted != given:
        odd = sorted(key for key in wanted.keys() | given.keys() if wanted.get(key) != given.get(key))[0]
        raise ValueError(f"{name} has a tensor {odd!r} of shape {given.get(odd)}; it must be {wanted.get(odd)}")
    module.load_state_dict({key: value.float() for key, value in tensors.items()})


def _component(name: str, k: int, row: Any, tensors: dict[str, Tensor], laws: list[ImpactLaw]) -> Component:
    where = f"{name}, component {k},"
    if not isinstance(row, dict):
        raise ValueError(f"{where} is a {type(row).__name__}; it must be a json object")
    check_facts(where, row, {"law": (str,), "own": (bool,), "weight": (float, int)})
    if not 0 <= row["weight"] <= 1:
        raise ValueError(f"{where} has the weight {row['weight']}; valid: 0 to 1")
    known = {law.kind: law for law in laws}
    if row["law"] not in (*known, "scratch"):
        raise ValueError(f"{where} has the law {row['law']!r}; valid: {', '.join(known)}, scratch")
    own = strip_prefix(tensors, f"components.{k}.")
    law = ScratchLaw(laws[0]) if row["law"] == "scratch" else known[row["law"]]
    if row["own"]:
        law = _copy_of(law, laws[0])
        _fill(name, law, strip_prefix(own, "law."))
    values = _values(where, own.get("values"), law)
    process = None
    if any(key.startswith("process.") for key in own):
        process = _process(where, strip_prefix(own, "process."), law)
    return Component(law, values, process, float(row["weight"]))


def _copy_of(law: ImpactLaw, frame: ImpactLaw) -> ImpactLaw:
    if isinstance(law, StrikeLaw):
        return StrikeLaw(OutcomeNet(law.net.config), law.speed_slope)
    return ScratchLaw(frame) if isinstance(law, ScratchLaw) else RigidLaw(law.pair, law.anisotropic)  # type: ignore


def _values(where: str, values: Tensor | None, law: ImpactLaw) -> Tensor:
    count = len(law.unknowns)
    if values is None or values.ndim != 2 or values.shape[1] != count or not 1 <= len(values) <= MOST_MEMBERS:
        found = None if values is None else list(values.shape)
        raise ValueError(f"{where} has parameters of shape {found}; valid: [1 to {MOST_MEMBERS}, {count}]")
    for column, unknown in zip(values.T, law.unknowns, strict=True):
        slack = BEYOND * (unknown.high - unknown.low)
        if bool(((column < unknown.low - slack) | (column > unknown.high + slack)).any()):
            raise ValueError(
                f"{where} has {unknown.name} from {float(column.min()):g} to {float(column.max()):g}; "
                f"valid: {unknown.low:g} to {unknown.high:g}"
            )
    return values.float()


def _process(where: str, tensors: dict[str, Tensor], law: ImpactLaw) -> ResidualProcess:
    try:
        samples, dual, grid = (tensors[key].float() for key in ("samples", "dual", "grid"))
    except KeyError as error:
        raise ValueError(f"{where} has a process without {error}") from error
    shapes = (list(samples.shape), list(dual.shape), list(grid.shape))
    count = len(samples) if samples.ndim == 2 else 0
    rows = len(dual) if dual.ndim == 3 else -1
    wanted = ([count, len(law.input_parity)], [rows, count, law.velocities], [rows, 3])
    if shapes != wanted:
        raise ValueError(f"{where} has a process of shapes {shapes}; they must be {wanted}")
    return ResidualProcess(samples, dual, grid, law.input_parity, law.parity[: law.velocities])
