"""Play every row's first episode and keep what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from nerd_gym.envs.factory import manual_reset_env, native
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.policies.agents import Agent
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_exp, quat_multiply
from nerd_gym.wrappers.reference_observation import in_layout

Probe = Callable[[NerdVectorEnv], Tensor]  # [N, ...] after a step


@dataclass
class Episodes:
    """N episodes, at most T steps long."""

    returns: Tensor  # [N]
    lengths: Tensor  # [N] steps
    terminated: Tensor  # [N] bool: failed
    diverged: Tensor  # [N] bool: the simulation came apart
    full_length: Tensor  # [N] bool: neither, until the horizon
    start: dict[str, Tensor]  # q, qd, goal, ground_point, ground_normal: [N, ...]
    running: Tensor  # [T, N] bool: the step was part of the episode
    q: Tensor  # [T, N, nq] after each step; after its end an episode's last state
    measures: dict[str, Tensor]  # [T, N], the task's
    model_trust: Tensor | None  # [T, N], if the backend tells it
    probed: dict[str, Tensor]  # [T, N, ...], of the functions that were given

    def mean(self, values: Tensor) -> Tensor:
        """[N]: mean of [T, N] over each episode."""
        return torch.where(self.running, values, 0.0).sum(0) / self.lengths

    def last(self, values: Tensor) -> Tensor:
        """[N]: [T, N] at each episode's last step."""
        return values.gather(0, self.lengths[None] - 1)[0]


def episode_env(env_id: str, num_envs: int, backend: str, layout: str = "native", **options: Any) -> VectorEnv:
    """An environment such as :func:`first_episodes` takes."""
    return in_layout(manual_reset_env(env_id, num_envs, backend, **options), layout)


def first_episodes(
    env: VectorEnv,
    agent: Agent,
    seed: int = 0,
    displaced: float = 0.0,
    probes: dict[str, Probe] | None = None,
    on_step: Callable[[], Any] | None = None,
) -> Episodes:
    """Every row's first episode.

    Args:
        env: wrapped or not, in torch and with autoreset DISABLED, so that the last state of an episode can be seen.
        seed: of the starts; row k has that of `seed + k`.
        displaced: how far the starts are moved away from there (:func:`displace`).
        probes: functions of the native environment to be called after every step, by name.
        on_step: called after every step.
    """
    inner = native(env)
    horizon, backend = horizon_of(inner), inner.backend
    agent.reset()
    obs, _ = env.reset(seed=seed)
    if displaced:
        state = displace(inner.task.robot, backend.q, displaced, seed), backend.qd.clone()
        obs, _ = env.reset(seed=seed, options={"state": state})
    parts = ("q", "qd", "ground_point", "ground_normal")
    start = {name: getattr(backend, name).clone() for name in parts} | {"goal": inner.goal.clone()}
    nothing = torch.zeros(inner.num_envs, dtype=torch.bool, device=inner.device)
    returns, now_running = nothing.float(), ~nothing
    terminated, diverged = nothing.clone(), nothing.clone()
    running, series = [], {}
    q = start["q"]
    for _ in range(horizon):
        obs, reward, failed, cut, info = env.step(agent.act(obs))
        running.append(now_running)
        q = torch.where(now_running[:, None], backend.q, q)
        told = {"q": q} | ({"model_trust": info["model_trust"]} if "model_trust" in info else {})
        told |= {("measure", name): value for name, value in inner.measures().items()}
        told |= {("probes", name): function(inner) for name, function in (probes or {}).items()}
        for key, value in told.items():
            series.setdefault(key, []).append(value.clone())  # what a task gives may be a view of the state
        returns = returns + reward * now_running
        terminated |= now_running & failed
        diverged |= now_running & info["diverged"]
        now_running = now_running & ~(failed | cut)
        agent.reset(failed | cut)
        if on_step is not None:
            on_step()
        if not backend.may_hold(now_running):
            break
    stacked = {key: torch.stack(values) for key, values in series.items()}
    running = torch.stack(running)
    return Episodes(
        returns=returns,
        lengths=running.sum(0),
        terminated=terminated,
        diverged=diverged,
        full_length=~(terminated | diverged | now_running),
        start=start,
        running=running,
        q=stacked["q"],
        measures=_named(stacked, "measure"),
        model_trust=stacked.get("model_trust"),
        probed=_named(stacked, "probes"),
    )


def horizon_of(env: NerdVectorEnv) -> int:
    """Steps of a whole episode in an environment such as :func:`first_episodes` takes; others are refused."""
    if env.autoreset_mode is not AutoresetMode.DISABLED or env.array != "torch" or env.horizon is None:
        raise ValueError("first episodes need an environment with array='torch', autoreset DISABLED and a horizon")
    return env.horizon


def displace(robot: RobotModel, q: Tensor, size: float, seed: int = 0) -> Tensor:
    """States q [N, nq] moved by `size` (m or rad) one direction or the other in every joint and direction.

    A free base is turned by `size` about some axis.
    """
    generator = torch.Generator().manual_seed(seed)
    direction = torch.sign(torch.rand(q.shape, generator=generator) - 0.5).to(q.device)
    moved = q + size * direction
    if robot.free_base:
        rotation = quat_exp(size * torch.nn.functional.normalize(direction[:, 4:7], dim=-1))
        moved[:, 3:7] = torch.nn.functional.normalize(quat_multiply(q[:, 3:7], rotation), dim=-1)
    return moved


def _named(series: dict[Any, Tensor], kind: str) -> dict[str, Tensor]:
    return {key[1]: value for key, value in series.items() if key[0] == kind}
