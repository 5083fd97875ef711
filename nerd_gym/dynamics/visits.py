"""States that tasks and their policies visit: blocks of trajectories that start where a task starts its robot.

In a block every row is driven by its own: nothing at all, the task's controller at rest, random actions, or the
block's policy with more or less noise. Half of the blocks begin at the task's start, the others some time later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..agents import load_agent
from ..drift import endless_env
from ..envs.task import State
from ..envs.vector import NerdVectorEnv
from ..registration import ENVS
from ..robots.model import RobotModel

LIMP, REST, RANDOM, POLICY = range(4)
EDGES = (0.1, 0.2, 0.4)  # parts of the rows that are limp, at rest, random; the others follow the policy
EXACT = 0.25  # the part of the policy's rows without noise
LONGEST_WARM_UP = 400  # frames
HOLD = 20  # frames that noise is held at most


def task_of(robot: RobotModel) -> str | None:
    """The id of a packaged robot's environment."""
    if robot.hash not in {RobotModel.named(spec.robot_name).hash for spec in ENVS.values()}:
        return None
    return next(name for name, spec in ENVS.items() if spec.robot_name == robot.name)


def default_share(robot: RobotModel) -> float:
    """Of the blocks that begin where the robot's task begins."""
    return 0.4 if robot.free_base and task_of(robot) is not None else 0.0


class Visits:
    """Environments and policies of a robot, on one backend."""

    def __init__(
        self, robot: RobotModel, backend: str, num_envs: int, policies: Sequence[Path], options: dict[str, Any]
    ):
        env_id = task_of(robot)
        if env_id is None:
            raise ValueError(f"{robot.name!r} has no task whose states could be visited; valid share of a task: 0")
        self._make = lambda task: endless_env(env_id, num_envs, backend, **task, **options)
        self._policies = tuple(policies)
        self._made: dict[int, tuple[NerdVectorEnv, Any]] = {}
        self.num_envs = num_envs
        for path in self._policies:
            _, found = trained_for(path)
            if found != env_id:
                raise ValueError(f"{path.name} is a policy of {found}; the data are of {env_id}")

    def driven(self, block: int) -> tuple[NerdVectorEnv, Any]:
        """The environment of a block and its policy (None if there is none)."""
        which = block % max(1, len(self._policies))
        if which not in self._made:
            if self._policies:
                task, _ = trained_for(self._policies[which])
                env = self._make(task)
                self._made[which] = env, load_agent(self._policies[which], env)
            else:
                self._made[which] = self._make({}), None
            if self._made[which][0].task.frames != 1:
                raise ValueError(f"{env.task.robot.name}: a task with several frames in a step cannot be recorded")
        return self._made[which]

    def start(self, block: int, seed: int, frames: int) -> Drive:
        """Put the robots of a block where its trajectories begin."""
        env, agent = self.driven(block)
        drive = Drive(env, agent, torch.Generator().manual_seed((seed << 24) + block), frames)
        env.reset(seed=((seed << 20) + block) * self.num_envs % 2**31)
        drive.warm_up()
        return drive

    def close(self) -> None:
        """Give back threads."""
        for env, _ in self._made.values():
            env.close()


class Drive:
    """What pushes each of the robots of a block."""

    def __init__(self, env: NerdVectorEnv, agent: Any, generator: torch.Generator, frames: int):
        self.env, self.backend, self._agent, self._generator = env, env.backend, agent, generator
        n = env.num_envs
        self._state = State(env.backend, env.goal)
        self._kind = torch.bucketize(self._unit(n, 1), torch.tensor(EDGES), right=True)
        if agent is None:
            self._kind = self._kind.clamp(max=RANDOM)
        else:
            agent.reset()
        spread = torch.exp(math.log(30) * (self._unit(n, 1) - 1))  # log-uniform from a thirtieth to the whole
        exact = (self._kind == POLICY) & (self._unit(n, 1) < EXACT)
        self._spread = torch.where(exact, 0.0, spread)
        self._hold = torch.randint(1, HOLD + 1, (n, 1), generator=generator)
        warm = int(torch.randint(1, LONGEST_WARM_UP, (), generator=generator))
        self._warm = warm if bool(self._unit(1) < 0.5) else 0
        self._noise = 2 * self._unit(n, env.task.action_size) - 1
        self._frame = 0

    def _unit(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._generator)

    def warm_up(self) -> None:
        """Some time passes before the trajectories begin; robots that have failed by then start again."""
        for _ in range(self._warm):
            self.step()
        failed = self.env.task.terminated(self._state) | ~self.backend.healthy
        if self._warm and self.backend.may_hold(failed):
            self.env.reset(options={"reset_mask": failed})

    def step(self) -> Tensor:
        """One frame; gives the joint forces [N, nj]."""
        task, device = self.env.task, self.backend.device
        fresh = 2 * self._unit(*self._noise.shape) - 1
        self._noise = torch.where(self._frame % self._hold == 0, fresh, self._noise)
        self._frame += 1
        action = (self._spread * self._noise * (self._kind != REST)).to(device)
        if self._agent is not None:
            chosen = self._agent.act(task.observe(self._state))
            action = action + torch.where((self._kind == POLICY).to(device), chosen, 0.0)
        force = task.joint_force(action, self._state)
        force = torch.where((self._kind == LIMP).to(device), 0.0, force)
        self.backend.step(force)
        return force


def trained_for(policy: Path) -> tuple[dict[str, Any], str]:
    """Options of the task and the environment that a policy's file tells."""
    from ..rl.evaluate import trained_for as facts_of

    env_id, _, options = facts_of(policy)
    return options, env_id
