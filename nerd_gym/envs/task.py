"""The contract of a task: pure functions of tensors that never know which physics runs under them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from nerd_gym.backends.base import Backend
from nerd_gym.physics.warp.base_motion import BaseMotionLaunch, record_base_motion
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel

from .random import EnvRandom


class BaseMotion(NamedTuple):
    """A floating base in world axes."""

    velocity: Tensor  # [N, 3] of the base's origin
    omega: Tensor  # [N, 3] angular velocity
    up: Tensor  # [N, 1] z of the base's z axis
    heading: Tensor  # [N, 1] x of the base's x axis


class State:
    """What a task may see: the robot's state, where it stands over the ground, the episode's goal."""

    def __init__(self, backend: Backend, goal: Tensor):
        self._backend = backend
        # Where q and qd are, and the launch that finds the base's motion there.
        self._recorded: tuple[tuple[int, int], BaseMotionLaunch] | None = None
        self.goal = goal  # [N, goal_size]

    @property
    def q(self) -> Tensor:
        """[N, nq]."""
        return self._backend.q

    @property
    def qd(self) -> Tensor:
        """[N, nv]."""
        return self._backend.qd

    @property
    def contacts(self) -> Contacts:
        """The candidate points over the ground."""
        return self._backend.contacts

    def cached(self, key: str, compute: Callable[[], Any]) -> Any:
        """`compute()`, done once per state: reward and observation often need the same."""
        return self._backend.cached(key, compute)

    def site(self, name: str) -> Tensor:
        """World position [N, 3] of a named site of the robot."""
        return self._backend.site(name)

    @property
    def base_motion(self) -> BaseMotion:
        """The motion of a free base."""
        return self._backend.cached("base_motion", self._base_motion)

    def _base_motion(self) -> BaseMotion:
        places = self.q.data_ptr(), self.qd.data_ptr()
        if self._recorded is None or self._recorded[0] != places:
            self._recorded = places, record_base_motion(self.q, self.qd)
        slices, launches, out = self._recorded[1]
        slices.run(launches)
        omega, up, heading = out.clone().split((3, 1, 1), 1)
        return BaseMotion(self.qd.narrow(1, 0, 3), omega, up, heading)


class Drive(NamedTuple):
    """A part of an action: what the backend does next."""

    force: Tensor  # [N, nj], held for the frames
    rows: Tensor | None = None  # [N] bool, those that move; None: all
    frames: int = 1
    place: tuple[Tensor, Tensor, Tensor] | None = None  # before that, rows [N] bool are put at q [N, nq], qd [N, nv]
    picture: bool = False  # whether a film shows what comes of it, besides what the action ends with


@dataclass(frozen=True)
class TaskConfig:
    """Options of a task; subclasses add fields, and a field of type Literal lists its valid values."""


class Task(ABC):
    """A robot, what it is asked to do, and how an action becomes joint forces."""

    robot_name: ClassVar[str | None] = None  # a packaged robot; a task without one gets its robot from an option
    config_class: ClassVar[type[TaskConfig]] = TaskConfig
    horizon: ClassVar[int]

    action_size: int
    goal_size: int = 0
    obs_size: int
    frames: int = 1  # frames per action; the joint force is worked out anew for each
    waits: ClassVar[bool] = False  # whether `frames` is only the longest that an action may take

    def __init__(self, robot: RobotModel, config: TaskConfig, device: torch.device | str = "cpu"):
        self.robot = robot
        self.config = config
        self.device = torch.device(device)

    @classmethod
    def robot_of(cls, config: TaskConfig) -> RobotModel:
        """The robot that these options ask for: here the packaged one, whatever they are."""
        if cls.robot_name is None:
            raise TypeError(f"{cls.__name__} names no packaged robot and does not say which robot its options ask for")
        return RobotModel.named(cls.robot_name)

    @classmethod
    def config_of(cls, options: dict[str, Any]) -> TaskConfig:
        """The config that those of the options ask for that are the task's."""
        names = option_names(cls.config_class)
        return make_config(cls.config_class, {name: value for name, value in options.items() if name in names})

    @property
    def frame_dt(self) -> float:
        """Seconds in a frame."""
        return self.robot.frame_dt

    @property
    def picture_dt(self) -> float:
        """Seconds between two pictures of a film."""
        return self.frame_dt * self.frames

    @property
    @abstractmethod
    def actuation(self) -> dict[str, Any]:
        """What an action of 1 means, for whoever brings a policy to a real robot: kind, scale (one number, or one per
        joint), unit, and gains if there are any."""

    def tensor(self, values: Any) -> Tensor:
        """A float32 constant on the task's device."""
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)

    @abstractmethod
    def initial_state(self, rng: EnvRandom) -> tuple[Tensor, Tensor]:
        """A fresh episode for every row: q [N, nq] and qd [N, nv]."""

    def initial_goal(self, rng: EnvRandom, q: Tensor) -> Tensor:
        """The goal of the episode that starts at q, [N, goal_size]."""
        return torch.zeros(rng.num_envs, self.goal_size, device=self.device)

    def initial_ground(self, rng: EnvRandom, q: Tensor) -> tuple[Tensor, Tensor] | None:
        """Point and normal of the ground, [N, 3] each; None leaves it as the MJCF has it."""
        return None

    @abstractmethod
    def joint_force(self, action: Tensor, state: State) -> Tensor:
        """Action [N, action_size] -> joint force [N, nj], held for a frame."""

    def drive(self, action: Tensor, state: State) -> Iterator[Drive]:
        """What an action does, part by part; `state` is the current one whenever a part is asked for.

        A task whose action places something, or lasts until something rests, writes its own. Rows that a part leaves
        out stay as they are to the bit. A row whose action is not finite gets a force that is not finite.
        """
        for _ in range(self.frames):
            yield Drive(self.joint_force(action, state))

    @abstractmethod
    def observe(self, state: State) -> Tensor:
        """[N, obs_size], a new tensor."""

    @abstractmethod
    def reward(self, state: State, action: Tensor, joint_force: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Reward [N] of the state after the step, and the terms it is made of."""

    def next_goal(self, state: State) -> Tensor | None:
        """[N, goal_size] after a step whose reward is known; None: an episode has one goal."""
        return None

    def refused_start(self, q: Tensor, qd: Tensor) -> tuple[Tensor, str] | None:
        """Rows [N] bool of finite states that nobody may start from, and why; None: any will do."""
        return None

    def marks(self, state: State) -> Tensor | None:
        """[N, M, 4]: level discs that a picture shows, such as goals: centre and radius; radius 0 hides one."""
        return None

    def measures(self, state: State) -> dict[str, Tensor]:
        """[N] each: how well the task is done, in figures that have a unit, told in their names."""
        return {}

    def terminated(self, state: State) -> Tensor:
        """[N] bool: the episode has failed."""
        return torch.zeros(len(state.q), dtype=torch.bool, device=self.device)


def make_config(cls: type[TaskConfig], options: dict[str, Any]) -> TaskConfig:
    """The default config with these fields replaced, each checked against its type's valid values."""
    hints = get_type_hints(cls)
    for name, value in options.items():
        if get_origin(hints[name]) is Literal and value not in get_args(hints[name]):
            valid = ", ".join(repr(v) for v in get_args(hints[name]))
            raise ValueError(f"unknown {name} {value!r}; valid: {valid}")
        if hints[name] is bool and not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; valid: True, False")
    return replace(cls(), **options)


def option_names(cls: type[TaskConfig]) -> list[str]:
    """The valid keyword options of a task."""
    return [f.name for f in fields(cls)]


def total(terms: dict[str, Tensor]) -> Tensor:
    """The sum of reward terms."""
    return reduce(add, terms.values())
