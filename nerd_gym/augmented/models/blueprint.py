"""Blueprint: which quantities inside an engine a network changes, and what it reads.

    blueprint = Blueprint()
    blueprint.wire(outputs=["tau/knee"], inputs=["q/knee", "qd/knee"], hidden=(5, 5))  # one network
    blueprint.wire("tau/*", "qd/*")                        # one network from all rates to all joint forces
    blueprint.wire("tau/*", ["q/@", "qd/@"])               # the same network for every joint: @ is what * was
    blueprint.wire(["normal/*", "friction/*"], ["depth/@", "along/@", "slip/@"])

Names are in names.py. A wire adds to what the engine has, or replaces it (``residual=False``). A scalar that one wire
gives may be an input of another: then it is what that network gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nerd_gym.robots.model import RobotModel

from .names import Catalogue

ACTIVATIONS = ("elu", "tanh", "silu")
MOST_LAYERS, MOST_UNITS, MOST_WIRES = 4, 512, 64


@dataclass(frozen=True)
class Wire:
    """A network, by patterns of names."""

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    hidden: tuple[int, ...] = (5, 5)
    activation: str = "elu"
    residual: bool = True

    def __post_init__(self):
        for what, names in (("outputs", self.outputs), ("inputs", self.inputs)):
            if not names or not all(isinstance(name, str) and name for name in names):
                raise ValueError(f"{what} of a wire are {list(names)!r}; they must be names, and at least one")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {self.activation!r}; valid: {', '.join(ACTIVATIONS)}")
        sizes = all(type(size) is int and 1 <= size <= MOST_UNITS for size in self.hidden)
        if not sizes or len(self.hidden) > MOST_LAYERS:
            told = f"at most {MOST_LAYERS} layers of 1 to {MOST_UNITS} units"
            raise ValueError(f"hidden is {list(self.hidden)!r}; valid: {told}")
        if type(self.residual) is not bool:
            raise ValueError(f"residual is {self.residual!r}; valid: True, False")

    @property
    def text(self) -> str:
        """As `parse` reads it."""
        return f"{' '.join(self.outputs)}: {' '.join(self.inputs)}"

    @classmethod
    def parse(cls, text: str, **options: Any) -> Wire:
        """`OUTPUT ...: INPUT ...`; a colon inside a name has no space after it."""
        outputs, sep, inputs = f"{text} ".partition(": ")
        if not sep or not outputs.split() or not inputs.split():
            raise ValueError(f"wire {text!r} is not 'OUTPUT ...: INPUT ...', for example 'tau/*: q/@ qd/@'")
        return cls(tuple(outputs.split()), tuple(inputs.split()), **options)


@dataclass(frozen=True)
class ResolvedWire:
    """A wire of a robot. Its network is applied to K elements: one, or as many as * means where inputs have an @."""

    wire: Wire
    outputs: tuple[tuple[str, ...], ...]  # [K][m]
    inputs: tuple[tuple[str, ...], ...]  # [K][n]


class Blueprint:
    """Wires, in the order in which they were made."""

    def __init__(self, wires: Sequence[Wire] = ()):
        self.wires = list(wires)

    def wire(
        self,
        outputs: str | Sequence[str],
        inputs: str | Sequence[str],
        hidden: Sequence[int] = (5, 5),
        activation: str = "elu",
        residual: bool = True,
    ) -> Blueprint:
        """Add one; returns the blueprint."""
        outputs, inputs = ((x,) if isinstance(x, str) else tuple(x) for x in (outputs, inputs))
        if len(self.wires) == MOST_WIRES:
            raise ValueError(f"a blueprint has at most {MOST_WIRES} wires")
        self.wires.append(Wire(outputs, inputs, tuple(hidden), activation, residual))
        return self

    def facts(self) -> list[dict[str, Any]]:
        """For json."""
        return [asdict(wire) for wire in self.wires]

    @classmethod
    def of_facts(cls, name: str, facts: Any) -> Blueprint:
        """What :meth:`facts` gave, from the file `name`; nothing is believed."""
        keys = {"outputs", "inputs", "hidden", "activation", "residual"}
        if not isinstance(facts, list) or len(facts) > MOST_WIRES:
            raise ValueError(f"{name} has no list of at most {MOST_WIRES} wires")
        wires = []
        for number, row in enumerate(facts):
            if (
                not isinstance(row, dict)
                or set(row) != keys
                or not all(isinstance(row[key], list) for key in ("outputs", "inputs", "hidden"))
            ):
                raise ValueError(f"{name}: wire {number} must have {', '.join(sorted(keys))}, the first lists")
            try:
                given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
                wires.append(Wire(**given))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name}: wire {number}: {error}") from error
        return cls(wires)

    def resolve(self, robot: RobotModel) -> list[ResolvedWire]:
        """Of a robot, in an order in which every wire comes after those whose outputs it reads."""
        catalogue = Catalogue(robot)
        produced = tuple(
            dict.fromkeys(
                name for wire in self.wires for out in wire.outputs for name, _ in catalogue.matches(out, True)
            )
        )
        resolved = [_resolved(wire, catalogue, produced) for wire in self.wires]
        seen: dict[str, str] = {}
        for one in resolved:
            for name in (name for names in one.outputs for name in names):
                if name in seen:
                    raise ValueError(f"{name} is an output twice, of {seen[name]!r} and of {one.wire.text!r}")
                seen[name] = one.wire.text
        return _ordered(resolved)


def _resolved(wire: Wire, catalogue: Catalogue, produced: tuple[str, ...]) -> ResolvedWire:
    outputs = [catalogue.matches(pattern, True) for pattern in wire.outputs]
    if not any("@" in pattern for pattern in wire.inputs):
        names = tuple(name for group in outputs for name, _ in group)
        inputs = [name for pattern in wire.inputs for name, _ in catalogue.matches(pattern, False, produced)]
        return ResolvedWire(wire, (names,), (tuple(dict.fromkeys(inputs)),))
    elements = [star for _, star in outputs[0]]
    for pattern, group in zip(wire.outputs, outputs, strict=True):
        if [star for _, star in group] != elements or "" in elements:
            raise ValueError(
                f"wire {wire.text!r} has inputs with an @, so that each output needs a * for the same names; "
                f"{pattern!r} has not"
            )
    inputs = []
    for element in elements:
        one = [name for p in wire.inputs for name, _ in catalogue.matches(p.replace("@", element), False, produced)]
        inputs.append(tuple(dict.fromkeys(one)))
    if len({len(names) for names in inputs}) > 1:
        raise ValueError(f"wire {wire.text!r} does not give every element as many inputs")
    rows = tuple(tuple(group[k][0] for group in outputs) for k in range(len(elements)))
    return ResolvedWire(wire, rows, tuple(inputs))


def _ordered(wires: list[ResolvedWire]) -> list[ResolvedWire]:
    """Sorted by what reads what; a cycle is an error that tells it."""
    gives = {name: k for k, one in enumerate(wires) for names in one.outputs for name in names}
    reads = [sorted({gives[n] for names in one.inputs for n in names if n in gives}) for one in wires]
    order: list[int] = []
    path: list[int] = []

    def visit(k: int) -> None:
        if k in path:
            cycle = " -> ".join(repr(wires[j].wire.text) for j in [*path[path.index(k) :], k])
            raise ValueError(f"wires read each other in a cycle: {cycle}")
        if k in order:
            return
        path.append(k)
        for before in reads[k]:
            visit(before)
        path.pop()
        order.append(k)

    for k in range(len(wires)):
        visit(k)
    return [wires[k] for k in order]
