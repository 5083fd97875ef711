"""How far backends drift apart under the same actions from the same start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from torch import Tensor

from .dynamics.checkpoint import has_packaged_model
from .envs.vector import NerdVectorEnv
from .registration import env_spec
from .robots.kinematics import wrap_angle
from .robots.model import HINGE, RobotModel

MEASURES = {"position": "m", "orientation": "rad", "joints": "rad or m"}


ANALYTICAL = ("warp", "mujoco")


def backends_of(env_id: str) -> tuple[str, ...]:
    """The analytical backends, and the learned one if a model of the robot is packaged."""
    learned = has_packaged_model(env_spec(env_id).robot_name, ANALYTICAL[0])
    return (*ANALYTICAL, "neural") if learned else ANALYTICAL


@dataclass
class Drift:
    """Errors per frame and environment, [T, N] each; a fixed base has joints alone."""

    env_id: str
    backends: tuple[str, str]
    errors: dict[str, Tensor]

    def at(self, frame: int) -> dict[str, float]:
        """The median over the environments after `frame` frames."""
        return {name: float(error[frame - 1].median()) for name, error in self.errors.items()}


def state_error(robot: RobotModel, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Errors [N] between states q [N, nq]: base position, base orientation (angle), mean over the joints."""
    errors = {}
    if robot.free_base:
        errors["position"] = (a[:, :3] - b[:, :3]).norm(dim=-1)
        # The vector part of the turn between them: exact for small turns, where the scalar part is not.
        vector = a[:, 3:4] * b[:, 4:7] - b[:, 3:4] * a[:, 4:7] - torch.linalg.cross(a[:, 4:7], b[:, 4:7])
        errors["orientation"] = 2 * torch.asin(vector.norm(dim=-1).clamp(max=1))
    errors["joints"] = joint_difference(robot, a, b).mean(-1)
    return errors


def joint_difference(robot: RobotModel, a: Tensor, b: Tensor) -> Tensor:
    """[N, nj]: how far the joints of states q [N, nq] are apart, hinges the shorter way round."""
    off = a[:, robot.joint_q] - b[:, robot.joint_q]
    hinge = torch.as_tensor(robot.mj_model.jnt_type[-robot.nj :] == HINGE, device=off.device)
    return torch.where(hinge, wrap_angle(off), off).abs()


def smooth_actions(env: NerdVectorEnv, frames: int, seed: int, scale: float = 0.5, hold: int = 8) -> Tensor:
    """[frames, N, action_size]: random actions that stay the same for `hold` steps."""
    generator = torch.Generator().manual_seed(seed)
    shape = (-(-frames // hold), env.num_envs, env.task.action_size)
    actions = scale * (2 * torch.rand(shape, generator=generator) - 1)
    return actions.repeat_interleave(hold, 0)[:frames].to(env.device)


def endless_env(env_id: str, num_envs: int, backend: str, **options: Any) -> NerdVectorEnv:
    """A batch in torch that knows no horizon."""
    return quiet_env(env_id, num_envs, backend, max_episode_steps=None, **options)


def quiet_env(env_id: str, num_envs: int, backend: str, **options: Any) -> NerdVectorEnv:
    """A batch in torch that nobody resets on the way."""
    return gymnasium.make_vec(
        env_id, num_envs=num_envs, backend=backend, array="torch", autoreset_mode="Disabled", **options
    ).unwrapped


def measure_drift(
    env_id: str,
    backends: tuple[str, ...] = ("warp", "mujoco"),
    frames: int = 100,
    num_envs: int = 64,
    seed: int = 0,
    on_step: Callable[[int, list[NerdVectorEnv]], None] | None = None,
    **options,
) -> list[Drift]:
    """Step all backends with the same actions, nobody being reset on the way: the drift of each from the first."""
    envs = [endless_env(env_id, num_envs, backend, **options) for backend in backends]
    for env in envs:
        env.reset(seed=seed)
    actions = smooth_actions(envs[0], frames, seed)
    rows: list[dict[str, list[Tensor]]] = [{} for _ in envs[1:]]
    for step in range(frames):
        for env in envs:
            env.step(actions[step])
        for row, env in zip(rows, envs[1:], strict=True):
            for name, error in state_error(env.task.robot, envs[0].backend.q, env.backend.q).items():
                row.setdefault(name, []).append(error)
        if on_step is not None:
            on_step(step, envs)
    for env in envs:
        env.close()
    return [
        Drift(env_id, (backends[0], other), {name: torch.stack(errors) for name, errors in row.items()})
        for other, row in zip(backends[1:], rows, strict=True)
    ]
