"""Rigid impact laws for two planar bodies: restitution and friction, no table, no simulator.

Body 1 is hit at a contact point, with the normal into it, by body 2, or by something that does not move if there are no
columns of a second body. The impulse makes the normal velocity at the contact change its sign, times the restitution;
its tangential part stops the slip if friction suffices, or is friction times the normal part.

The anisotropic law also scales body 1's mass along x and along y and its inertia: what a guide, a cable or a
measured mass that is not quite right does to a body.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .laws import ImpactLaw, Parameter

BODY = ("mass", "inertia", "x", "y", "vx", "vy", "omega")
CONTACT = ("contact_x", "contact_y", "normal_x", "normal_y")
MOTION = ("vx", "vy", "omega")
RESTITUTION = Parameter("restitution", 0.0, 1.0, 0.5, 0.3)
FRICTION = Parameter("friction", 0.0, 1.5, 0.3, 0.25)
SCALES = tuple(Parameter(name, 0.2, 5.0, 1.0, 0.3, log=True) for name in ("mass_x", "mass_y", "inertia_scale"))
LEAST_SHARE = 0.05  # of K_nn; below, more friction would push the bodies together without end (Painleve's paradox)


def second(names: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of body 2."""
    return tuple(f"{name}_2" for name in names)


@dataclass
class PlanarBody:
    """A body in the impact frame, [N] each."""

    mass: Tensor
    inertia: Tensor
    arm_n: Tensor  # from the centre of mass to the contact
    arm_t: Tensor
    vn: Tensor
    vt: Tensor
    omega: Tensor

    @property
    def gyration(self) -> Tensor:
        return (self.inertia / self.mass).sqrt()

    def motion(self) -> Tensor:
        """[N, 3]: vn, vt and omega times the radius of gyration."""
        return torch.stack([self.vn, self.vt, self.gyration * self.omega], -1)

    def slip(self) -> tuple[Tensor, Tensor]:
        """Velocity of the contact point along n and t."""
        return self.vn - self.omega * self.arm_t, self.vt + self.omega * self.arm_n


