"""Goals of NeRD/Strike-v0: a target pose, or sub-goals along a route, with what an episode must remember of it.

A goal is one row of a tensor: the number of the current sub-goal, how many there are, strikes since the last one,
the distance before the strike, and the way points: where the block starts, then position and yaw of every sub-goal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nerd_gym.robots.rotations import wrap_angle

MOST = 3  # sub-goals
GOAL_SIZE = 4 + 3 * (MOST + 1)
SEGMENT, SPREAD = 0.30, 0.08  # m, length of a segment
RADIUS = 0.04  # m, within which a sub-goal is reached
ZONE = 0.15  # m, from the segment under way: the safe zone
TURNS = {1: (0.0,), 2: (0.0, 1.0), 3: (0.0, 1.0, -1.0)}  # rad, at the start of each segment


class Goal(NamedTuple):
    """Rows of goals by name."""

    index: Tensor  # [N], of the current sub-goal; as many as there are when all are reached
    count: Tensor  # [N]
    strikes: Tensor  # [N], since the last sub-goal
    distance: Tensor  # [N], m, to the current sub-goal before the strike
    points: Tensor  # [N, MOST + 1, 3]: x, y, yaw of the start and of the sub-goals

    @classmethod
    def of(cls, rows: Tensor) -> Goal:
        """[N, GOAL_SIZE] by name."""
        index, count, strikes, distance = rows[:, :4].unbind(1)
        return cls(index, count, strikes, distance, rows[:, 4:].view(-1, MOST + 1, 3))

    def rows(self) -> Tensor:
        """[N, GOAL_SIZE]."""
        return torch.cat([torch.stack(self[:4], 1), self.points.flatten(1)], 1)

    def point(self, back: int = 0) -> Tensor:
        """[N, 3]: the current sub-goal, or the way point before it; the last one when all are reached."""
        at = torch.minimum(self.index, self.count - 1).clamp(min=0).long() + 1 - back
        return self.points.gather(1, at[:, None, None].expand(-1, 1, 3)).squeeze(1)

    def away(self, block: Tensor) -> Tensor:
        """[N]: m from the current sub-goal."""
        return (self.point()[:, :2] - block).norm(dim=-1)

    def inside(self, block: Tensor) -> Tensor:
        """[N] bool: whether a block is in the safe zone, around the segment that leads to the current sub-goal."""
        start, end = self.point(1)[:, :2], self.point()[:, :2]
        way = end - start
        share = ((block - start) * way).sum(-1) / way.square().sum(-1).clamp(min=1e-9)
        nearest = start + share.clamp(0, 1)[:, None] * way
        return (block - nearest).norm(dim=-1) <= ZONE


def start_goal(points: Tensor, count: Tensor) -> Tensor:
    """Rows of goals from way points [N, MOST + 1, 3]."""
    nothing = torch.zeros_like(count)
    first = (points[:, 1, :2] - points[:, 0, :2]).norm(dim=-1)
    return Goal(nothing, count, nothing, first, points).rows()


def route_points(lengths: Tensor, turns: Tensor) -> Tensor:
    """[N, MOST + 1, 3] from the origin, for lengths and turns [N, MOST].

    At a sub-goal the block's x axis, which goes through the struck side, points back along the segment."""
    heading = turns.cumsum(1)
    steps = lengths[..., None] * torch.stack([heading.cos(), heading.sin()], -1)
    points = torch.cat([steps.cumsum(1), heading[..., None] + torch.pi], -1)
    return torch.nn.functional.pad(points, (0, 0, 1, 0))


def yaw_error(yaw: Tensor, target: Tensor, faces: int) -> Tensor:
    """[N]: signed, between two yaws of a block that looks the same after a turn by 2 pi over its faces."""
    return wrap_angle(faces * (yaw - target)) / faces
