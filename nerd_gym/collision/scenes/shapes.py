"""Blocks that a striker hits: prisms on a table, seen from above.

A block's frame has its origin at the centre of mass, z up, and the struck side towards +x: the arc of the
semicylinder, or one of the equal faces of the square and the triangle. A `point` on that side is an angle about the
arc's centre (rad) or a coordinate along the face (m), zero in the middle. The *impact frame* at a point has the axes
``n``, into the block, and ``t``, ``n`` turned left by 90 degrees. All shapes are symmetric about their x axis, so a
collision mirrored about it has the mirrored outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

HEIGHT = 0.04  # m
DENSITY = 1200.0  # kg/m3, which makes the semicylinder weigh 0.188 kg
STRIKER_RADIUS = 0.012  # m
STRIKER_MASS = 5.0  # kg: a robot arm hardly slows down in a collision


@dataclass(frozen=True)
class Shape:
    """A prism by its footprint."""

    name: str
    outline: tuple[tuple[float, float], ...]  # corners, counter-clockwise; the arc is not among them
    radius: float  # m, of the arc; 0: the struck side is flat
    side: float  # m, x of the face, or of the arc's centre
    area: float  # m2
    spread: tuple[float, float]  # m2, means of x squared and y squared over the footprint
    reach: float  # largest |point| that is generated
    faces: int  # equal sides that may be struck

    @property
    def mass(self) -> float:
        return DENSITY * self.area * HEIGHT

    @property
    def gyration(self) -> float:
        """Radius of gyration about the vertical axis, m."""
        return math.sqrt(sum(self.spread))

    def inertia(self) -> tuple[float, float, float]:
        """Diagonal in the block's frame, kg m2."""
        (xx, yy), zz = self.spread, HEIGHT**2 / 12
        return self.mass * (yy + zz), self.mass * (xx + zz), self.mass * (xx + yy)

    def contact_point(self, point: Tensor) -> Tensor:
        """[N] to [N, 2]: where on the outline a point is, in the block's frame."""
        if self.radius:
            return torch.stack([self.side + self.radius * point.cos(), self.radius * point.sin()], -1)
        return torch.stack([torch.full_like(point, self.side), point], -1)

    def normal(self, point: Tensor) -> Tensor:
        """[N] to [N, 2]: the impact frame's axis `n` at a point, into the block, in the block's frame."""
        if self.radius:
            return -torch.stack([point.cos(), point.sin()], -1)
        return torch.stack([torch.full_like(point, -1.0), torch.zeros_like(point)], -1)

    def striker_gap(self, block: Tensor, yaw: Tensor, striker: Tensor) -> Tensor:
        """[N]: distance (m) from the striker's surface to the block's; block and striker [N, 2], yaw [N].

        Within the block it is minus the shortest way out."""
        away, c, s = striker - block, yaw.cos(), yaw.sin()
        x, y = c * away[:, 0] + s * away[:, 1], c * away[:, 1] - s * away[:, 0]
        return (self._half_disc(x, y) if self.radius else self._polygon(x, y)) - STRIKER_RADIUS

    def _half_disc(self, x: Tensor, y: Tensor) -> Tensor:
        """[N]: distance from the outline, of points in the block's frame."""
        x = x - self.side
        arc = (x.square() + y.square()).sqrt() - self.radius
        behind = (x.square() + (y.abs() - self.radius).clamp(min=0).square()).sqrt()
        return torch.where(x < 0, behind, torch.where(arc < 0, torch.maximum(arc, -x), arc))

    def _polygon(self, x: Tensor, y: Tensor) -> Tensor:
        """[N]: the same for equal faces at equal distances."""
        angles = 2 * math.pi / self.faces * torch.arange(self.faces, dtype=x.dtype, device=x.device)[:, None]
        out = angles.cos() * x + angles.sin() * y - self.side
        half = math.hypot(*self.outline[0]) ** 2 - self.side**2
        beyond = ((angles.cos() * y - angles.sin() * x).abs() - math.sqrt(half)).clamp(min=0)
        nearest = (out.square() + beyond.square()).sqrt().amin(0)
        depth = out.amax(0)
        return torch.where(depth < 0, depth, nearest)


def _semicylinder(radius: float = 0.05) -> Shape:
    centre = -4 * radius / (3 * math.pi)
    spread = (radius**2 / 4 - centre**2, radius**2 / 4)
    corners = ((centre, radius), (centre, -radius))
    return Shape("semicylinder", corners, radius, centre, math.pi * radius**2 / 2, spread, math.radians(60), 1)


def _polygon(name: str, faces: int, side: float) -> Shape:
    apothem, corner = side / (2 * math.tan(math.pi / faces)), side / (2 * math.sin(math.pi / faces))
    angles = [(2 * k - 1) * math.pi / faces for k in range(faces)]
    corners = tuple((corner * math.cos(a), corner * math.sin(a)) for a in angles)
    spread = (corner**2 + 2 * apothem**2) / 12
    return Shape(name, corners, 0.0, apothem, faces * side * apothem / 2, (spread, spread), 0.4 * side, faces)


SHAPES = {shape.name: shape for shape in (_semicylinder(), _polygon("square", 4, 0.08), _polygon("triangle", 3, 0.1))}


def shape_named(name: str) -> Shape:
    """A shape, or an error that lists them."""
    if name not in SHAPES:
        raise ValueError(f"unknown shape {name!r}; valid: {', '.join(SHAPES)}")
    return SHAPES[name]
