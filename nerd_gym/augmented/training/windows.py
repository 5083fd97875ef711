"""Windows of trajectories, and how far an augmented engine that starts where they start ends from where they end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nerd_gym.augmented.models.model import AugmentedModel
from nerd_gym.augmented.models.signals import Signals
from nerd_gym.physics.torch.engine import Moment
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import displacement

Trajectories = dict[
    str, Tensor
]  # q [M, T+1, nq], qd [M, T+1, nv], force [M, T, nj], ground_point, ground_normal [M, 3]
LEAST = 1e-3  # of the largest scale of its kind: what hardly moves is not what a loss is about


def cut(arrays: Trajectories, frames: int, stride: int = 1) -> Trajectories:
    """Every window of `frames` frames that begins at a multiple of `stride`, as trajectories; with ``start`` [M]."""
    length = arrays["force"].shape[1]
    if not 1 <= frames <= length:
        raise ValueError(f"a window has {frames} frames; valid: 1 to {length}, the frames of a trajectory")
    count = len(arrays["q"])
    first = torch.arange(0, length - frames + 1, stride)
    row, start = torch.arange(count).repeat_interleave(len(first)), first.repeat(count)
    at = start[:, None] + torch.arange(frames + 1)
    out = {name: arrays[name][row[:, None], at].double() for name in ("q", "qd")}
    out["force"] = arrays["force"][row[:, None], at[:, :-1]].double()
    out |= {name: arrays[name][row].double() for name in ("ground_point", "ground_normal")}
    return out | {"start": start + (arrays["start"][row] if "start" in arrays else 0)}


def rows_of(windows: Trajectories, rows: Tensor) -> Trajectories:
    """Some of them."""
    return {name: value[rows] for name, value in windows.items()}


@dataclass(frozen=True)
class Scales:
    """What an error is measured in, by coordinate of qd."""

    step: Tensor  # [nv] of a displacement
    change: Tensor  # [nv] of a change of qd

    @classmethod
    def of(cls, robot: RobotModel, windows: Trajectories) -> Scales:
        """Root mean square of what windows move by."""
        q, qd = windows["q"], windows["qd"]
        step = displacement(robot, q[:, 0], q[:, -1])
        found = []
        for value in (step, qd[:, -1] - qd[:, 0]):
            size = value.square().mean(0).sqrt()
            for part in (slice(0, 3), slice(3, 6), slice(6, None)) if robot.free_base else (slice(None),):
                size[part] = size[part].clamp(min=LEAST * float(size[part].max() if size[part].numel() else 1) + 1e-9)
            found.append(size)
        return cls(*found)


@dataclass(frozen=True)
class WindowLoss:
    """Mean squared error over windows that the model rolls out from their first states, in parts of the scales."""

    model: AugmentedModel
    scales: Scales
    substeps: int | None = None
    truncate: int = 0  # frames after which gradients are cut; 0: never
    position: float = 1.0  # weight of q
    velocity: float = 1.0  # weight of qd

    def __call__(self, windows: Trajectories) -> Tensor:
        return self.residuals(windows).square().sum()

    def residuals(self, windows: Trajectories) -> Tensor:
        """[R], whose squares sum to the loss."""
        robot, frames = self.model.robot, windows["force"].shape[1]
        q, qd = windows["q"][:, 0], windows["qd"][:, 0]
        ground = windows["ground_point"], windows["ground_normal"]
        start = windows["start"] * robot.frame_dt
        found = []
        for k in range(frames):
            if self.truncate and k and k % self.truncate == 0:
                q, qd = q.detach(), qd.detach()
            time = start + k * robot.frame_dt
            q, qd = self.model.frame(q, qd, windows["force"][:, k], ground, self.substeps, time)
            off = displacement(robot, windows["q"][:, k + 1], q) / self.scales.step
            rate = (qd - windows["qd"][:, k + 1]) / self.scales.change
            size = (frames * off.numel()) ** -0.5
            for part, weight in ((off, self.position), (rate, self.velocity)):
                if weight:
                    found.append(size * weight**0.5 * part.flatten())
        return torch.cat(found)


@torch.no_grad()
def rolled(model: AugmentedModel, windows: Trajectories, substeps: int | None = None) -> tuple[Tensor, Tensor]:
    """q [M, T+1, nq] and qd [M, T+1, nv] of rollouts from the first states of windows."""
    q, qd = windows["q"][:, 0], windows["qd"][:, 0]
    ground, dt = (windows["ground_point"], windows["ground_normal"]), model.robot.frame_dt
    states = [(q, qd)]
    for k in range(windows["force"].shape[1]):
        time = (windows["start"] + k) * dt
        q, qd = model.frame(q, qd, windows["force"][:, k], ground, substeps, time)
        states.append((q, qd))
    return torch.stack([q for q, _ in states], 1), torch.stack([qd for _, qd in states], 1)


def errors_of(robot: RobotModel, windows: Trajectories, q: Tensor) -> Tensor:
    """[M, T+1, nv]: displacements from the windows' states to others; a rollout that diverged is infinitely far off."""
    flat = displacement(robot, windows["q"].flatten(0, 1), q.flatten(0, 1)).unflatten(0, q.shape[:2])
    return torch.where(flat.isfinite(), flat, torch.inf)


