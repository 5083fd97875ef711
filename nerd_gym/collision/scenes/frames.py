"""Strikes between a block somewhere on the table and the columns of a model, in torch batches.

Positions are [N, 2] in the world, angles [N]. A square has four equal faces and a triangle three; face k is the one
towards +x of the block turned by k times the angle between faces. A semicylinder has its arc alone, face 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nerd_gym.robots.rotations import angle_of

from .shapes import STRIKER_RADIUS, Shape


class StrikeInWorld(NamedTuple):
    """A striker about to touch a block."""

    position: Tensor  # [N, 2], of the striker's centre
    velocity: Tensor  # [N, 2]
    normal: Tensor  # [N, 2], into the block


class OutcomeInWorld(NamedTuple):
    """What a collision does to a block."""

    velocity: Tensor  # [N, 2]
    omega: Tensor  # [N]
    displacement: Tensor  # [N, 2]
    rotation: Tensor  # [N]
    duration: Tensor  # [N], s


def rotate(vector: Tensor, angle: Tensor) -> Tensor:
    """[N, 2] turned by [N]."""
    c, s = angle.cos(), angle.sin()
    x, y = vector.unbind(-1)
    return torch.stack([c * x - s * y, s * x + c * y], -1)


def face_angle(shape: Shape, face: Tensor) -> Tensor:
    """[N]: by how much a face is turned from the block's x axis."""
    return face * (2 * math.pi / shape.faces)


def to_world(
    shape: Shape, block: Tensor, yaw: Tensor, strike: Tensor, face: Tensor | None = None, gap: float = 0.0
) -> StrikeInWorld:
    """Strikes [N, 3] (speed, point, direction) of blocks, `gap` metres before the surfaces touch."""
    speed, point, direction = strike.unbind(-1)
    turned = yaw if face is None else yaw + face_angle(shape, face)
    normal = rotate(shape.normal(point), turned)
    place = block + rotate(shape.contact_point(point), turned)
    return StrikeInWorld(place - (STRIKER_RADIUS + gap) * normal, speed[:, None] * rotate(normal, direction), normal)


def from_world(
    shape: Shape, block: Tensor, yaw: Tensor, striker: Tensor, velocity: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Strikes [N, 3], faces [N] and normals [N, 2] of strikers at these places and velocities."""
    away = rotate(striker - block, -yaw)
    if shape.radius:
        face = torch.zeros_like(yaw)
        point = angle_of(away[:, 1], away[:, 0] - shape.side)
    else:
        sector = 2 * math.pi / shape.faces
        face = (angle_of(away[:, 1], away[:, 0]) / sector).round() % shape.faces
        point = rotate(away, -face_angle(shape, face))[:, 1]
    normal = rotate(shape.normal(point), yaw + face_angle(shape, face))
    speed = velocity.norm(dim=-1)
    cross = normal[:, 0] * velocity[:, 1] - normal[:, 1] * velocity[:, 0]
    direction = angle_of(cross, (normal * velocity).sum(-1))
    return torch.stack([speed, point, direction], -1), face, normal


def outcome_to_world(normal: Tensor, outcome: Tensor) -> OutcomeInWorld:
    """Outcomes [N, 7] at impacts with these normals."""
    vn, vt, omega, dn, dt, dtheta, duration = outcome.unbind(-1)
    tangent = torch.stack([-normal[:, 1], normal[:, 0]], -1)
    velocity = vn[:, None] * normal + vt[:, None] * tangent
    displacement = dn[:, None] * normal + dt[:, None] * tangent
    return OutcomeInWorld(velocity, omega, displacement, dtheta, duration)
