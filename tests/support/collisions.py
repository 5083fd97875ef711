"""Impacts and small collision models that tests share."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nerd_gym.collision.models.model import CollisionModel
from nerd_gym.collision.models.rigid import RigidLaw
from nerd_gym.collision.scenes.columns import STRIKE, VELOCITY, draw


def planar_impacts(law: RigidLaw, count: int, seed: int = 0) -> Tensor:
    """[count, C]: bodies that approach each other at a contact."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((8 * count, len(law.columns)), np.float32)
    for start in (0, 11) if law.pair else (0,):
        rows[:, start] = rng.uniform(0.2, 2.0, len(rows))
        rows[:, start + 1] = rows[:, start] * rng.uniform(0.02, 0.06, len(rows)) ** 2
        rows[:, start + 2 : start + 4] = rng.uniform(-0.05, 0.05, (len(rows), 2))
        rows[:, start + 4 : start + 6] = rng.normal(0, 1, (len(rows), 2))
        rows[:, start + 6] = rng.normal(0, 5, len(rows))
    angle = rng.uniform(-np.pi, np.pi, len(rows))
    rows[:, 7:9] = rng.uniform(-0.05, 0.05, (len(rows), 2))
    rows[:, 9:11] = np.stack([np.cos(angle), np.sin(angle)], -1)
    pre = torch.from_numpy(rows)
    return pre[law.approach(pre) > 0.1][:count]


def strike_samples(model: CollisionModel, count: int, parameters: dict[str, float], seed: int = 0, noise: float = 0.0):
    """Strikes and outcomes of the model's first network with these parameters, by name."""
    assert model.shape is not None
    rng = np.random.default_rng(seed)
    pre = draw(model.shape, count, rng)
    pre[:, 3:] = list(parameters.values())
    with torch.no_grad():
        post = model.predict(torch.from_numpy(pre).float()).numpy()[:, :3]
    size = np.linalg.norm(post * [1, 1, 0.05], axis=1, keepdims=True)
    post = post + noise * size * rng.standard_normal(post.shape) / [1, 1, 0.05]
    return dict(zip(STRIKE, pre.T[:3], strict=True)), dict(zip(VELOCITY, post.T, strict=True))
