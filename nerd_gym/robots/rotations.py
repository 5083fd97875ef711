"""Rotations in torch: quaternions (w first), rotation matrices, rotation vectors, angles."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

# Entry k of a rotation matrix is ONE[k] + SIGN_A[k] a[k] + SIGN_B[k] b[k], where a and b are products of two entries of
# the quaternion: those at LEFT and RIGHT, first of all a, then of all b.
_LEFT = (2, 1, 1, 1, 1, 2, 1, 2, 1, 3, 0, 0, 0, 3, 0, 0, 0, 2)
_RIGHT = (2, 2, 3, 2, 1, 3, 3, 3, 1, 3, 3, 2, 3, 3, 1, 2, 1, 2)
_SIGN_A = (-2.0, 2.0, 2.0, 2.0, -2.0, 2.0, 2.0, 2.0, -2.0)
_SIGN_B = (-2.0, -2.0, 2.0, 2.0, -2.0, -2.0, -2.0, 2.0, -2.0)
_ONE = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


@lru_cache(maxsize=8)
def _matrix_terms(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    indices = [torch.tensor(x, device=device) for x in (_LEFT, _RIGHT)]
    return *indices, *(torch.tensor(x, device=device, dtype=dtype) for x in (_SIGN_A, _SIGN_B, _ONE))


def quat_to_matrix(quat: Tensor) -> Tensor:
    """[N, 4] unit quaternions, w first -> [N, 3, 3]. Few operations: it is on every step's path."""
    left, right, sign_a, sign_b, one = _matrix_terms(quat.device, quat.dtype)
    products = quat.index_select(1, left) * quat.index_select(1, right)
    entries = torch.addcmul(one, products.narrow(1, 0, 9), sign_a)
    return torch.addcmul(entries, products.narrow(1, 9, 9), sign_b).view(-1, 3, 3)


def quat_rotate(quat: Tensor, vector: Tensor) -> Tensor:
    """Rotate [..., 3] vectors by [..., 4] quaternions: body axes to world axes."""
    u = quat[..., 1:]
    t = 2 * torch.linalg.cross(u, vector)
    return vector + quat[..., :1] * t + torch.linalg.cross(u, t)


def wrap_angle(angle: Tensor) -> Tensor:
    """To [-pi, pi)."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi


def yaw_of(quat: Tensor) -> Tensor:
    """[..., 4] quaternions, w first -> [...]: rotation about z."""
    w, x, y, z = quat.unbind(-1)
    return angle_of(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def angle_of(sine: Tensor, cosine: Tensor) -> Tensor:
    """As torch.atan2 of anything but two zeros; that one's last bit depends on where in a batch a row stands."""
    turn = torch.where(cosine < 0, torch.copysign(torch.full_like(sine, torch.pi), sine), 0.0)
    return (sine / cosine).atan() + turn


def quat_conjugate(quat: Tensor) -> Tensor:
    """[N, 4] -> [N, 4]."""
    return torch.cat([quat[:, :1], -quat[:, 1:]], 1)


def quat_multiply(a: Tensor, b: Tensor) -> Tensor:
    """[N, 4] each, w first."""
    w = a[:, :1] * b[:, :1] - (a[:, 1:] * b[:, 1:]).sum(1, keepdim=True)
    v = a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:] + torch.linalg.cross(a[:, 1:], b[:, 1:])
    return torch.cat([w, v], 1)


def quat_exp(rotation: Tensor) -> Tensor:
    """[N, 3] rotation vectors -> [N, 4]."""
    angle = torch.linalg.vector_norm(rotation, dim=1, keepdim=True)
    # torch.sinc(x) is sin(pi x) / (pi x) and right at zero.
    return torch.cat([torch.cos(angle / 2), 0.5 * torch.sinc(angle / (2 * math.pi)) * rotation], 1)


def quat_log(quat: Tensor) -> Tensor:
    """[N, 4] unit quaternions -> [N, 3] the shorter rotation vectors."""
    quat = torch.where(quat[:, :1] < 0, -quat, quat)
    sine = torch.linalg.vector_norm(quat[:, 1:], dim=1, keepdim=True)
    angle = 2 * torch.atan2(sine, quat[:, :1])
    return quat[:, 1:] * torch.where(sine > 1e-7, angle / sine.clamp_min(1e-7), 2.0)
