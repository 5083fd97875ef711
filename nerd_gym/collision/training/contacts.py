"""Learn the law of contact of `backend="hybrid"` from a teacher's motion: three laws, and the best of them.

All learn from single substeps of the teacher at states that touch the ground: a network from what the contacts did
(contact_samples.py), the gains of the penalty law and of MuJoCo's constraints by dynamics/identify. Whole frames of
other runs choose the law; the figures in the facts are of runs that neither has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.backends.contact_steps import ContactSteps
from nerd_gym.backends.hybrid import HybridBackend
from nerd_gym.collision.models.contact_model import (
    CONSTRAINT,
    LAWS,
    NATIVE,
    NETWORK,
    NONE,
    PENALTY,
    SPRING,
    ContactModel,
)
from nerd_gym.data.reader import Data, Transitions, frames_at, nearness
from nerd_gym.dynamics.identify.contact_law import Gains, fit_constraint_law, fit_contact_gains
from nerd_gym.dynamics.training.loop import Recipe, TrainingLoop
from nerd_gym.dynamics.training.structured import CLEAR, TOUCHING, inside_limits
from nerd_gym.dynamics.training.train import unexplained
from nerd_gym.physics.torch.contact import ContactPoints
from nerd_gym.physics.torch.contact_net import ContactForceNet
from nerd_gym.physics.warp.constraint_params import ConstraintLaw
from nerd_gym.robots.links import read_links
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.arguments import check_counts, check_seed
from nerd_gym.utils.progress import progress

from .contact_samples import Samples, beyond_limits, contact_samples, states_where, substeps_of, touching

AUTO = "auto"
VALIDATION = 0.1  # of the training runs
FITTING, JUDGING = 2000, 4000  # substeps that gains are fitted to, and frames that judge
SETTLING = 5  # times that constraints are solved on, because a substep alone has no forces to start from
SUBSTEPS, FEWEST = 120_000, 500  # samples of substeps for the network, and at least
LOOKED_AT, FEWEST_STOPPED = 1000, 30  # runs that are searched for frames at joint limits, and such frames at least
FLOOR = 0.1  # of the usual change of velocity, to which an error is related at least


@dataclass(frozen=True)
class ContactSettings:
    """What a user may choose."""

    law: str = AUTO
    width: int = 32
    steps: int = 4000
    batch: int = 1024
    seed: int = 0

    def __post_init__(self):
        valid = (AUTO, *LAWS[:-1])
        if self.law not in valid:
            raise ValueError(f"unknown law {self.law!r}; valid: {', '.join(valid)}")
        check_counts(width=self.width, steps=self.steps, batch=self.batch)
        check_seed(self.seed)


def train_contacts(data: Data, out: Path, settings: ContactSettings, command: str) -> ContactModel:
    """Write the model of a robot's contacts with the ground, and return it."""
    robot = data.robot
    facts: dict[str, Any] = {
        "robot": robot.name,
        "robot_hash": robot.hash,
        "teacher": data.facts["backend"],
        "teacher_options": data.facts["backend_options"],
        "frame_dt": robot.frame_dt,
        "substeps": robot.substeps,
        "seed": settings.seed,
        "command": command,
        "data_command": data.command(),
    }
    if not robot.candidates.names:
        generator = torch.Generator().manual_seed(settings.seed)
        model = ContactModel(NONE, limits=_limits(robot, _some(data.train, None, 10 * JUDGING, generator)), facts=facts)
    else:
        model = _best_law(data, out, settings, facts)
    judged = _some(data.held, None, JUDGING, torch.Generator().manual_seed(settings.seed))
    with HybridFrames(robot, model) as frames:
        left = frames.unexplained(judged)
    facts = model.facts | {"r2": {name: 1 - value for name, value in left.items()}}
    model = replace(model, facts=facts)
    model.save(out)
    _checkpoint(out).unlink(missing_ok=True)  # not before: other laws may still be fitted after the network
    return model


def _checkpoint(out: Path) -> Path:
    return out.with_suffix(".checkpoint")


