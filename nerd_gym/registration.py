"""The suite's environments: one row each. A new task is one file in envs/ and one row here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from .envs.task import Task, TaskConfig
    from .robots.model import RobotModel


@dataclass(frozen=True)
class EnvSpec:
    """Where an environment's task lives. The module is imported on first use."""

    module: str
    cls: str
    horizon: int
    requires: tuple[str, ...] = ()  # options without which it cannot be made
    backend: str | None = None  # that it runs on if none is named; None: the suite's default

    def task_class(self) -> type[Task]:
        """The task's class."""
        return getattr(import_module(f"nerd_gym.envs.{self.module}"), self.cls)

    @property
    def robot_name(self) -> str | None:
        """The packaged robot that the task moves; None if an option tells the robot."""
        return self.task_class().robot_name

    def config(self, options: dict[str, Any]) -> TaskConfig:
        """The task's config from options of task and backend."""
        return self.task_class().config_of(options)

    def robot(self, options: dict[str, Any]) -> RobotModel:
        """The robot that options of task and backend ask for."""
        return self.task_class().robot_of(self.config(options))


ENVS = {
    "NeRD/Cartpole-v0": EnvSpec("cartpole", "Cartpole", 300),
    "NeRD/PendulumContact-v0": EnvSpec("pendulum_contact", "PendulumContact", 300),
    "NeRD/Ant-v0": EnvSpec("ant", "Ant", 500),
    "NeRD/Anymal-v0": EnvSpec("anymal", "Anymal", 1000),
    "NeRD/Franka-v0": EnvSpec("franka", "Franka", 128),
    "NeRD/Strike-v0": EnvSpec("strike", "Strike", 20, backend="mujoco"),
    "NeRD/Robot-v0": EnvSpec("robot", "Robot", 1000, requires=("mjcf",)),
}
PACKAGED = {env_id: spec for env_id, spec in ENVS.items() if not spec.requires}  # those that can be made as they are


def env_spec(env_id: str) -> EnvSpec:
    """The row of an id, or an error that lists the valid ones."""
    if env_id not in ENVS:
        raise ValueError(f"unknown environment {env_id!r}; valid: {', '.join(ENVS)}")
    return ENVS[env_id]


def task_of(robot: RobotModel) -> str | None:
    """The id of a packaged robot's environment; None for a robot of one's own, or one that was changed."""
    for env_id, spec in PACKAGED.items():
        if spec.robot_name == robot.name and spec.robot({}).hash == robot.hash:
            return env_id
    return None


def register_envs() -> None:
    """Make the ids known to gymnasium; nothing heavy is imported."""
    for env_id, spec in ENVS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="nerd_gym.envs.single:NerdEnv",
                vector_entry_point="nerd_gym.envs.vector:NerdVectorEnv",
                max_episode_steps=spec.horizon,
                kwargs={"env_id": env_id},
            )
