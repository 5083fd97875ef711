"""An augmented engine: the suite's equations of motion, with identified parameters, and networks inside them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from nerd_gym.physics.torch.contact import ContactLaw, hunt_crossley, penalty
from nerd_gym.physics.torch.engine import Articulated, Moment, Parameters, read_parameters
from nerd_gym.physics.torch.impulse import Impulses
from nerd_gym.physics.torch.spatial import skew
from nerd_gym.robots.model import RobotModel

from .blueprint import Blueprint
from .names import INERTIA, WRENCH, Catalogue
from .network import ScalarNet
from .signals import Signals

CONTACTS = ("penalty", "hunt_crossley", "impulses")
STICTION = 0.01  # m/s: below it what a network adds to friction falls to zero with the slip
CONTACT_GAINS = {
    # In the order of Hunt and Crossley's; a depth of 1 mm under the weight.
    "hunt_crossley": lambda robot: _hunt_crossley_of(robot),
    # Friction, restitution, correction, softness.
    "impulses": lambda robot: [robot.contact_gains[3], 0.0, 0.2, 1e-6],
}


def _hunt_crossley_of(robot: RobotModel) -> list[float]:
    weight = 9.81 * float(robot.mj_model.body_mass.sum())
    mu = robot.contact_gains[3]
    return [weight / 1e-3**1.5, 1.5, 1.0, mu, mu, 0.1]


class AugmentedModel(nn.Module):
    """Wires of one robot, and values that stand for the MJCF's.

    `values` are fields of the engine's Parameters by name (mass, damping, contact_gains ...), all of them trainable.
    `contact` names the contact model, with numbers of its own unless it is penalty; without a ground there is none.
    """

    def __init__(
        self,
        robot: RobotModel,
        blueprint: Blueprint | None = None,
        values: dict[str, Tensor] | None = None,
        contact: str = "penalty",
        contact_values: Tensor | None = None,
        sweeps: int = 30,
    ):
        super().__init__()
        if contact not in CONTACTS:
            raise ValueError(f"unknown contact {contact!r}; valid: {', '.join(CONTACTS)}")
        self.robot, self.contact, self.sweeps = robot, contact, sweeps
        self._plain: dict[tuple[torch.dtype, str], Articulated] = {}  # with the MJCF's values
        self.blueprint = Blueprint() if blueprint is None else blueprint
        self.catalogue = Catalogue(robot)
        self.wires = self.blueprint.resolve(robot)
        self.networks = nn.ModuleList(
            ScalarNet(len(one.inputs[0]), one.wire.hidden, len(one.outputs[0]), one.wire.activation)
            for one in self.wires
        )
        own = read_parameters(robot)
        for name, value in (values or {}).items():
            if name not in PARAMETERS:
                raise ValueError(f"unknown parameter {name!r}; valid: {', '.join(PARAMETERS)}")
            if value.shape != getattr(own, name).shape:
                told = f"{tuple(value.shape)}; {robot.name!r} takes {tuple(getattr(own, name).shape)}"
                raise ValueError(f"parameter {name!r} has shape {told}")
        self.values = nn.ParameterDict({k: nn.Parameter(v.clone().double()) for k, v in (values or {}).items()})
        self.contact_values: nn.Parameter | None = None
        if contact != "penalty":
            default = torch.tensor(CONTACT_GAINS[contact](robot))
            given = default if contact_values is None else contact_values
            if given.shape != default.shape:
                raise ValueError(f"contact_values have shape {tuple(given.shape)}; {contact} takes {len(default)}")
            self.contact_values = nn.Parameter(given.clone())
        elif contact_values is not None:
            raise ValueError("contact_values are of hunt_crossley or impulses; penalty has the parameter contact_gains")
        self.to(torch.float64)

    @property
    def scalar_nets(self) -> list[ScalarNet]:
        """One per wire."""
        return [network for network in self.networks if isinstance(network, ScalarNet)]

    def engine(self, dtype: torch.dtype = torch.float64, device: Any = "cpu") -> Articulated:
        """The equations of motion with this model's values."""
        key = dtype, str(device)
        if key not in self._plain:
            self._plain[key] = Articulated(self.robot, read_parameters(self.robot, dtype=dtype, device=device))
        return self._plain[key].but(**{name: value.to(device, dtype) for name, value in self.values.items()})

    def contact_law(self, engine: Articulated) -> ContactLaw | Impulses | None:
        """Of the ground; None for a robot without one."""
        if self.robot.ground is None:
            return None
        if self.contact_values is None:
            return penalty(engine.parameters.contact_gains, self.robot.friction_law == "huber")
        values = self.contact_values.to(engine.parameters.mass)
        if self.contact == "hunt_crossley":
            return hunt_crossley(values)
        friction, restitution, correction, softness = values
        return Impulses(friction, restitution, correction, softness, sweeps=self.sweeps)

    def augment(self, moment: Moment) -> Moment:
        """The moment as the networks change it: what the engine calls in every substep."""
        if not self.wires:
            return moment
        signals, given = Signals(moment), {}
        changes: dict[str, dict[int, tuple[Tensor, bool]]] = {}  # group -> column -> value, whether it replaces
        for one, network in zip(self.wires, self.networks, strict=True):
            x = torch.stack([self._read(signals, names, given) for names in one.inputs], 1)
            out = network(x)  # [B, K, m]
            for k, names in enumerate(one.outputs):
                for j, name in enumerate(names):
                    given[name] = out[:, k, j]
                    group, column = self.catalogue.scalars[name]
                    changes.setdefault(group, {})[column] = out[:, k, j], not one.wire.residual
        return _changed(moment, changes)

    def _read(self, signals: Signals, names: tuple[str, ...], given: dict[str, Tensor]) -> Tensor:
        if not any(name in given for name in names):
            return signals(self.catalogue, names)
        return torch.stack([given[n] if n in given else signals(self.catalogue, [n])[:, 0] for n in names], -1)

    def float_copy(self, device: Any) -> AugmentedModel:
        """A copy in float32 whose numbers are held, for stepping."""
        other = deepcopy(self).to(device, torch.float32)
        return other.requires_grad_(False)

    def frame(self, q: Tensor, qd: Tensor, force: Tensor, ground=None, substeps: int | None = None, time=None):
        """q [B, nq] and qd [B, nv] a frame later, in the dtype of the state; time [B] at its start."""
        engine = self.engine(q.dtype, q.device)
        return engine.frame(
            q, qd, force, ground, self.contact_law(engine), augment=self.augment, substeps=substeps, time=time
        )


