"""Returns of a task with gradients: any task rolled out on the differentiable engine, from where an environment stands.

env = gymnasium.make_vec("NeRD/Franka-v0", num_envs=64, array="torch").unwrapped
obs, _ = env.reset(seed=0)
rollout = task_rollout(env, policy, steps=16)
(-rollout.returns.mean()).backward()  # by the policy's weights, through engine and reward
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nerd_gym.augmented.models.model import AugmentedModel
from nerd_gym.envs.task import BaseMotion, State, Task
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.robots.contacts import ContactFinder, Contacts
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.rotations import quat_to_matrix
from nerd_gym.utils.arguments import whole


class _Moving:
    """What a State asks a backend for, as differentiable tensors."""

    def __init__(self, env: NerdVectorEnv, dtype: torch.dtype):
        backend = env.backend
        self.kinematics = Kinematics(backend.robot, env.device, dtype)
        self.find = ContactFinder(backend.robot, self.kinematics)
        self.q, self.qd = (x.detach().clone().to(dtype) for x in (backend.q, backend.qd))
        point, normal = (x.detach().clone().to(dtype) for x in (backend.ground_point, backend.ground_normal))
        self.ground = point, normal
        self._cache: dict[str, Any] = {}

    def moved(self, q: Tensor, qd: Tensor) -> None:
        """Stand elsewhere."""
        self.q, self.qd, self._cache = q, qd, {}

    def cached(self, key: str, compute: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]

    @property
    def poses(self) -> Tensor:
        return self.cached("poses", lambda: self.kinematics.poses(self.q))

    @property
    def contacts(self) -> Contacts:
        return self.cached("contacts", lambda: self.find(self.q, *self.ground, self.poses))

    def site(self, name: str) -> Tensor:
        return self.kinematics.points(self.poses, self.kinematics.site(name))[:, 0]


class _State(State):
    """A state whose base motion has gradients too."""

    def _base_motion(self) -> BaseMotion:
        rotation = quat_to_matrix(self.q[:, 3:7])
        omega = (rotation @ self.qd[:, 3:6, None])[..., 0]
        return BaseMotion(self.qd[:, :3], omega, rotation[:, 2, 2:], rotation[:, 0, :1])


@dataclass
class TaskRollout:
    """What came of it."""

    returns: Tensor  # [N], of the steps until a row's episode ends
    rewards: Tensor  # [T, N], 0 after that
    observation: Tensor  # [N, obs_size] at the end
    q: Tensor  # [N, nq] at the end
    qd: Tensor  # [N, nv]
    ended: Tensor  # [N] bool, rows that failed or diverged


def task_rollout(
    env: NerdVectorEnv,
    policy: Callable[[Tensor], Tensor],
    steps: int,
    model: AugmentedModel | None = None,
    discount: float = 1.0,
    substeps: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> TaskRollout:
    """Play a policy, observations [N, n] to actions [N, m], for some steps; the environment itself does not move.

    The engine is the plain one, or `model`'s.
    """
    task = env.task
    whole("steps", steps)
    if type(task).drive is not Task.drive:
        raise ValueError(f"{type(task).__name__} places what it moves, which has no gradient; other tasks have")
    if model is not None and model.robot.hash != task.robot.hash:
        raise ValueError(f"the model is of robot {model.robot.name!r}; the task's is {task.robot.name!r}")
    engine = AugmentedModel(task.robot) if model is None else model
    engine = engine if dtype is torch.float64 else engine.float_copy(env.device)
    moving = _Moving(env, dtype)
    state = _State(moving, env.goal.detach().clone())  # pyright: ignore[reportArgumentType]
    alive, rewards = torch.ones(env.num_envs, dtype=torch.bool, device=env.device), []
    time = torch.zeros(env.num_envs, dtype=dtype, device=env.device)
    for _ in range(steps):
        action = policy(task.observe(state))
        force = None
        for part in task.drive(action, state):
            force = part.force
            q, qd = engine.frame(state.q, state.qd, force, moving.ground, substeps, time)
            # A row that diverged stays, and gives no gradient that is no number.
            fine = (q.isfinite().all(-1) & qd.isfinite().all(-1))[:, None]
            alive = alive & fine[:, 0]
            moving.moved(torch.where(fine, q, state.q), torch.where(fine, qd, state.qd))
            time = time + task.robot.frame_dt
        assert force is not None
        reward, _ = task.reward(state, action, force)
        rewards.append(torch.where(alive, reward, 0.0))
        alive = alive & ~task.terminated(state)
        if (goal := task.next_goal(state)) is not None:
            state.goal = goal
    earned = torch.stack(rewards)
    weights = discount ** torch.arange(steps, dtype=dtype, device=env.device)
    returns = (weights[:, None] * earned).sum(0)
    return TaskRollout(returns, earned, task.observe(state), state.q, state.qd, ~alive)
