"""Train a model of any kind from a dataset: `train` does what `nerd-gym train` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerd_gym.data.reader import Data, windows
from nerd_gym.dynamics.models.base import DynamicsModel, kind_of
from nerd_gym.dynamics.models.checkpoint import LARGEST_SIZE, current_kind, load_model, save_model
from nerd_gym.dynamics.models.network_model import NetworkModel
from nerd_gym.dynamics.models.trust import TrustFeatures, fit_trust
from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion, state_error
from nerd_gym.utils.arguments import check_counts, check_real, check_seed, whole
from nerd_gym.utils.device import torch_device
from nerd_gym.utils.files import file_hash

from .loop import OPTIMISERS, Recipe, TrainingLoop, processes

ROLLOUTS, ROLLOUT_FRAMES = 128, 50  # held-back trajectories that validation rolls out
TRUST_FRAMES = 40_000
NORMALISER_FRAMES = EXPLAINED_FRAMES = 20_000
FORCE_NETS = ("auto", "on", "off")
REFINEMENT = {"steps": 3000, "lr": 1e-3}  # of a network that is trained further
NETWORK_RECIPES = {
    "mlp": {"steps": 6000, "batch": 2048, "optimiser": "soap", "lr": 3e-3},
    "residual": {"steps": 24_000, "batch": 2048, "optimiser": "soap", "lr": 8e-3, "precondition": 25},
    "mlp, free base": {"steps": 28_000, "batch": 2048, "optimiser": "soap", "lr": 8e-3, "precondition": 25},
    "transformer": {"steps": 4000, "batch": 128, "optimiser": "adamw", "lr": 1e-3, "weight_decay": 0.01},
}


@dataclass(frozen=True)
class Settings:
    """What a user may choose; None stands for the kind's own default."""

    kind: str | None = None
    steps: int | None = None
    batch: int | None = None
    optimiser: str | None = None
    lr: float | None = None
    polish: int | None = None
    network: tuple[tuple[str, int], ...] = ()
    transitions: int = 4000  # that inertial parameters are fitted to
    force_net: str = "auto"  # joint force network of a structured model
    seed: int = 0
    device: str = "cpu"  # of a network's training; identification is float64 on the CPU
    start: Path | None = None  # a network to go on from, of the same kind and sizes
    newest: float = 0.0  # the part of every batch that is drawn from the last of several datasets alone

    def __post_init__(self):
        if not 0 <= self.newest <= 1:
            raise ValueError(f"newest is {self.newest}; it must be from 0 to 1")
        check_counts(steps=self.steps, batch=self.batch, transitions=self.transitions)
        check_seed(self.seed)
        if self.polish is not None:
            whole("polish", self.polish, least=0)
        if self.lr is not None:
            check_real("lr", self.lr, 0, 1e3)
        if self.optimiser not in (None, *OPTIMISERS):
            raise ValueError(f"unknown optimiser {self.optimiser!r}; valid: {', '.join(OPTIMISERS)}")
        if self.force_net not in FORCE_NETS:
            raise ValueError(f"force_net is {self.force_net!r}; valid: {', '.join(FORCE_NETS)}")
        for name, value in self.network:
            whole(name, value, LARGEST_SIZE)
        torch_device(self.device)

    def recipe(self, **defaults: Any) -> Recipe:
        """The recipe of a kind with the user's changes."""
        given = {name: getattr(self, name) for name in ("steps", "batch", "optimiser", "lr", "polish", "seed")}
        return Recipe(**defaults | {name: value for name, value in given.items() if value is not None})


def default_kind(robot: RobotModel) -> str:
    """structured for a fixed base, residual for a free one."""
    return "residual" if robot.free_base else "structured"


def check_sizes(kind: str, network: tuple[tuple[str, int], ...]) -> None:
    """Refuse sizes that a kind of model does not have."""
    valid = getattr(kind_of(kind), "default_network", {})
    for name, _ in network:
        if name not in valid:
            raise ValueError(f"{kind} has no size {name!r}; valid: {', '.join(valid) or 'none'}")


def train(
    data: Path | Sequence[Path], robot: RobotModel, out: Path, settings: Settings, command: str = ""
) -> dict[str, Any]:
    """Train, calibrate the trust, save; the same call goes on with a run that was stopped. Returns the facts."""
    with processes() as rank:
        return _train(data, robot, out, settings, command, rank)