@torch.no_grad()
def normalise(model: AugmentedModel, windows: Trajectories, most: int = 4096) -> None:
    """Centre and scale what networks read by the states that windows start from, and size what they give.

    A scalar's size is a tenth of what is usual for its group: of joint forces, what the plain engine misses.
    """
    pick = rows_of(windows, torch.linspace(0, len(windows["q"]) - 1, min(most, len(windows["q"]))).long())
    moment = first_moment(model, pick)
    signals = Signals(moment)
    usual = _usual(model, moment, pick)
    given: set[str] = set()
    for one, net in zip(model.wires, model.scalar_nets, strict=True):
        if given.isdisjoint(name for names in one.inputs for name in names):
            x = torch.cat([signals(model.catalogue, names) for names in one.inputs])
            net.centre.copy_(x.mean(0))
            spread = x.std(0)
            net.scale.copy_(torch.where(spread > 1e-9, spread, 1.0))
        net.size.copy_(torch.tensor([usual[name.split("/")[0]] for name in one.outputs[0]]))
        given |= {name for names in one.outputs for name in names}


def first_moment(model: AugmentedModel, windows: Trajectories) -> Moment:
    """What an engine computes with at the first states of windows."""
    engine = model.engine()
    q, qd = windows["q"][:, 0], windows["qd"][:, 0]
    pose, law = engine.pose(q), model.contact_law(engine)
    ground = windows["ground_point"], windows["ground_normal"]
    points = None if law is None else engine.contact_points(q, pose, qd, ground)
    time = windows["start"] * model.robot.frame_dt
    return Moment(engine, q, qd, windows["force"][:, 0], pose, points, law, None, time)


def _usual(model: AugmentedModel, moment: Moment, windows: Trajectories) -> dict[str, float]:
    """A size of what networks may add, by group of scalars."""
    robot, p = model.robot, moment.engine.parameters
    weight = 9.81 * float(p.mass.sum())
    length = float(p.offset.norm(dim=-1).max().clamp(min=0.1))
    H, bias = moment.engine.mass_and_bias(moment.pose, moment.qd)
    qdd = (windows["qd"][:, 1] - windows["qd"][:, 0]) / robot.frame_dt
    applied = moment.engine.on_joints(moment.force) + moment.engine.joint_force(moment.q, moment.qd)
    missed = ((H @ qdd[..., None])[..., 0] + bias - applied)[:, robot.joint_qd]
    tau = float(missed.square().mean().sqrt()) if robot.nj else 0.0
    return {
        "tau": max(tau, 1e-3 * weight * length),
        "stiffness": max(float(p.stiffness.mean()), 0.1 * weight * length) if robot.nj else 1.0,
        "damping": max(float(p.damping.mean()), 0.1 * weight * length) if robot.nj else 1.0,
        "normal": 0.1 * weight,
        "friction": 0.1 * weight,
        "mass": 0.1 * float(p.mass.mean()),
        "com": 0.1 * length,
        "inertia": 0.1 * float(p.inertia.abs().max()),
        "drag": max(tau, 0.1 * weight * length),
    }
