"""Robots and examples in any pose, with any speeds and forces, in double precision."""

import torch
from torch.nn.functional import normalize

from nerd_gym import RobotModel
from tests.support.grid import ROOT, robot

EXAMPLES = ("critter", "three_link_arm")


def model_of(name: str) -> RobotModel:
    return RobotModel.from_mjcf(ROOT / "examples" / f"{name}.xml") if name in EXAMPLES else robot(name)


def random_motion(model: RobotModel, n: int) -> tuple[torch.Tensor, ...]:
    """Any pose, speeds and forces, float64."""
    generator = torch.Generator().manual_seed(0)
    q, qd = (torch.randn(n, size, generator=generator, dtype=torch.float64) for size in (model.nq, model.nv))
    if model.free_base:
        q[:, 3:7] = normalize(q[:, 3:7], dim=-1)
    force = 10 * torch.randn(n, model.nj, generator=generator, dtype=torch.float64)
    return q, 3 * qd, force