def _train(
    data_path: Path | Sequence[Path], robot: RobotModel, out: Path, settings: Settings, command: str, rank: int
) -> dict[str, Any]:
    kind = current_kind(settings.kind) if settings.kind else default_kind(robot)
    kind_of(kind)  # names the valid ones if there is no such kind
    data = Data.load(data_path, robot)
    facts = {
        "kind": kind,
        "robot": robot.name,
        "robot_hash": robot.hash,
        "frame_dt": robot.frame_dt,
        "substeps": robot.substeps,
        "teacher": str(data.facts["backend"]),
        "teacher_options": str(data.facts["backend_options"]),
        "seed": settings.seed,
        "command": command,
        "data_command": data.command(),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = out.with_suffix(".checkpoint")
    if kind == "structured":
        from .structured import train_structured

        tensors, learned = train_structured(data, settings, checkpoint, facts)
    else:
        tensors, learned = train_network(data, kind, settings, checkpoint, facts)
    facts |= learned
    if rank > 0:
        return facts
    model = kind_of(kind)(robot, tensors, facts)
    trust, judged = calibrate(model, data, settings.seed)
    model.close()
    facts["trust"] = judged
    save_model(out, tensors | trust, facts)
    for path in (checkpoint, *checkpoint.parent.glob(f"{checkpoint.stem}.torque*")):
        path.unlink(missing_ok=True)
    return facts


def train_network(
    data: Data, kind: str, settings: Settings, checkpoint: Path, facts: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A network, with or without a prior that it corrects."""
    robot, cls = data.robot, kind_of(kind)
    if not issubclass(cls, NetworkModel):
        raise ValueError(f"a {kind} model is not trained as one network")
    check_sizes(kind, settings.network)
    tensors: dict[str, Tensor] = {}
    legged = f"{kind}, free base"
    defaults = NETWORK_RECIPES[legged if robot.free_base and legged in NETWORK_RECIPES else kind]
    network, recipe = cls.default_network | dict(settings.network), settings.recipe(**defaults)
    if settings.start is not None:
        tensors, old = load_model(settings.start, robot)
        if old["kind"] != kind or (settings.network and old["network"] != network):
            raise ValueError(f"{settings.start.name} is a {old['kind']} of {old['network']}, not a {kind} of {network}")
        network, recipe = old["network"], settings.recipe(**defaults | REFINEMENT)
        facts = facts | {key: old[key] for key in cls.kept_facts() if key in old}
        facts["start"] = {"hash": file_hash(settings.start), "command": old["command"]}
    else:
        facts = facts | cls.new_facts(robot)
    identified: dict[str, Any] = {}
    if kind == "residual" and settings.start is None:
        from .residual import identify_prior

        tensors, identified = identify_prior(data, settings.seed)
        facts = facts | {key: identified[key] for key in cls.kept_facts() if key in identified}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = cls(robot, tensors, facts | {"network": network}, settings.device)
    length = data.train["force"].shape[1]
    if length < model.frames:
        raise ValueError(f"the trajectories have {length} frames; {kind} is trained on windows of {model.frames}")

    last = {name: value[-data.newest :] for name, value in data.train.items()}

    def sample(generator: torch.Generator, size: int) -> dict[str, Tensor]:
        new = round(settings.newest * size)
        batch = windows(data.train, model.frames, size - new, generator)
        if new:
            more = windows(last, model.frames, new, generator)
            batch = {name: torch.cat([value, more[name]]) for name, value in batch.items()}
        return {name: value.to(model.device) for name, value in batch.items()}

    fresh = settings.start is None
    model.fit_normaliser(sample(torch.Generator().manual_seed(settings.seed), NORMALISER_FRAMES), fresh)

    def validate() -> dict[str, float]:
        return {"rollout": rollout_error(model, data.held)}

    loop = TrainingLoop(
        model.module, sample, model.loss, validate, recipe, checkpoint, facts | {"network": network}, kind
    )
    curve = loop.run()
    learned = {"network": network, "recipe": loop.facts["recipe"], "curve": curve, "r2": explained(model, data.held)}
    learned |= identified | {key: facts[key] for key in ("start", *cls.kept_facts()) if key in facts}
    return model.tensors(), learned


@torch.no_grad()
def explained(model: NetworkModel, held: dict[str, Tensor], size: int = EXPLAINED_FRAMES) -> dict[str, float]:
    """R2 of the one-frame change of velocity on held-back windows, by group of coordinates."""
    batch = windows(held, model.frames, size // model.frames, torch.Generator().manual_seed(0))
    batch = {name: value.to(model.device) for name, value in batch.items()}
    inputs, targets = model.examples(batch)
    outputs = model.outputs(model.normaliser.inputs(inputs))
    error = (outputs - targets)[:, -1, -model.robot.nv :]  # targets may be of a part of the change alone
    now, after = (Motion(batch["q"][:, at], batch["qd"][:, at]) for at in (-2, -1))
    _, change = model.robot_centric.relative_motion(now, after)
    return {name: 1 - part for name, part in unexplained(model.robot, change, error).items()}


def unexplained(robot: RobotModel, change: Tensor, error: Tensor) -> dict[str, float]:
    """Of changes of velocity [N, nv], the part of their variance that errors [N, nv] make up, by group."""
    nv, free = robot.nv, robot.free_base
    groups = {"linear": slice(0, 3), "angular": slice(3, 6), "joints": slice(6, nv)} if free else {"joints": slice(nv)}
    spread = (change - change.mean(0)).square()
    return {name: float(error[:, at].square().sum() / spread[:, at].sum()) for name, at in groups.items()}


def rollout_error(
    model: DynamicsModel, held: dict[str, Tensor], rollouts: int = ROLLOUTS, frames: int = ROLLOUT_FRAMES
) -> float:
    """Mean error of position, orientation and joints over held-back trajectories under their own forces."""
    robot = model.robot
    count = len(held["q"])  # from all over the data, whose kinds of motion come in blocks
    rows = torch.linspace(0, count - 1, min(rollouts, count)).long()
    held = {name: value[rows].to(model.device) for name, value in held.items()}
    find = ContactFinder(robot, Kinematics(robot, model.device))
    ground = held["ground_point"], held["ground_normal"]
    motion = Motion(held["q"][:, 0], held["qd"][:, 0])
    history = model.new_history(len(motion.q))
    total, frames = 0.0, min(frames, held["force"].shape[1])
    for frame in range(frames):
        motion = model.predict(motion, held["force"][:, frame], find(motion.q, *ground), history)
        errors = state_error(robot, held["q"][:, frame + 1], motion.q)
        # A rollout that came apart counts as a large error, not as no number.
        total += sum(torch.nan_to_num(e, nan=10.0).clamp(max=10.0).mean().item() for e in errors.values())
    return total / frames


def calibrate(model: DynamicsModel, data: Data, seed: int) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Trust in a model from its one-frame errors on held-back windows."""
    robot, held = data.robot, data.held
    frames = model.frames
    batch = windows(held, frames, min(TRUST_FRAMES, held["force"][..., 0].numel()), torch.Generator().manual_seed(seed))
    find = ContactFinder(robot, Kinematics(robot))
    ground = batch["ground_point"], batch["ground_normal"]
    history = model.new_history(len(batch["q"]))
    for frame in range(frames):
        before = Motion(batch["q"][:, frame], batch["qd"][:, frame])
        contacts = find(before.q, *ground)
        after = model.predict(before, batch["force"][:, frame], contacts, history)
    error = one_frame_error(before, after, Motion(batch["q"][:, -1], batch["qd"][:, -1]))
    force = batch["force"][:, -1]
    features = model.network_inputs(before, force, contacts)
    if features is None:
        features = TrustFeatures(robot)(before.q, before.qd, force, contacts)
    return fit_trust(robot, data.train, features, error, seed)


def one_frame_error(before: Motion, after: Motion, truth: Motion) -> Tensor:
    """[N]: rms over the coordinates of the error of a frame, each over the rms of its change."""
    parts = []
    for name in ("q", "qd"):
        off = getattr(after, name) - getattr(truth, name)
        change = getattr(truth, name) - getattr(before, name)
        parts.append(off / change.square().mean(0).sqrt().clamp(min=1e-9))
    return torch.cat(parts, -1).square().mean(-1).sqrt()
