"""Small learned models with random weights, what they are fitted to, and predictions of kernels beside torch's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from nerd_gym import RobotModel
from nerd_gym.backends import make_backend
from nerd_gym.data.excitation import Sampler, ranges_for
from nerd_gym.dynamics.models.mlp import MlpModel
from nerd_gym.dynamics.models.network_model import NetworkModel
from nerd_gym.dynamics.models.transformer import TransformerModel
from nerd_gym.robots.state import Motion

from .grid import robot
from .states import everyone, ground, wide_state

SMALL = {"mlp": {"width": 64, "depth": 2}, "transformer": {"layers": 2, "heads": 4, "width": 32, "window": 10}}
TOLERANCE = 1e-5  # of a prediction, relative to the largest change
INPUTS = 1e-3  # of a normalised input: a rounding error of a distance over its finest scale
# Several joints on a body, anchors, references and a welded body.
TREE = """
<mujoco><compiler angle="radian"/><worldbody>
  <geom type="plane" size="0 0 1" contype="0" conaffinity="1"/>
  <body name="rail" pos="0 0 1" euler="0.1 0.2 0.3">
    <joint type="slide" axis="1 0 0" pos="0.1 0 0"/><joint axis="0 1 1" pos="0.3 0.1 -0.2" ref="0.4"/>
    <geom type="capsule" size="0.1 0.3" conaffinity="0"/>
    <body name="welded" pos="0.5 0 0" quat="0.3 0.1 0.9 0"><geom size="0.1" conaffinity="0"/>
      <body name="tip" pos="0 0.2 0"><joint axis="1 2 3" pos="0 0 0.4"/>
        <geom type="box" size="0.1 0.2 0.3" conaffinity="0"/></body>
    </body>
  </body>
</worldbody></mujoco>"""


@lru_cache(maxsize=8)
def trajectories(name: str, frames: int = 24, rows: int = 128) -> dict[str, Tensor]:
    """Motion on `mujoco` under random forces."""
    model = robot(name)
    backend = make_backend("mujoco", model, rows, threads=1)
    q, qd = wide_state(model, rows)
    backend.reset(everyone(rows), q, qd, ground(model, rows) if model.ground is not None else None)
    generator = torch.Generator().manual_seed(1)
    limit = torch.as_tensor(model.force_limit, dtype=torch.float32)
    force = 0.5 * limit * (2 * torch.rand(rows, frames, model.nj, generator=generator) - 1)
    qs, qds = [backend.q.clone()], [backend.qd.clone()]
    for frame in range(frames):
        backend.step(force[:, frame])
        qs.append(backend.q.clone())
        qds.append(backend.qd.clone())
    backend.close()
    grounds = {k: getattr(backend, k).clone() for k in ("ground_point", "ground_normal")}
    return {"q": torch.stack(qs, 1), "qd": torch.stack(qds, 1), "force": force} | grounds


@lru_cache(maxsize=4)
def motion(name: str, backend: str, frames: int = 8, rows: int = 256, **options: Any) -> dict[str, Tensor]:
    """Random motion of a teacher, in windows of one frame."""
    teacher = make_backend(backend, robot(name), rows, **options)
    sampler = Sampler(teacher, ranges_for(robot(name), "wide"), 0, 0)
    sampler.start()
    forces, parts = sampler.forces(frames), []
    for frame in range(frames):
        before = teacher.q.clone(), teacher.qd.clone()
        force = forces.at(frame, *before)
        teacher.step(force)
        q, qd = (torch.stack(pair, 1) for pair in zip(before, (teacher.q, teacher.qd), strict=True))
        parts.append({"q": q, "qd": qd, "force": force[:, None]})
    batch = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    return batch | {key: getattr(teacher, key).repeat(frames, 1) for key in ("ground_point", "ground_normal")}


def windows(name: str, frames: int, rows: int, seed: int = 0) -> dict[str, Tensor]:
    """Windows of `frames` frames from random places of the trajectories."""
    whole, generator = trajectories(name), torch.Generator().manual_seed(seed)
    count, length = whole["force"].shape[:2]
    row = torch.randint(count, (rows,), generator=generator)
    at = torch.randint(length - frames + 1, (rows, 1), generator=generator) + torch.arange(frames + 1)
    batch = {k: whole[k][row[:, None], at] for k in ("q", "qd")} | {"force": whole["force"][row[:, None], at[:, :-1]]}
    return batch | {k: whole[k][row] for k in ("ground_point", "ground_normal")}


def fitted(cls: type[NetworkModel], name: str, model: RobotModel | None = None) -> NetworkModel:
    """A model with a fitted normaliser and random weights large enough to matter."""
    torch.manual_seed(0)
    model = model or robot(name)
    facts = MlpModel.new_facts(model) if cls is MlpModel else {}
    made = cls(model, {}, facts | {"network": SMALL[cls.kind]})
    made.fit_normaliser(windows(name, cls.frames, 256))
    with torch.no_grad():
        for parameter in made.module.parameters():
            if parameter.ndim == 2 and cls is TransformerModel:
                parameter.mul_(5.0).add_(0.02 * torch.randn_like(parameter))
    return made


def situation(model: RobotModel, n: int, seed: int = 0) -> tuple[Motion, Tensor, tuple[Tensor, Tensor]]:
    """States, forces and ground; a free base stands far from the origin over tilted ground."""
    generator = torch.Generator().manual_seed(seed)
    q, qd = wide_state(model, n, seed)
    point, normal = ground(model, n)
    if model.free_base:
        normal = normalize(normal + 0.3 * torch.randn(n, 3, generator=generator), dim=1)
        q[:, :2] += torch.randn(n, 2, generator=generator)
        point[:, :2] = q[:, :2]
    limit = torch.as_tensor(np.maximum(model.force_limit, 1.0), dtype=torch.float32)
    return Motion(q, qd), limit * torch.randn(n, model.nj, generator=generator), (point, normal)


def both(model: MlpModel, state: Motion, force: Tensor, plane: tuple[Tensor, Tensor]) -> tuple[Motion, Motion]:
    """Predictions of the kernels and of torch."""
    fused = model.predict(state, force, model.find_contacts(state.q, *plane), None)
    return fused, model.predict_in_torch(state, force, model.find_contacts(state.q, *plane))


def assert_same(found: Motion, expected: Motion, before: Motion, tolerance: float = TOLERANCE) -> None:
    """Two predictions agree, and are not simply the state before."""
    change = (expected.qd - before.qd).abs().max()
    assert change > 0.01
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=float(tolerance * (1 + change)), rtol=tolerance)