ENTRIES = ((0,), (4,), (8,), (1, 3), (2, 6), (5, 7))  # of a matrix [9], in the order of INERTIA
PARAMETERS = tuple(Parameters.__dataclass_fields__)


def _changed(moment: Moment, changes: dict[str, dict[int, tuple[Tensor, bool]]]) -> Moment:
    engine = moment.engine
    p = engine.parameters
    new: dict[str, Tensor] = {}
    for group, columns in changes.items():
        if group == "tau":
            moment = moment._replace(force=_put(moment.force, columns))
        elif group in ("stiffness", "damping", "mass"):
            new[group] = _put(_rows(getattr(p, group), moment), columns)
        elif group == "com":
            new["com"] = _put(_rows(p.com.flatten(), moment), columns).unflatten(-1, (-1, 3))
        elif group == "inertia":
            entries = {}
            for column, value in columns.items():
                link, which = divmod(column, len(INERTIA))
                entries |= {9 * link + at: value for at in ENTRIES[which]}
            new["inertia"] = _put(_rows(p.inertia.flatten(), moment), entries).unflatten(-1, (-1, 3, 3))
    if new:
        moment = moment._replace(engine=engine.but(**new))
    if "drag" in changes:
        moment = moment._replace(wrench=_wrench(moment, changes["drag"]))
    if "normal" in changes or "friction" in changes:
        moment = moment._replace(
            contact_law=_augmented_law(moment, changes.get("normal", {}), changes.get("friction", {}))
        )
    return moment


def _rows(value: Tensor, moment: Moment) -> Tensor:
    """[n] -> [B, n]."""
    return value.expand(len(moment.q), -1)


def _put(before: Tensor, columns: dict[int, tuple[Tensor, bool]]) -> Tensor:
    """[B, n] with some columns added to, or replaced."""
    parts = []
    for k, column in enumerate(before.unbind(-1)):
        value, replaces = columns.get(k, (None, False))
        parts.append(column if value is None else value if replaces else column + value)
    return torch.stack(parts, -1)


def _wrench(moment: Moment, columns: dict[int, tuple[Tensor, bool]]) -> Tensor:
    """[B, L, 6]: moment and force about the base's origin, in world axes."""
    pose, count = moment.pose, moment.engine.count
    none = moment.q.new_zeros(len(moment.q), count * len(WRENCH))
    force, torque = _put(none, columns).unflatten(-1, (count, 6)).split(3, -1)
    force, torque = ((pose.rotation @ x[..., None])[..., 0] for x in (force, torque))
    com = pose.position + (pose.rotation @ moment.engine.parameters.com[..., None])[..., 0]
    return torch.cat([torque + (skew(com) @ force[..., None])[..., 0], force], -1)


def _augmented_law(moment: Moment, normal: dict, friction: dict) -> ContactLaw:
    law = moment.contact_law
    if law is None or isinstance(law, Impulses):
        raise ValueError("networks on normal or friction need a contact law of forces: penalty or hunt_crossley")

    def augmented(depth: Tensor, along: Tensor, slip: Tensor) -> tuple[Tensor, Tensor]:
        push, drag = law(depth, along, slip)
        if normal:
            push = _put(push, normal).clamp(min=0.0)
        if friction:
            size = 1 / (slip + STICTION)
            added = _put(torch.zeros_like(drag), friction) * size
            kept = [not friction.get(k, (None, False))[1] for k in range(drag.shape[1])]
            drag = (torch.where(torch.tensor(kept, device=drag.device), drag, 0.0) + added).clamp(min=0.0)
        return push, drag

    return augmented