class RigidLaw(ImpactLaw):
    """Restitution and Coulomb friction; `pair` tells whether there is a second body that moves."""

    sigma = 0.1  # measured impacts of rigid bodies scatter more than a distilled network errs

    def __init__(self, pair: bool = False, anisotropic: bool = False):
        super().__init__()
        self.pair, self.anisotropic = pair, anisotropic
        self.kind = "rigid_anisotropic" if anisotropic else "rigid"
        self.columns = BODY + CONTACT + (second(BODY) if pair else ())
        self.outcome = MOTION + (second(MOTION) if pair else ())
        self.velocities = len(self.outcome)
        self.unknowns = (RESTITUTION, FRICTION, *(SCALES if anisotropic else ()))
        bodies = 2 if pair else 1
        self.register_buffer("parity", torch.tensor([1.0, -1.0, -1.0] * bodies), persistent=False)
        signs = [1.0, -1.0, *([1.0, -1.0, -1.0] * bodies)]
        self.register_buffer("input_parity", torch.tensor(signs), persistent=False)

    def relative(self, pre: Tensor, values: Tensor) -> Tensor:
        one, two, normal = self._bodies(pre)
        restitution, friction = values[:, 0, None], values[:, 1, None]
        mass_x, mass_y, inertia = (values[:, k, None] for k in (2, 3, 4)) if self.anisotropic else (1.0, 1.0, 1.0)
        nx, ny = normal.unbind(-1)
        # Inverse masses of body 1 along x and y, in the impact frame (n, t).
        inverse_x, inverse_y = 1 / (one.mass * mass_x), 1 / (one.mass * mass_y)
        w_nn = nx.square() * inverse_x + ny.square() * inverse_y
        w_tt = ny.square() * inverse_x + nx.square() * inverse_y
        w_nt = nx * ny * (inverse_y - inverse_x)
        inverse_inertia = 1 / (one.inertia * inertia)
        k_nn = w_nn + one.arm_t.square() * inverse_inertia
        k_tt = w_tt + one.arm_n.square() * inverse_inertia
        k_nt = w_nt - one.arm_n * one.arm_t * inverse_inertia
        un, ut = one.slip()
        if two is not None:
            k_nn = k_nn + 1 / two.mass + two.arm_t.square() / two.inertia
            k_tt = k_tt + 1 / two.mass + two.arm_n.square() / two.inertia
            k_nt = k_nt - two.arm_n * two.arm_t / two.inertia
            other_n, other_t = two.slip()
            un, ut = un - other_n, ut - other_t
        gain = -(1 + restitution) * un
        determinant = k_nn * k_tt - k_nt.square()
        stick_n, stick_t = (k_tt * gain + k_nt * ut) / determinant, (-k_nt * gain - k_nn * ut) / determinant
        side = torch.where(stick_t >= 0, 1.0, -1.0)
        slide_n = gain / torch.maximum(k_nn + side * friction * k_nt, LEAST_SHARE * k_nn)
        sticks = stick_t.abs() <= friction * stick_n
        p_n = torch.where(sticks, stick_n, slide_n)
        p_t = torch.where(sticks, stick_t, side * friction * slide_n)
        spin = one.omega + inverse_inertia * (one.arm_n * p_t - one.arm_t * p_n)
        after = [one.vn + w_nn * p_n + w_nt * p_t, one.vt + w_nt * p_n + w_tt * p_t, one.gyration * spin]
        if two is not None:
            spin = two.omega - (two.arm_n * p_t - two.arm_t * p_n) / two.inertia
            after += [two.vn - p_n / two.mass, two.vt - p_t / two.mass, two.gyration * spin]
        return torch.stack(after, -1) / self._speed(one, two)[:, None]

    def scale(self, pre: Tensor) -> Tensor:
        one, two, _ = self._bodies(pre)
        ones = torch.ones_like(one.vn)
        units = [ones, ones, 1 / one.gyration] + ([ones, ones, 1 / two.gyration] if two is not None else [])
        return torch.stack(units, -1) * self._speed(one, two)[:, None]

    def inputs(self, pre: Tensor) -> Tensor:
        one, two, _ = self._bodies(pre)
        un, ut = one.slip()
        if two is not None:
            other_n, other_t = two.slip()
            un, ut = un - other_n, ut - other_t
        speed = self._speed(one, two)
        found = [speed.log() / 0.8, torch.atan2(ut, -un) / 0.6]
        for body in (one, *([two] if two is not None else [])):
            found += [body.arm_n / body.gyration, body.arm_t / body.gyration, body.gyration * body.omega / speed]
        return torch.stack(found, -1)

    def to_frame(self, pre: Tensor, post: Tensor) -> Tensor:
        _, _, normal = self._bodies(pre)
        return _rotated(post, normal, 1.0)

    def from_frame(self, pre: Tensor, outcome: Tensor) -> Tensor:
        _, _, normal = self._bodies(pre)
        return _rotated(outcome, normal, -1.0)

    def approach(self, pre: Tensor) -> Tensor:
        """[N]: how fast the bodies come together at the contact, m/s; below zero they part."""
        one, two, _ = self._bodies(pre)
        return -one.slip()[0] + (two.slip()[0] if two is not None else 0.0)

    def _bodies(self, pre: Tensor) -> tuple[PlanarBody, PlanarBody | None, Tensor]:
        normal = pre[:, 9:11] / pre[:, 9:11].norm(dim=-1, keepdim=True)
        tangent = torch.stack([-normal[:, 1], normal[:, 0]], -1)

        def body(part: Tensor) -> PlanarBody:
            arm, v = pre[:, 7:9] - part[:, 2:4], part[:, 4:6]
            arm_n, arm_t, vn, vt = ((value * axis).sum(-1) for value in (arm, v) for axis in (normal, tangent))
            return PlanarBody(part[:, 0], part[:, 1], arm_n, arm_t, vn, vt, part[:, 6])

        return body(pre[:, :7]), body(pre[:, 11:18]) if self.pair else None, normal

    @staticmethod
    def _speed(one: PlanarBody, two: PlanarBody | None) -> Tensor:
        squares = one.motion().square().sum(-1)
        return (squares if two is None else squares + two.motion().square().sum(-1)).sqrt()


def _rotated(motion: Tensor, normal: Tensor, sign: float) -> Tensor:
    """Motions [N, 3 or 6] from x, y to n, t (sign 1) or back (sign -1)."""
    c, s = normal.unbind(-1)
    s = sign * s
    parts = []
    for m in motion.split(3, -1):
        parts.append(torch.stack([c * m[:, 0] + s * m[:, 1], c * m[:, 1] - s * m[:, 0], m[:, 2]], -1))
    return torch.cat(parts, -1)
