"""Rollouts of tasks and their policies: blocks of trajectories that start where a task starts its robot.

In a block every row is driven by its own: nothing at all, the task's controller at rest, springs of random stiffness to
random targets (if the task has springs), random actions, or the block's policy with more or less noise. A quarter of
the blocks begin at the task's start, a quarter some time later, and a quarter off the task's start: turned, moving,
anywhere near the ground. In the last quarter nothing but the task's controller at rest moves the robots, half of them
not even that: they fall from the task's start and settle. If there is a model to be refined, every other block begins
where the model has taken its robots by then: a policy that gains by a model's error goes in the model where it never
gets to in the teacher.

Legs whose joints have no limits may be flung round by a fall at hundreds of rad/s. No task lets a robot go on from
there, and a few such frames have more variance than all others together, so that a network would learn nothing else:
of such robots trajectories in which a joint becomes faster than `WILD` are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerd_gym.backends.neural import NeuralBackend
from nerd_gym.envs.factory import endless_env
from nerd_gym.envs.task import State
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.policies.agents import load_agent
from nerd_gym.policies.facts import of_task, trained_for
from nerd_gym.registration import task_of
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_exp, quat_multiply

LIMP, REST, SPRING, RANDOM, POLICY = range(5)
STARTS = ("start", "later", "displaced", "passive")
REFINING = ("start", "modelled", "later", "modelled", "displaced", "modelled")  # with a model to be refined
WILD = 40.0  # rad/s
EDGES = (0.1, 0.2, 0.35, 0.5)  # where the parts of the rows end that are limp, at rest, ...; the last follow the policy
EXACT = 0.25  # the part of the policy's rows without noise
LONGEST_WARM_UP = 400  # frames
HOLD = 20  # frames that noise is held at most
STIFFNESS, DAMPING = (30.0, 200.0), (0.0, 3.0)  # N m/rad and N m s/rad of random springs
REACH = 1.0  # rad: how far their targets are from the task's pose
TURN, HEIGHT, VELOCITY, SPIN, JOINT, RATE = 1.2, 0.3, 1.5, 4.0, 0.5, 5.0  # how far starts are off, rad, m and s


def default_share(robot: RobotModel) -> float:
    """Of the blocks that begin where the robot's task begins.

    Random torques make legs whose joints have no limits spin at hundreds of rad/s, which no rollout ever does and no
    network learns: of such robots all blocks are the task's.
    """
    if not robot.free_base or task_of(robot) is None:
        return 0.0
    return 0.75 if all_limited(robot) else 1.0


def all_limited(robot: RobotModel) -> bool:
    """Whether no joint can turn without end."""
    return bool(np.isfinite(robot.joint_range).all())


def check_policies(robot: RobotModel, policies: Sequence[Path]) -> str:
    """The id of the environment that policies act in; an error if there is none or they are of another."""
    env_id = env_of(robot)
    for path in policies:
        found, _ = task_of_policy(path)
        if found != env_id:
            raise ValueError(f"{path.name} is a policy of {found}; the data are of {env_id}")
    return env_id


def env_of(robot: RobotModel) -> str:
    """The id of the environment with a robot's task, or an error."""
    env_id = task_of(robot)
    if env_id is None:
        raise ValueError(f"{robot.name!r} has no task to roll out; valid share of a task: 0")
    return env_id


def turns(rollout: int, policies: int, kinds: Sequence[str] = STARTS) -> tuple[str, int]:
    """Which kind of start and which policy a rollout has: every policy is given one rollout of each kind in turn."""
    return kinds[rollout % len(kinds)], rollout // len(kinds) % max(1, policies)