def _best_law(data: Data, out: Path, settings: ContactSettings, facts: dict[str, Any]) -> ContactModel:
    robot, generator = data.robot, torch.Generator().manual_seed(settings.seed)
    laws = [settings.law] if settings.law != AUTO else [law for law in LAWS[:-1] if _fits(robot, law)]
    if not _fits(robot, laws[0]):
        raise ValueError(f"{robot.name} has a fixed base; the law {CONSTRAINT!r} is for robots with a free one")
    order = torch.randperm(len(data.train["q"]), generator=generator)
    cut = max(1, round(VALIDATION * len(order)))
    runs = [{name: value[rows] for name, value in data.train.items()} for rows in (order[cut:], order[:cut])]
    near_held = nearness(robot, runs[1])[0]
    judging = (near_held < TOUCHING).nonzero()
    judged = _some(runs[1], judging, JUDGING, generator)
    some = {name: value[:LOOKED_AT] for name, value in runs[0].items()}
    near, moved = nearness(robot, some)
    limits = _limits(robot, _some(some, (near > CLEAR + moved).nonzero(), 10 * JUDGING, generator))
    states = states_where(touching, robot, runs[0], SUBSTEPS, generator)
    if min(len(states), len(judging)) < FEWEST:
        raise ValueError(
            f"{len(states)} training frames begin inside the ground and {len(judging)} validation frames are near it; "
            f"at least {FEWEST} of each are needed: generate more transitions"
        )
    substeps = substeps_of(data, runs[0], states)
    samples = contact_samples(robot, substeps, springs=limits == SPRING)
    depth, speed = _depths_and_speeds(samples)
    span = float(depth.max()), float(speed.max())
    fitting = {name: value[:FITTING] for name, value in substeps.items()}
    stopped = states_where(beyond_limits, robot, runs[0], FITTING, generator)
    if len(stopped):
        also = substeps_of(data, runs[0], stopped)
        order = torch.randperm(len(fitting["q"]) + len(also["q"]), generator=generator)
        fitting = {name: torch.cat([value, also[name]])[order] for name, value in fitting.items()}
    tried: dict[str, ContactModel] = {}
    left: dict[str, dict[str, float]] = {}
    for law in laws:
        if law == NETWORK:
            network = _train_network(robot, samples, settings, _checkpoint(out), facts)
            tried[law] = ContactModel(law, network=network, limits=limits, span=span)
        else:
            tried[law] = _fit(robot, law, fitting, limits, span)
        with HybridFrames(robot, tried[law]) as frames:
            left[law] = frames.unexplained(judged)
    best = min(tried, key=lambda law: max(left[law].values()))
    return replace(tried[best], facts=facts | {"unexplained": left, "fitted_frames": len(judged["q"])})


def _fits(robot: RobotModel, law: str) -> bool:
    return robot.free_base or law != CONSTRAINT


