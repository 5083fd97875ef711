"""Robots in random states, backends at them, and what MuJoCo and the MJCF say of a robot."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from nerd_gym import RobotModel
from nerd_gym.backends import make_backend
from nerd_gym.backends.base import Backend
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.physics.torch.regressor import PER_LINK
from nerd_gym.robots import symmetry
from nerd_gym.robots.links import read_links


def make_vec(env_id: str, num_envs: int, **options: Any) -> NerdVectorEnv:
    """A vector environment that speaks torch, without wrappers."""
    return gymnasium.make_vec(env_id, num_envs=num_envs, array="torch", **options).unwrapped


def everyone(n: int) -> Tensor:
    """The mask [N] of a reset of all rows."""
    return torch.ones(n, dtype=torch.bool)


def random_state(
    model: RobotModel, n: int, seed: int = 0, speed: float = 1.0, height: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Joints inside their limits, any base orientation, `height` over the MJCF's start."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return 2 * torch.rand(*shape, generator=generator) - 1

    q = torch.as_tensor(model.mj_model.qpos0, dtype=torch.float32).repeat(n, 1)
    low, high = np.clip(model.joint_range, -2.0, 2.0).T
    middle, half = (torch.as_tensor(x, dtype=torch.float32) for x in ((low + high) / 2, (high - low) / 2))
    q[:, model.joint_q] = middle + 0.2 * half * uniform(n, model.nj)
    qd = torch.zeros(n, model.nv)
    qd[:, model.joint_qd] = 0.15 * speed * uniform(n, model.nj)
    if model.free_base:
        q[:, 2] += height
        q[:, 3:7] = normalize(torch.randn(n, 4, generator=generator), dim=-1)
        qd[:, :6] = 0.5 * speed * uniform(n, 6)
    return q, qd


def wide_state(model: RobotModel, n: int, seed: int = 0, height: float = -0.3) -> tuple[Tensor, Tensor]:
    """Joints in all their range, so that contacts and limits are near."""
    q, qd = random_state(model, n, seed, speed=4.0, height=height)
    generator = torch.Generator().manual_seed(seed + 1)
    q[:, model.joint_q] += 0.3 * torch.randn(n, model.nj, generator=generator)
    return q, qd


def fixed_base_state(model: RobotModel, n: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Fast joints q, qd [N, nj] of a fixed base, forces [N, nj], and planes (point, normal) [N, 3] within its reach."""
    generator = torch.Generator().manual_seed(seed)
    q, qd = (torch.randn(n, model.nj, generator=generator) * k for k in (1.0, 3.0))
    force = torch.as_tensor(model.force_limit, dtype=torch.float32) * torch.randn(n, model.nj, generator=generator) / 3
    normal = normalize(torch.randn(n, 3, generator=generator), dim=-1)
    distance = 1.5 * torch.rand(n, 1, generator=generator)
    point = torch.tensor([0.0, -1.0, 2.0]) - distance * normal
    return q, qd, force, point, normal


def ground(model: RobotModel, n: int) -> tuple[Tensor, Tensor]:
    """Level under a free base; any plane through the reach of a fixed one."""
    generator = torch.Generator().manual_seed(7)
    point, normal = torch.zeros(n, 3), torch.tensor([0.0, 0.0, 1.0]).repeat(n, 1)
    if model.free_base:
        return point, normal
    normal = normalize(torch.randn(n, 3, generator=generator), dim=1)
    base = torch.tensor([0.0, -1.0, 2.0])
    return base - (0.3 + 2 * torch.rand(n, 1, generator=generator)) * normal, normal


def moved_ground(model: RobotModel, element: symmetry.Element, point: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """The ground as a symmetry of the robot moves it."""
    return symmetry.transform_points(model, element, point), symmetry.transform_vectors(model, element, normal)


def push(model: RobotModel, n: int, seed: int = 0) -> Tensor:
    """Random joint forces [N, nj] of up to 5 N or N m."""
    return 5 * (2 * torch.rand(n, model.nj, generator=torch.Generator().manual_seed(seed)) - 1)


def backend_at(name: str, model: RobotModel, q: Tensor, qd: Tensor, ground=None, **options: Any) -> Backend:
    """A backend with its rows at given states."""
    backend = make_backend(name, model, len(q), **options)
    backend.reset(everyone(len(q)), q, qd, ground)
    return backend


def true_parameters(model: RobotModel) -> Tensor:
    """Inertias of the MJCF's links about their joints' origins, armature and damping, as identification has them."""
    links, each = read_links(model), []
    for mass, com, inertia in zip(links["mass"], links["com"], links["inertia"], strict=True):
        about = inertia + mass * (com @ com * np.eye(3) - np.outer(com, com))
        each += [mass, *(mass * com), *about[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]]
    assert len(each) == PER_LINK * len(links["mass"])
    own = (getattr(model.mj_model, name)[model.joint_qd] for name in ("dof_armature", "dof_damping"))
    return torch.as_tensor(np.concatenate([each, *own]))


def true_prior(model: RobotModel) -> dict[str, Tensor]:
    """What identification would find in the MJCF's own motion."""
    return {"prior.parameters": true_parameters(model), "prior.gains": torch.tensor(model.contact_gains)}


def true_constraints(model: RobotModel) -> dict[str, Tensor]:
    """The same of MuJoCo's own contacts and limits: solref, impedance of deep contacts, friction."""
    m = model.mj_model
    contact, limit = (
        (m.geom_solref[model.ground], m.geom_solimp[model.ground][1]),
        (m.jnt_solref[1], m.jnt_solimp[1][1]),
    )
    law = [*contact[0], contact[1], m.geom_friction[model.ground][0], *limit[0], limit[1]]
    return {"prior.parameters": true_parameters(model), "prior.constraint": torch.tensor(law)}


def inverse_dynamics(model: RobotModel, q: Tensor, qd: Tensor, qdd: Tensor) -> np.ndarray:
    """MuJoCo's forces [N, nv] for accelerations, without contacts and limits."""
    import mujoco  # here, because nerd_gym chooses how it draws before its first import

    free = copy.copy(model.mj_model)
    free.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    data, forces = mujoco.MjData(free), []
    for row in range(len(q)):
        data.qpos[:], data.qvel[:], data.qacc[:] = q[row], qd[row], qdd[row]
        mujoco.mj_inverse(free, data)
        forces.append(data.qfrc_inverse.copy())
    return np.stack(forces)
