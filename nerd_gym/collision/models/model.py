"""`CollisionModel`: the outcome of collisions, from plain arrays with named columns.

    model = CollisionModel.packaged("semicylinder")
    adapted = model.finetune(pre, post)      # arrays by name: speed, point, direction; vn, vt, omega
    adapted.predict(strikes)                 # a tensor [N, 3] gives [N, 7]; arrays by name give arrays by name

Impacts of two planar bodies from anywhere: ``CollisionModel.fit(pre, post)`` with the columns of a rigid impact law.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.collision.scenes.columns import COLUMNS, STRIKE, ranges
from nerd_gym.collision.scenes.shapes import SHAPES, Shape

from .compact import compacted
from .finetune import (
    Component,
    adapted,
    identified,
    mix,
    paper_finetune,
    paper_identify,
    scratch_component,
    weigh,
)
from .identify import Samples, report
from .laws import ImpactLaw, StrikeLaw
from .rigid import BODY, CONTACT, RigidLaw, second
from .surrogate import OutcomeNet
from .table import Table, check_finite, check_positive, check_samples, to_tensor

PRETRAINED = Path(__file__).parent.parent / "pretrained"
RECIPES = ("mix", "paper")
ROUNDING = 1e-3  # of a range: a strike at its end that is read back from a simulator is up to 3.4e-4 beyond it
MANY = 50  # samples from which a network from scratch is worth trying


def check_recipe(recipe: str) -> None:
    """Refuse a recipe of fine-tuning that nobody knows."""
    if recipe not in RECIPES:
        raise ValueError(f"unknown recipe {recipe!r}; valid: {', '.join(RECIPES)}")


class CollisionModel:
    """Laws that may be adapted, and the weighted components that predict now."""

    def __init__(self, laws: Sequence[ImpactLaw], components: Sequence[Component] = (), facts: Any = None):
        self.laws = list(laws)
        first = self.laws[0]
        self.components = list(components) or [Component(first, first.nominal())]
        self.facts: dict[str, Any] = dict(facts or {})
        self.columns, self.outcome, self.velocities = first.columns, first.outcome, first.velocities

    # Where models come from.

    @classmethod
    def of_strikes(cls, base: OutcomeNet, wide: OutcomeNet | None = None, facts: Any = None) -> CollisionModel:
        """Of networks distilled from MuJoCo; `wide` is the one of perturbed simulators."""
        laws: list[ImpactLaw] = [StrikeLaw(base)]
        laws += [StrikeLaw(wide), StrikeLaw(wide, speed_slope=True)] if wide is not None else []
        return cls(laws, facts=facts)

    @classmethod
    def rigid(cls, pair: bool = False) -> CollisionModel:
        """Rigid impact laws, of one body and something that does not move, or of a pair of bodies."""
        return cls([RigidLaw(pair), RigidLaw(pair, anisotropic=True)])

    @classmethod
    def packaged(cls, shape: str) -> CollisionModel:
        """The model of a shape that comes with the package."""
        path = PRETRAINED / f"{shape}.safetensors"
        if not path.is_file():
            known = ", ".join(name for name in SHAPES if (PRETRAINED / f"{name}.safetensors").is_file())
            raise ValueError(f"no packaged collision model of shape {shape!r}; packaged: {known}")
        return cls.load(path, shape)

    @classmethod
    def load(cls, path: str | Path, shape: str | None = None) -> CollisionModel:
        """A model from a file, if it was trained for `shape` (default: any). Loading runs no code."""
        from .model_file import load_model

        return load_model(Path(path), shape)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file with the facts."""
        from .model_file import save_model

        save_model(Path(path), self)

    @classmethod
    def fit(cls, pre: Table, post: Table, seed: int = 0) -> CollisionModel:
        """A model of measured impacts of planar bodies that did not come from our scene.

        Columns of `pre` are those of RigidLaw, with or without a second body; of `post` vx, vy, omega of the bodies.
        The rigid laws are adapted as in `finetune`; from 50 samples on a network from scratch joins them."""
        width = len(BODY + CONTACT + BODY)
        pair = (pre.shape[-1] == width) if isinstance(pre, Tensor) else any(name in pre for name in second(BODY))
        model = cls.rigid(pair)
        x, y = model._samples(pre, post)
        found = [adapted(law, x, y, seed) for law in model.laws]
        kinds = [law.kind for law in model.laws]
        if len(x) >= MANY:
            found.append(scratch_component(model.laws[0], x, y, seed))
            kinds.append("scratch")
        errors = [error for _, error in found]
        return model._with(weigh(found), "fit", x, dict(zip(kinds, errors, strict=True)), y)

    # What adapts them.

    def identify(self, pre: Table, post: Table, seed: int = 0) -> CollisionModel:
        """The first law at its most probable parameters; `facts["identified"]` tells what the samples determine."""
        x, y = self._samples(pre, post)
        component = identified(self.laws[0], x, y, seed)
        return self._with([component], "identify", x, {}, y)

    def finetune(self, pre: Table, post: Table, recipe: str = "mix", seed: int = 0) -> CollisionModel:
        """Adapt to a few samples: `mix`, or `paper`: the published ten steps on the weights."""
        check_recipe(recipe)
        x, y = self._samples(pre, post)
        if recipe == "mix":
            components, errors = mix(self.laws, x, y, seed)
            kinds = [law.kind for law in self.laws]
            return self._with(components, "mix", x, dict(zip(kinds, errors, strict=True)), y)
        law = self.laws[0]
        if not isinstance(law, StrikeLaw):
            raise ValueError(f"recipe 'paper' tunes a network's weights; this model is {law.kind!r}; valid: mix")
        return self._with([paper_finetune(paper_identify(law, x, y), x, y)], "paper", x, {}, y)

    def compact(self, seed: int = 0) -> CollisionModel:
        """The same predictions from one network: `mix` averages 33, which takes about as long as MuJoCo.

        `facts["compact"]` tells how far it differs, on strikes that it was not fitted to."""
        law = self.laws[0]
        if not isinstance(law, StrikeLaw):
            raise ValueError(f"this model is {law.kind!r}, a formula; only models of strikes are made compact")
        same = next((c.values for c in self.components if c.law.kind == law.kind), law.nominal())
        component, difference = compacted(law, same[:1], self.predict, seed)
        return CollisionModel(self.laws, [component], self.facts | {"compact": difference})

    def _with(self, components: list[Component], recipe: str, x: Tensor, errors: dict, y: Tensor) -> CollisionModel:
        first = components[0]
        samples = Samples.of(first.law, x, y)
        best = first.values[:1]
        facts = {
            "adapted": {
                "recipe": recipe,
                "samples": len(x),
                "left_out_error": errors,
                "weights": {c.law.kind: c.weight for c in components},
            },
            "identified": report(first.law, samples, best),
        }
        return CollisionModel(self.laws, components, self.facts | facts)

    # What uses them.

    @property
    def shape(self) -> Shape | None:
        """Of the block, for models of strikes."""
        law = self.laws[0]
        return law.net.shape if isinstance(law, StrikeLaw) else None

    @property
    def takes_parameters(self) -> bool:
        """Whether strikes may come with their own friction and damping, as the base network was trained; a model that
        was adapted to samples has those of the samples."""
        return self.shape is not None and "adapted" not in self.facts

    def predict(self, pre: Table) -> Any:
        """Outcomes: a tensor [N, C] gives a tensor [N, O] on its device, without copies to the host; arrays by name
        give arrays by name. Strikes with all COLUMNS are predicted with the parameters given there, if the model
        `takes_parameters`."""
        if isinstance(pre, Tensor):
            explicit = self.takes_parameters and pre.ndim == 2 and pre.shape[1] == len(COLUMNS)
            return self._outcome(to_tensor(pre, COLUMNS if explicit else self.columns, "pre"))
        explicit = self.takes_parameters and isinstance(pre, Mapping) and all(name in pre for name in COLUMNS)
        x = to_tensor(pre, COLUMNS if explicit else self.columns, "pre")
        self._check_values(x)
        with torch.no_grad():
            out = self._outcome(x)
        return {name: values.numpy() for name, values in zip(self.outcome, out.T, strict=True)}

    def _outcome(self, x: Tensor) -> Tensor:
        law = self.laws[0]
        if isinstance(law, StrikeLaw) and x.shape[1] == len(COLUMNS):
            return law.net(x)
        total: Tensor | None = None
        for component in self.components:
            relative = component.relative(x)
            part = component.weight * relative * component.law.scale(x)
            total = part if total is None else total + part
        assert total is not None
        return law.from_frame(x, total)

    def in_range(self, pre: Tensor) -> Tensor:
        """[N] bool: whether strikes are in the range of the training, but for rounding; rigid laws take any."""
        if self.shape is None:
            return torch.ones(len(pre), dtype=torch.bool, device=pre.device)
        bounds = ranges(self.shape)
        names = COLUMNS if pre.shape[1] == len(COLUMNS) else STRIKE
        low, high = pre.new_tensor([bounds[name] for name in names]).T
        slack = ROUNDING * (high - low)
        return ((pre >= low - slack) & (pre <= high + slack)).all(-1)

    def to(self, device: torch.device | str) -> CollisionModel:
        """The same model on a device."""
        device = torch.device(device)
        for law in {id(law): law for law in (*self.laws, *(c.law for c in self.components))}.values():
            law.to(device)
        for component in self.components:
            component.values = component.values.to(device)
            component.process = component.process and component.process.to(device)
        return self

    # Input.

    def _samples(self, pre: Table, post: Table) -> tuple[Tensor, Tensor]:
        x = to_tensor(pre, self.columns, "pre")
        y = to_tensor(post, self.outcome[: self.velocities], "post")
        check_samples(x, y, self.columns)
        self._check_values(x)
        check_finite(y, self.outcome[: self.velocities], "post")
        still = (y == 0).all(-1).nonzero()
        if len(still):
            raise ValueError(f"post is zero in row {int(still[0])}: nothing moves after that collision")
        return x, y

    def _check_values(self, x: Tensor) -> None:
        columns = COLUMNS if len(self.columns) != x.shape[1] else self.columns
        check_finite(x, columns, "pre")
        law = self.laws[0]
        if isinstance(law, RigidLaw):
            names = ("mass", "inertia", *(second(("mass", "inertia")) if law.pair else ()))
            check_positive(x, columns, names, "pre")
            zero = (x[:, 9:11].norm(dim=-1) == 0).nonzero()
            if len(zero):
                raise ValueError(f"pre has a normal of length 0 in row {int(zero[0])}")
            apart = (law.approach(x) <= 0).nonzero()
            if len(apart):
                row = int(apart[0])
                speed = float(law.approach(x)[row])
                raise ValueError(
                    f"the bodies of row {row} do not approach: {speed:g} m/s along the normal, which points into body 1"
                )
        else:
            check_positive(x, columns, ("speed",), "pre")
