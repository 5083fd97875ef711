"""Contact as impulses: the complementarity problem of all contacts of a robot, by projected Gauss-Seidel.

With A the inverse inertia that the contacts feel, v the velocity that they would have without impulses and x the
impulses, along the normal (n) and across it (t):

    0 <= x_n  complements  w_n = A_n x + v_n + softness x_n - rebound - correction >= 0
    |x_t| <= mu x_n, against the slip that is left

The rebound is restitution times the speed of approach, the correction Baumgarte's share of the depth per step.
Gradients are those of the sweeps that were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from torch import Tensor

from nerd_gym.physics.warp.gauss_seidel import gauss_seidel_kernels
from nerd_gym.physics.warp.launch import load_with_notice
from nerd_gym.utils.warp import init_warp

from .contact import ContactPoints

IMMOVABLE = 1e-12  # 1/kg
NUMBERS = 7  # tensors that the kernels take before the contacts that touch


@dataclass(frozen=True)
class Impulses:
    """Finds the change of velocity that contacts give in a step. Parameters are numbers, [] or [B, 1] tensors."""

    friction: Tensor | float = 0.5
    restitution: Tensor | float = 0.0
    correction: Tensor | float = 0.2  # Baumgarte's: the share of the depth that a step takes away
    softness: Tensor | float = 1e-6  # constraint force mixing, in parts of a contact's own inverse inertia
    slop: float = 1e-4  # m, depth that is left alone
    slow: float = 0.05  # m/s, speed of approach below which nothing rebounds
    sweeps: int = 30

    def __call__(self, points: ContactPoints, H: Tensor, qd: Tensor, free: Tensor, dt: float) -> Tensor:
        """[B, nv]: to be added to `free` [B, nv], what `qd` becomes in `dt` without contact."""
        axes = torch.cat([points.normal, *tangents(points.normal)], -1).unflatten(-1, (3, 3))  # [B, 1 or C, 3, 3]
        rows = torch.einsum("bcjx,bckx->bckj", points.jacobian, axes.expand(*points.depth.shape, 3, 3)).flatten(1, 2)
        response = torch.linalg.solve(H, rows.mT)  # [B, nv, 3 C]
        impulse = self.solve(rows @ response, (rows @ free[..., None])[..., 0], points, dt)
        return (response @ impulse.flatten(1)[..., None])[..., 0]

    def solve(self, A: Tensor, v: Tensor, points: ContactPoints, dt: float) -> Tensor:
        """Impulses [B, C, 3] (along, across, across) from A [B, 3 C, 3 C] and v [B, 3 C]."""
        count = points.depth.shape[1]
        correction = self.correction * (points.depth - self.slop).clamp(min=0.0) / dt
        approach = -points.along
        wanted = correction + torch.where(approach > self.slow, self.restitution * approach, 0.0)
        # A point on an axis that nothing can move feels no impulse: its own is then zero, and not a zero by zero.
        diagonal = A.diagonal(dim1=1, dim2=2).unflatten(1, (count, 3)).clamp(min=IMMOVABLE)
        soft = self.softness * diagonal[..., 0]
        along, across = diagonal[..., 0] + soft, 0.5 * (diagonal[..., 1] + diagonal[..., 2])
        friction = torch.as_tensor(self.friction, dtype=v.dtype, device=v.device).expand_as(wanted)
        numbers = (A, v, wanted, soft, along, across, friction)
        x = ProjectedGaussSeidel.apply(points.depth > 0, self.sweeps, *numbers)
        assert isinstance(x, Tensor)
        return x.unflatten(1, (count, 3))


class ProjectedGaussSeidel(torch.autograd.Function):
    """Impulses [B, 3 C] of contacts that touch [B, C], by kernels (physics/warp/gauss_seidel.py)."""

    @staticmethod
    def forward(ctx: Any, touching: Tensor, sweeps: int, *numbers: Tensor) -> Tensor:
        numbers = tuple(x.detach().contiguous() for x in numbers)
        v = numbers[1]
        before, x = v.new_zeros(len(v), sweeps, v.shape[1]), torch.zeros_like(v)
        _launch(0, touching, sweeps, *numbers, before, x)
        ctx.save_for_backward(touching, before, x, *numbers)
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        touching, before, x, *numbers = ctx.saved_tensors
        out = [torch.zeros_like(x) for x in numbers]
        _launch(1, touching, before.shape[1], *numbers, before, x.clone(), slopes[0].clone(), *out)
        return None, None, *out


def _launch(which: int, touching: Tensor, sweeps: int, *tensors: Tensor) -> None:
    """A kernel over all rows, on the tensors' device and stream."""
    init_warp()
    like = tensors[0]
    kernel = gauss_seidel_kernels(wp.float64 if like.dtype is torch.float64 else wp.float32)[which]
    device = wp.device_from_torch(like.device)
    load_with_notice(kernel, device)
    arrays = [wp.from_torch(x.contiguous()) for x in tensors]
    inputs = [*arrays[:NUMBERS], wp.from_torch(touching.contiguous()), sweeps, *arrays[NUMBERS:]]
    stream = wp.stream_from_torch(torch.cuda.current_stream(like.device)) if like.is_cuda else None
    wp.launch(kernel, dim=len(like), inputs=inputs, device=device, stream=stream)


def tangents(normal: Tensor) -> tuple[Tensor, Tensor]:
    """Two unit vectors [..., 3] across a unit vector and each other, which turn with it (Duff et al. 2017)."""
    x, y, z = normal.unbind(-1)
    sign = torch.where(z < 0, -torch.ones_like(z), torch.ones_like(z))
    a = -1 / (sign + z)
    b = x * y * a
    first = torch.stack([1 + sign * x * x * a, sign * b, -sign * x], -1)
    return first, torch.stack([b, sign + y * y * a, -y], -1)
