"""The network of joint forces inside a structured model; that of contacts is in physics/torch/contact_net.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nerd_gym.physics.torch.contact_net import packed_rows
from nerd_gym.robots.features import SLIDE
from nerd_gym.robots.model import RobotModel


class JointForceNet(nn.Module):
    """Joint forces that neither the inertias nor the MJCF explain, from angles and rates.

    A rate is seen twice, as it is and as little more than its sign: friction is steep where a joint turns back.
    """

    rate: Tensor
    force: Tensor
    slide: Tensor
    zero: Tensor

    def __init__(self, robot: RobotModel, width: int = 32, rate: Tensor | None = None, force: Tensor | None = None):
        super().__init__()
        n = robot.nj
        self.first, self.second, self.last = nn.Linear(4 * n, width), nn.Linear(width, width), nn.Linear(width, n)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
        self.register_buffer("rate", torch.ones(n) if rate is None else rate)
        self.register_buffer("force", torch.ones(n) if force is None else force)
        self.register_buffer("slide", torch.as_tensor(robot.mj_model.jnt_type[-n:] == SLIDE), persistent=False)
        self.register_buffer("zero", torch.as_tensor(robot.mj_model.qpos0[robot.joint_q]), persistent=False)

    def forward(self, q: Tensor, qd: Tensor) -> Tensor:
        """[B, nj] each -> forces [B, nj]."""
        angle = q - self.zero.to(q.dtype)
        sine = torch.where(self.slide, angle, torch.sin(angle))
        cosine = torch.where(self.slide, 0.0, torch.cos(angle))
        rate = qd / self.rate
        x = torch.stack([sine, cosine, rate, rate / (rate.abs() + 0.1)], -1).flatten(1)
        hidden = nn.functional.silu(self.second(nn.functional.silu(self.first(x))))
        return self.force * self.last(hidden)

    def packed(self) -> Tensor:
        """As the kernel reads it."""
        nothing = torch.zeros_like(self.rate)
        head = torch.stack([self.rate, self.force, nothing, nothing], 1)
        return torch.cat([head, *map(packed_rows, (self.first, self.second, self.last))])
