"""What tests share: the grid of environments, and recorded trajectories of the published simulator."""

from __future__ import annotations

import copy
import os
from pathlib import Path

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    # One core for each of the processes: threads of several that share all cores mostly wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, below
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import gymnasium
import numpy as np
import pytest
import torch

import nerd_gym
from benchmarks.recorded_states import Recorded
from nerd_gym.backends import BACKENDS, make_backend
from nerd_gym.physics.torch.regressor import PER_LINK
from nerd_gym.registration import PACKAGED
from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel

ROOT = Path(__file__).parent.parent
# Recorded data of the published simulator is not part of the project; NERD_GYM_REFERENCE names its folder.
REFERENCE = Path(os.environ.get("NERD_GYM_REFERENCE", ROOT.parent / "shared" / "reference"))
ROBOTS = ("cartpole", "pendulum_contact", "ant", "anymal", "franka")
ANALYTICAL = ("warp", "mujoco")
LEARNED_ROBOTS = ROBOTS  # those with a packaged model
# Their matrix products round by the size of the batch, so that a row in a batch is not a robot alone to the bit.
NETWORKS = (("neural", "ant"), ("neural", "anymal"))
GRID = [(i, b) for i in PACKAGED for b in BACKENDS]
VARIANTS = {
    "NeRD/Cartpole-v0": [{}],
    "NeRD/PendulumContact-v0": [{"ground": 2}, {"ground": "random"}],
    "NeRD/Ant-v0": [{"task": "run"}, {"task": "spin"}, {"task": "spin_track"}],
    "NeRD/Anymal-v0": [{"task": t, "control": c} for t in ("forward", "side") for c in ("position", "torque")],
    "NeRD/Franka-v0": [{"control": c, "velocity": v} for c in ("position", "torque") for v in (True, False)],
}
CRITTER = ROOT / "examples" / "critter.xml"  # a robot of one's own
OWN_VARIANTS = [{"mjcf": str(CRITTER), "task": t, "control": c} for t, c in (("stand", "position"), ("track", "force"))]
ALL_VARIANTS = [(env_id, backend, options) for env_id, backend in GRID for options in VARIANTS[env_id]]
ALL_VARIANTS += [("NeRD/Robot-v0", backend, options) for backend in ANALYTICAL for options in OWN_VARIANTS]


def robot(name: str) -> nerd_gym.RobotModel:
    return nerd_gym.RobotModel.from_mjcf(CRITTER) if name == "critter" else nerd_gym.RobotModel.named(name)


def make_vec(env_id: str, num_envs: int, **options):
    return gymnasium.make_vec(env_id, num_envs=num_envs, array="torch", **options).unwrapped


def everyone(n: int) -> torch.Tensor:
    return torch.ones(n, dtype=torch.bool)


def random_state(model: nerd_gym.RobotModel, n: int, seed: int = 0, speed: float = 1.0, height: float = 0.0):
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
        q[:, 3:7] = torch.nn.functional.normalize(torch.randn(n, 4, generator=generator), dim=-1)
        qd[:, :6] = 0.5 * speed * uniform(n, 6)
    return q, qd


def backend_at(name: str, model, q, qd, ground=None, **options):
    backend = make_backend(name, model, len(q), **options)
    backend.reset(everyone(len(q)), q, qd, ground)
    return backend


@pytest.fixture(scope="session")
def recorded():
    """A function that loads a recorded set by name."""
    if not REFERENCE.is_dir():
        pytest.skip(f"no recorded trajectories in {REFERENCE}; set NERD_GYM_REFERENCE")
    return lambda name: Recorded(REFERENCE, name)


def true_parameters(model: RobotModel) -> torch.Tensor:
    """Inertias of the MJCF's links about their joints' origins, armature and damping, as identification has them."""
    links, each = read_links(model), []
    for mass, com, inertia in zip(links["mass"], links["com"], links["inertia"], strict=True):
        about = inertia + mass * (com @ com * np.eye(3) - np.outer(com, com))
        each += [mass, *(mass * com), *about[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]]
    assert len(each) == PER_LINK * len(links["mass"])
    own = (getattr(model.mj_model, name)[model.joint_qd] for name in ("dof_armature", "dof_damping"))
    return torch.as_tensor(np.concatenate([each, *own]))


def true_prior(model: RobotModel) -> dict[str, torch.Tensor]:
    """What identification would find in the MJCF's own motion."""
    return {"prior.parameters": true_parameters(model), "prior.gains": torch.tensor(model.contact_gains)}


def inverse_dynamics(model: RobotModel, q: torch.Tensor, qd: torch.Tensor, qdd: torch.Tensor) -> np.ndarray:
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
