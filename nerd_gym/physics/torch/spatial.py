"""Spatial vectors in torch: (angular, linear) of motions, (moment, force) of forces, about one point of space."""

from __future__ import annotations

import torch
from torch import Tensor


def skew(v: Tensor) -> Tensor:
    """[..., 3] -> [..., 3, 3], skew(v) u = v x u."""
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))


def motion_cross(a: Tensor, b: Tensor) -> Tensor:
    """Spatial cross product of motions [..., 6]."""
    (aw, av), (bw, bv) = a.split(3, -1), b.split(3, -1)
    cross = torch.linalg.cross
    return torch.cat([cross(aw, bw), cross(aw, bv) + cross(av, bw)], -1)


def force_cross(a: Tensor, f: Tensor) -> Tensor:
    """Spatial cross product of a motion with a force [..., 6]."""
    (aw, av), (moment, force) = a.split(3, -1), f.split(3, -1)
    cross = torch.linalg.cross
    return torch.cat([cross(aw, moment) + cross(av, force), cross(aw, force)], -1)


def spatial_inertia(mass: Tensor, first_moment: Tensor, inertia: Tensor) -> Tensor:
    """[...], [..., 3] and [..., 3, 3], all about one point -> [..., 6, 6]."""
    moment = skew(first_moment)
    diagonal = torch.diag_embed(mass[..., None].expand(*mass.shape, 3)).expand_as(moment)
    return torch.cat([torch.cat([inertia, moment], -1), torch.cat([-moment, diagonal], -1)], -2)