def _some(arrays: dict[str, Tensor], among: Tensor | None, size: int, generator: torch.Generator) -> Transitions:
    """Frames at random without repetition, of all or of those listed [K, 2]."""
    if among is None:
        count, frames = arrays["force"].shape[:2]
        flat = torch.randperm(count * frames, generator=generator)[:size]
        return frames_at(arrays, flat // frames, flat % frames)
    chosen = among[torch.randperm(len(among), generator=generator)[:size]]
    return frames_at(arrays, *chosen.unbind(-1))


def _limits(robot: RobotModel, frames: Transitions) -> str:
    """Whose joint limits explain frames clear of the ground that reach one; MuJoCo's if they hardly do."""
    beyond = ~inside_limits(robot, frames)
    if int(beyond.sum()) < FEWEST_STOPPED:
        return NATIVE
    frames = {name: value[beyond][:JUDGING] for name, value in frames.items()}
    errors = {}
    for limits in (SPRING, NATIVE):
        with HybridFrames(robot, ContactModel(NONE, limits=limits)) as steps:
            errors[limits] = max(steps.unexplained(frames).values())
    return min(errors, key=errors.__getitem__)


def _depths_and_speeds(samples: Samples) -> tuple[Tensor, Tensor]:
    """Of the points inside the ground, [M] each."""
    inside = samples["depth"] > 0
    speed = (samples["along"].square() + samples["slide"].square().sum(-1)).sqrt()
    return samples["depth"][inside], speed[inside]


class HybridFrames:
    """Frames of `hybrid` under a law, for fits that ask for the same frames again and again."""

    def __init__(
        self, robot: RobotModel, model: ContactModel, counted: Callable[[], Any] | None = None, settled: bool = False
    ):
        self._robot, self._model, self._counted, self._settled = robot, model, counted, settled
        self._backend: HybridBackend | None = None

    def __enter__(self) -> HybridFrames:
        return self

    def __exit__(self, *_: object) -> None:
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    def __call__(self, gains: Gains, frames: Transitions) -> Tensor:
        """qd [B, nv] a frame later, with these gains of the law."""
        rows = len(frames["q"])
        if self._backend is None or self._backend.num_envs != rows:
            self.__exit__()
            self._backend = HybridBackend(self._robot, rows, model=self._model)
        backend = self._backend
        steps = backend.collisions
        assert isinstance(steps, ContactSteps)
        if steps.forces is not None and gains:
            steps.forces.set_gains(*gains)
        backend.reset(
            torch.ones(rows, dtype=torch.bool),
            frames["q"],
            frames["qd"],
            (frames["ground_point"], frames["ground_normal"]),
        )
        if self._settled and steps.forces is not None:
            steps.forces.settle(frames["q"], frames["qd"], frames["force"], SETTLING)
        backend.step(frames["force"])
        if self._counted is not None:
            self._counted()
        return torch.where(backend.healthy[:, None], backend.qd, torch.nan)

    def unexplained(self, frames: Transitions) -> dict[str, float]:
        """Of the change of velocity, by group of coordinates."""
        change = frames["next_qd"] - frames["qd"]
        error = self(self._model.gains, frames) - frames["next_qd"]
        return unexplained(self._robot, change, torch.nan_to_num(error, nan=1e3))


def _fit(robot: RobotModel, law: str, frames: Transitions, limits: str, span: tuple[float, float]) -> ContactModel:
    """Gains with which single substeps end as the teacher's do."""
    robot = replace(robot, substeps=1)
    start = robot.contact_gains if law == PENALTY else tuple(ConstraintLaw())
    model = ContactModel(law, start, limits=CONSTRAINT if law == CONSTRAINT else limits, span=span)
    with (
        progress(desc=f"fit {law}", unit="evaluation") as bar,
        HybridFrames(robot, model, bar.update, settled=True) as steps,
    ):
        if law == PENALTY:
            gains = fit_contact_gains(robot, read_links(robot), frames, steps)
        else:
            gains = tuple(fit_constraint_law(robot, frames, steps, smooth=True))
    return replace(model, gains=gains)


def _train_network(
    robot: RobotModel, samples: Samples, settings: ContactSettings, checkpoint: Path, facts: dict[str, Any]
) -> ContactForceNet:
    """A network of the force of a contact, from substeps; a twentieth of them chooses the weights."""
    depth, fast = (float(torch.quantile(x[:100_000], 0.9)) for x in _depths_and_speeds(samples))
    # The force that would have given the change alone, along the normal of the deepest point.
    lift = torch.einsum("bvx,bx->bv", samples["effect"][:, :, 0], samples["normal"][:, 0])
    force = float((samples["change"].norm(dim=1) / lift.norm(dim=1).clamp(min=1e-12)).median())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = ContactForceNet(settings.width, depth=depth, speed=fast, slow=fast / 40, force=force)
    cut = max(1, len(samples["depth"]) // 20)
    held = {name: value[:cut] for name, value in samples.items()}
    floor = FLOOR * samples["change"].square().mean(0).sqrt()

    def loss(some: Samples) -> Tensor:
        points = ContactPoints(*(some[name] for name in ("depth", "along", "slide", "normal", "effect")))
        change = torch.einsum("bvkx,bkx->bv", some["effect"], points.force(network))
        size = floor + some["change"].abs().mean(-1, keepdim=True)
        return torch.sqrt(((change - some["change"]) / size).square().sum(-1) + 1e-10).mean()

    def sample(generator: torch.Generator, size: int) -> Samples:
        rows = torch.randint(cut, len(samples["depth"]), (size,), generator=generator)
        return {name: value[rows] for name, value in samples.items()}

    def validate() -> dict[str, float]:
        with torch.no_grad():
            return {"substep": float(loss(held))}

    recipe = Recipe(steps=settings.steps, batch=settings.batch, ema=0.99, seed=settings.seed)
    loop = TrainingLoop(network, sample, loss, validate, recipe, checkpoint, facts, f"contacts of {robot.name}")
    loop.run()
    return network