class TaskRollouts:
    """Environments and policies of a robot, on one backend; :func:`check_policies` tells whether they fit."""

    def __init__(
        self,
        robot: RobotModel,
        backend: str,
        num_envs: int,
        policies: Sequence[Path],
        options: dict[str, Any],
        model: Path | None = None,
        starts: Sequence[str] = STARTS,
    ):
        env_id = env_of(robot)
        self._make = lambda task: endless_env(env_id, num_envs, backend, **task, **options)
        self._model = model
        self._make_modelled = lambda task: endless_env(env_id, num_envs, NeuralBackend.name, **task, model=model)
        self._policies, self._starts = tuple(policies), REFINING if model else tuple(starts)
        self._made: dict[tuple[int, bool], tuple[NerdVectorEnv, Any]] = {}
        self.num_envs = num_envs

    def driven(self, which: int, modelled: bool = False) -> tuple[NerdVectorEnv, Any]:
        """The environment of a policy, by its number, on the teacher or the model; and the policy (None if none)."""
        key = which, modelled
        if key not in self._made:
            make = self._make_modelled if modelled else self._make
            if self._policies:
                env = make(task_of_policy(self._policies[which])[1])
                self._made[key] = env, load_agent(self._policies[which], env)
            else:
                self._made[key] = make({}), None
            task = self._made[key][0].task
            if task.frames != 1:
                raise ValueError(f"{task.robot.name}: a task with several frames in a step cannot be recorded")
        return self._made[key]

    def start(self, rollout: int, block: int, seed: int) -> Excitation:
        """Put the robots of a block, the so-manieth rollout, where its trajectories begin."""
        start, which = turns(rollout, len(self._policies), self._starts)
        excitation, env_seed = self._drive(which, block, seed), ((seed << 20) + block) * self.num_envs % 2**31
        excitation.env.reset(seed=env_seed)
        if start == "later":
            excitation.warm_up()
        elif start == "displaced":
            excitation.displace()
        elif start == "passive":
            excitation.let_go()
        elif start == "modelled":
            ahead = self._drive(which, block, seed, modelled=True)
            ahead.env.reset(seed=env_seed)
            ahead.warm_up()
            excitation.backend.reset(torch.ones_like(excitation.backend.healthy), ahead.backend.q, ahead.backend.qd)
        return excitation

    def _drive(self, which: int, block: int, seed: int, modelled: bool = False) -> Excitation:
        return Excitation(*self.driven(which, modelled), torch.Generator().manual_seed((seed << 24) + block))

    def close(self) -> None:
        """Give back threads."""
        for env, _ in self._made.values():
            env.close()


class Excitation:
    """What pushes each of the robots of a block."""

    def __init__(self, env: NerdVectorEnv, agent: Any, generator: torch.Generator):
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
        self._warm = int(torch.randint(1, LONGEST_WARM_UP, (), generator=generator))
        spring = env.task.actuation
        self._pose = torch.tensor(spring["pose"]) if "pose" in spring else None
        if self._pose is None:
            self._kind = torch.where(self._kind == SPRING, RANDOM, self._kind)
        self._stiffness = STIFFNESS[0] + (STIFFNESS[1] - STIFFNESS[0]) * self._unit(n, 1)
        self._damping = DAMPING[0] + (DAMPING[1] - DAMPING[0]) * self._unit(n, 1)
        self._noise = 2 * self._unit(n, env.task.action_size) - 1
        self._frame = 0

    def _unit(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._generator)

    def let_go(self) -> None:
        """Nobody acts."""
        self._kind = torch.where(self._unit(*self._kind.shape) < 0.5, LIMP, REST)

    def warm_up(self) -> None:
        """Some time passes before the trajectories begin; robots that have failed by then start again."""
        for _ in range(self._warm):
            self.step()
        failed = self.env.task.terminated(self._state) | ~self.backend.healthy
        if self.backend.may_hold(failed):
            self.env.reset(options={"reset_mask": failed})

    def displace(self) -> None:
        """Turn the robots, set them moving, and put their lowest points near the ground."""
        backend, robot = self.backend, self.backend.robot
        n, everyone = backend.num_envs, torch.ones_like(backend.healthy)
        q, qd = backend.q.cpu().clone(), backend.qd.cpu().clone()
        size = self._unit(n, 1)  # every row is off by its own measure

        def off(width: float, columns: int) -> Tensor:
            return size * width * (2 * self._unit(n, columns) - 1)

        q[:, robot.joint_q] += off(JOINT, robot.nj)
        qd[:, robot.joint_qd] += off(RATE, robot.nj)
        if robot.free_base:
            rotation = quat_exp(off(TURN, 3))
            q[:, 3:7] = torch.nn.functional.normalize(quat_multiply(q[:, 3:7], rotation), dim=-1)
            qd[:, :6] += torch.cat([off(VELOCITY, 3), off(SPIN, 3)], 1)
        q, qd = q.to(backend.device), qd.to(backend.device)
        backend.reset(everyone, q, qd)
        if robot.free_base and robot.ground is not None:
            gap = (HEIGHT * self._unit(n) ** 2).to(backend.device)
            q[:, 2] += gap - backend.contacts.distance.amin(-1)
            backend.reset(everyone, q, qd)

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
        if self._pose is not None:
            force = torch.where((self._kind == SPRING).to(device), self._spring(self._pose), force)
        self.backend.step(force)
        return force

    def _spring(self, pose: Tensor) -> Tensor:
        """[N, nj]: forces to targets about a pose [nj] that stay while the noise does."""
        robot, backend = self.backend.robot, self.backend
        target = pose + REACH * self._spread * self._noise
        push = self._stiffness * (target - backend.q[:, robot.joint_q].cpu())
        return (push - self._damping * backend.qd[:, robot.joint_qd].cpu()).to(backend.device)


def task_of_policy(policy: Path) -> tuple[str, dict[str, Any]]:
    """Environment and options of the task that a policy's file tells; those of its own backend mean nothing here."""
    env_id, _, options = trained_for(policy)
    return env_id, of_task(env_id, options)
