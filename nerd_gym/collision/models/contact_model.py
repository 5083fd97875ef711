"""Laws of contact for articulated robots, on disk: what the backend `hybrid` adds to MuJoCo's smooth motion.

Three laws: `network`, the force of each contact from its depth and motion by a network; `penalty`, the same with
springs and dampers; `constraint`, MuJoCo's constraints, which couple the contacts and limits of a robot. And `none`, of
robots without contacts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.physics.torch.contact_net import ContactForceNet
from nerd_gym.physics.warp.constraint_params import LAW_BOUNDS, ConstraintLaw
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import check_facts, check_numbers, load_tensors, save_tensors, strip_prefix

PRETRAINED = Path(__file__).parent.parent / "pretrained"
KIND = "contacts"
NEEDED = {"kind": (str,), "law": (str,), "limits": (str,), "robot": (str,), "robot_hash": (str,), "teacher": (str,)}
NEEDED |= {"frame_dt": (float, int), "substeps": (int,)}
NETWORK, PENALTY, CONSTRAINT, NONE = LAWS = ("network", "penalty", "constraint", "none")
# Of joint limits: MuJoCo's own, the MJCF's springs, or in one system with the constraints of contacts.
NATIVE, SPRING, _ = LIMITS = ("native", "spring", CONSTRAINT)
SIZES = {PENALTY: 4, CONSTRAINT: len(ConstraintLaw._fields), NONE: 0}  # of `gains`
WIDEST_NET, MOST_SUBSTEPS, LARGEST = 256, 4096, 1e9
ANY_SPAN = (1e6, 1e6)  # m and m/s: of a law that no data has bounded


@dataclass(frozen=True)
class ContactModel:
    """A law of contact and where it comes from."""

    law: str
    gains: tuple[float, ...] = ()  # of penalty: ke, kd, kf, mu; of constraints: ConstraintLaw
    network: ContactForceNet | None = None
    limits: str = SPRING
    span: tuple[float, float] = ANY_SPAN  # depth (m) and speed (m/s) up to which the data reach
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if self.law not in LAWS:
            raise ValueError(f"unknown contact law {self.law!r}; valid: {', '.join(LAWS)}")
        if self.limits not in LIMITS:
            raise ValueError(f"limits are {self.limits!r}; valid: {', '.join(LIMITS)}")
        if (self.law == CONSTRAINT) != (self.limits == CONSTRAINT):
            raise ValueError(f"the law {self.law!r} does not go with {self.limits!r} limits")
        if (self.law == NETWORK) != (self.network is not None):
            raise ValueError(f"the law {self.law!r} has {'a' if self.network else 'no'} network")
        if len(self.gains) != SIZES.get(self.law, 0):
            raise ValueError(f"the law {self.law!r} has {len(self.gains)} gains; it takes {SIZES.get(self.law, 0)}")

    @property
    def acts(self) -> bool:
        """Whether it adds anything to MuJoCo's own motion."""
        return self.law != NONE or self.limits != NATIVE

    def save(self, path: Path) -> None:
        """Write it, whole or not at all; the facts must name robot, robot_hash, teacher, frame_dt and substeps."""
        tensors = {"gains": torch.tensor(self.gains, dtype=torch.float64), "span": torch.tensor(self.span)}
        if self.network is not None:
            tensors |= {f"contact.{key}": value.detach().float() for key, value in self.network.state_dict().items()}
        save_tensors(path, tensors, self.facts | {"kind": KIND, "law": self.law, "limits": self.limits})


def load_contacts(path: str | Path, robot: RobotModel) -> ContactModel:
    """The model in a file, if it is of this robot and frame time."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no contact model at {path}")
    tensors, facts = load_tensors(path)
    name = path.name
    if facts.get("kind") != KIND:
        raise ValueError(f"{name} is of kind {facts.get('kind')!r}; a model of contacts has {KIND!r}")
    check_facts(name, facts, NEEDED)
    check_numbers(name, tensors)
    robot.check_learned(name, facts)
    if not 1 <= facts["substeps"] <= MOST_SUBSTEPS:
        raise ValueError(f"{name} has substeps = {facts['substeps']}; valid: 1 to {MOST_SUBSTEPS}")
    gains, span = tensors.get("gains"), tensors.get("span")
    if gains is None or gains.ndim != 1 or span is None or span.shape != (2,) or not bool((span > 0).all()):
        raise ValueError(f"{name} must have 'gains', a row of numbers, and 'span', two numbers above 0")
    own = strip_prefix(tensors, "contact.")
    try:
        network = _network(own) if own else None
        model = ContactModel(
            facts["law"],
            tuple(map(float, gains)),
            network,
            facts["limits"],
            (float(span[0]), float(span[1])),
            facts,
        )
    except (ValueError, RuntimeError, KeyError) as error:
        raise ValueError(f"{name} holds no model of contacts: {error}") from error
    _check_gains(name, model, robot)
    return model


def _network(tensors: dict[str, Tensor]) -> ContactForceNet:
    width = len(tensors["first.weight"])
    if not 1 <= width <= WIDEST_NET:
        raise ValueError(f"its network is {width} wide; valid: 1 to {WIDEST_NET}")
    network = ContactForceNet(width)
    network.load_state_dict({key: value.float() for key, value in tensors.items()})
    if bool((network.scales <= 0).any()):
        raise ValueError(f"its network has scales {network.scales.tolist()}; they must be above 0")
    network.requires_grad_(False)
    probe = torch.tensor([1e-6, 1e-3, 0.1])
    if not all(bool(x.isfinite().all()) for x in network(probe, -10 * probe, 10 * probe)):
        raise ValueError("its network gives forces that are not finite")
    return network


def _check_gains(name: str, model: ContactModel, robot: RobotModel) -> None:
    gains = torch.tensor(model.gains, dtype=torch.float64)
    if model.law == CONSTRAINT:
        low, high = LAW_BOUNDS
        if not bool(((gains >= low) & (gains <= high)).all()):
            raise ValueError(
                f"{name} has constraint gains {gains.tolist()}; valid: from {low.tolist()} to {high.tolist()}"
            )
        if not robot.free_base:
            raise ValueError(f"{name} has the law 'constraint', which is for robots with a free base")
    elif not bool(((gains >= 0) & (gains <= LARGEST)).all()):
        raise ValueError(f"{name} has gains {gains.tolist()}; valid: 0 to {LARGEST:g}")


def packaged_contacts(robot: RobotModel, teacher: str) -> Path:
    """The model of a robot that comes with the package, learned from this teacher."""
    path = _packaged(robot.name, teacher)
    if not (robot.packaged and path.exists()):
        known = ", ".join(sorted(p.stem.removeprefix("contacts-") for p in PRETRAINED.glob("contacts-*.safetensors")))
        raise ValueError(
            f"no packaged model of the contacts of robot {robot.name!r} with teacher {teacher!r}; packaged: {known}. "
            "Give the path of one of your own, model=...; nerd-gym collision contacts makes it"
        )
    return path


def has_packaged_contacts(robot: RobotModel, teacher: str) -> bool:
    """Whether there is one."""
    return robot.packaged and _packaged(robot.name, teacher).exists()


def _packaged(robot_name: str, teacher: str) -> Path:
    return PRETRAINED / f"contacts-{robot_name}-{teacher}.safetensors"
