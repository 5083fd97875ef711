"""Parameters of a contact law from frames that touch the ground: Levenberg-Marquardt from several starts, or CMA-ES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import Tensor

from nerd_gym.data.reader import Transitions
from nerd_gym.physics.warp.constraint_params import ConstraintLaw
from nerd_gym.robots.links import Links
from nerd_gym.robots.model import RobotModel

from .evolution import minimise

# Starts of the penalty law: depth under the robot's weight in m, kd / ke in s, kf / kd.
DEPTHS, TIMES, GRIPS = (1e-3, 4e-3, 1.6e-2), (4e-3, 1.6e-2), (0.3, 1.0, 3.0)
FRICTION = 0.7
# And of constraints: time constant of contacts and limits in s, impedance of both.
TIME_CONSTANTS, IMPEDANCES, DAMPING_RATIO = (0.01, 0.03, 0.1), (0.8, 0.97), 0.8
CUTS, FAR = (0.3, 0.03, 0.003), 10.0  # errors of a velocity, over its usual change
TRIED = 3  # of the starts
STEP = 0.02  # of a parameter's logarithm, for slopes
# Contacts that begin and end spoil the slopes, so that constraints are only near after that: a search follows.
SEARCHED, SPREAD, EVALUATIONS = 1500, 0.1, 1000  # frames, logarithms of parameters
ITERATIONS, SHORTEST = 12, 1e-3  # of a descent, and its last step in logarithms of parameters
FINE_ITERATIONS, FINE_STEP = 50, 1e-5  # the same where slopes suffice
LEAST, MOST = 1e-3, 0.4  # of 1 - impedance
Gains = tuple[float, ...]
Advance = Callable[[Gains, Transitions], Tensor]  # -> next qd [B, nv]


def fit_contact_gains(robot: RobotModel, links: Links, frames: Transitions, advance: Advance) -> Gains:
    """(ke, kd, kf, mu) of the penalty law. The starts know the robot's weight only."""
    weight = float(links["mass"].sum() * abs(robot.mj_model.opt.gravity).max())
    starts = [(weight / d, t * weight / d, g * t * weight / d, FRICTION) for d, t, g in product(DEPTHS, TIMES, GRIPS)]
    return as_numbers(ContactFit(as_numbers, frames, advance).descend_from(logarithms(starts)))


def fit_constraint_law(robot: RobotModel, frames: Transitions, advance: Advance, smooth: bool = False) -> ConstraintLaw:
    """MuJoCo's parameters of contacts and limits; no time constant is below two substeps, as MuJoCo has it.

    `smooth`: the frames are single substeps, in which contacts neither begin nor end, so that slopes suffice.
    """
    shortest = 2 * robot.frame_dt / robot.substeps

    def law(x: Tensor) -> ConstraintLaw:
        time, ratio, soft, mu, limit_time, limit_ratio, limit_soft = x.exp().tolist()
        return ConstraintLaw(
            max(time, shortest),
            ratio,
            1 - min(max(soft, LEAST), MOST),
            mu,
            max(limit_time, shortest),
            limit_ratio,
            1 - min(max(limit_soft, LEAST), MOST),
        )

    starts = [
        (t, DAMPING_RATIO, 1 - d, FRICTION, t, DAMPING_RATIO, 1 - d) for t, d in product(TIME_CONSTANTS, IMPEDANCES)
    ]
    some = {name: value[:SEARCHED] for name, value in frames.items()}
    fit = ContactFit(law, some, advance)
    if smooth:
        return law(fit.descend_from(logarithms(starts), CUTS, FINE_ITERATIONS, FINE_STEP))
    start = fit.descend_from(logarithms(starts), CUTS[:1])
    return law(minimise(lambda x: fit.cost(fit.errors(x), CUTS[1]), start, SPREAD, EVALUATIONS))


def logarithms(starts: Sequence[Gains]) -> list[Tensor]:
    """In double precision."""
    return [torch.tensor(start, dtype=torch.float64).log() for start in starts]


def as_numbers(x: Tensor) -> Gains:
    """Gains of their logarithms."""
    return tuple(x.exp().tolist())


class ContactFit:
    """A law's parameters, as a point [K] from which `decode` makes them, and frames that `advance` moves on with them.

    Errors far beyond a cut hardly count: frames that the model cannot explain shall not bend the parameters.
    """

    def __init__(self, decode: Callable[[Tensor], Gains], frames: Transitions, advance: Advance):
        self._decode, self._frames, self._advance = decode, frames, advance
        self._size = (frames["next_qd"] - frames["qd"]).square().mean(0).sqrt()

    def errors(self, x: Tensor) -> Tensor:
        """[B, nv] over a velocity's usual change; a robot that came apart is off by FAR."""
        off = (self._advance(self._decode(x), self._frames) - self._frames["next_qd"]) / self._size
        return torch.nan_to_num(off, nan=FAR, posinf=FAR, neginf=-FAR).clamp(-FAR, FAR).double()

    @staticmethod
    def cost(off: Tensor, cut: float) -> float:
        """Of errors [B, nv]."""
        return float(torch.log1p((off / cut).square()).mean())

    def descend_from(
        self,
        starts: Sequence[Tensor],
        cuts: Sequence[float] = CUTS,
        iterations: int = ITERATIONS,
        shortest: float = SHORTEST,
    ) -> Tensor:
        """The best point from the best of the starts; the cut narrows in stages."""
        first, *rest = cuts
        starts = sorted(starts, key=lambda x: self.cost(self.errors(x), first))[:TRIED]
        ends = (self.descend(start, first, iterations, shortest) for start in starts)
        x = min(ends, key=lambda x: self.cost(self.errors(x), first))
        for cut in rest:
            x = self.descend(x, cut, iterations, shortest)
        return x

    def descend(self, x: Tensor, cut: float, iterations: int = ITERATIONS, shortest: float = SHORTEST) -> Tensor:
        """Levenberg-Marquardt, until steps are below `shortest` or gain little."""
        off, damp = self.errors(x), 1e-2
        for _ in range(iterations):
            steps = STEP * torch.eye(len(x), dtype=x.dtype)
            slope = torch.stack([(self.errors(x + e) - off) / STEP for e in steps], -1)
            trust = slope / (1 + (off / cut).square())[..., None]
            gram, pull = torch.einsum("bvi,bvj->ij", trust, slope), torch.einsum("bvi,bv->i", trust, off)
            last, gain = self.cost(off, cut), 0.0
            while gain <= 0 and damp < 1e3:
                step = torch.linalg.solve(gram + damp * (gram.diagonal() + 1e-9).diag(), -pull).clamp(-1.0, 1.0)
                tried = self.errors(x + step)
                gain = last - self.cost(tried, cut)
                damp *= 0.2 if gain > 0 else 5.0
            if gain > 0:
                x, off = x + step, tried
            if gain < 0.01 * shortest * last or float(step.abs().max()) < shortest:
                break
        return x
