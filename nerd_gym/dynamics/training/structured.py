"""Train a structured model: inertial parameters by identification, contact and torque laws by gradient descent.

Frames that are clear of the ground tell the inertias. The laws are then trained through the substeps of whole
frames, in float64. If the inertias leave more than a thousandth of the motion unexplained, the teacher knows forces
that the MJCF does not: a torque law learns them, and the inertias are fitted again beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nerd_gym.data.reader import Data, Frames, frames_at, nearness
from nerd_gym.dynamics.identify.fixed_base import Identification
from nerd_gym.dynamics.models.force_networks import ContactLaw, TorqueLaw
from nerd_gym.dynamics.models.inertias import Inertias
from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import state_error

from .loop import Loop

if TYPE_CHECKING:
    from .train import Settings

UNEXPLAINED = 1e-3  # of a frame's change of velocity, above which a torque law is worth its while
CLEAR = 0.02  # m over the ground, besides a quarter of a candidate's way in the frame
TOUCHING = 0.03  # m: frames that end this close, or closer, teach contact
ROUNDS = 2  # of torque law and inertias in turn
RESIDUAL = ("auto", "on", "off")
CONTACT_RECIPE = {"steps": 3000, "batch": 1024, "ema": 0.99}
TORQUE_RECIPE = {"steps": 1500, "batch": 512, "lr": 1e-2, "ema": 0.99}


def train_structured(
    data: Data, settings: Settings, checkpoint: Path, facts: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and further facts of a structured model."""
    robot = data.robot
    if robot.free_base:
        raise ValueError(f"{robot.name} has a free base; structured models are for robots with a fixed one")
    if settings.residual not in RESIDUAL:
        raise ValueError(f"unknown residual {settings.residual!r}; valid: {', '.join(RESIDUAL)}")
    generator = torch.Generator().manual_seed(settings.seed)
    clear = touching = None
    if robot.ground is not None:
        near, way = nearness(robot, data.train)
        clear, touching = near > CLEAR + 0.25 * way, near < TOUCHING
        clear, touching = clear.nonzero(), touching.nonzero()
        if len(clear) < 500 or len(touching) < 2000:
            raise ValueError(
                f"{len(clear)} frames are clear of the ground and {len(touching)} touch it; at least 500 and 2000 are "
                "needed to learn inertias and contact: generate more transitions"
            )
    free = draw(data.train, clear, settings.transitions, generator)
    inertias = identify(robot, free)
    inside = inside_limits(robot, free)
    if inertias.residual > UNEXPLAINED and not bool(inside.all()):
        # Perhaps only the teacher's joint limits are other than the MJCF's springs: these tell nothing of inertias.
        free = {name: value[inside] for name, value in free.items()}
        inertias = identify(robot, free)
    learned: dict[str, Any] = {"curves": {}}
    torque_law = None
    if settings.residual == "on" or (settings.residual == "auto" and inertias.residual > UNEXPLAINED):
        torque_law = new_torque_law(robot, data, settings.seed)
        inertias = identify(robot, free, unexplained=True)
        for turn in range(ROUNDS):
            recipe = settings.recipe(**TORQUE_RECIPE)
            trainer = LawTrainer(data, inertias, None, torque_law, clear)
            loop = trainer.loop(torque_law, recipe, checkpoint.with_suffix(f".torque{turn}"), facts)
            learned["curves"][f"torque {turn}"] = loop.run()
            inertias = identify(robot, free, torque_law)
    contact_law = None
    if robot.ground is not None:
        contact_law = new_contact_law(robot, data, inertias, touching, settings.seed)
        trainer = LawTrainer(data, inertias, contact_law, torque_law, touching)
        loop = trainer.loop(contact_law, settings.recipe(**CONTACT_RECIPE), checkpoint, facts)
        learned["curves"]["contact"] = loop.run()
        learned["recipe"] = loop.facts["recipe"]
    learned |= {"rank": inertias.rank, "residual": inertias.residual, "transitions": settings.transitions}
    tensors = {"parameters": inertias.parameters}
    for name, law in (("contact", contact_law), ("torque", torque_law)):
        if law is not None:
            tensors |= {f"{name}.{key}": value.detach().float() for key, value in law.state_dict().items()}
    return tensors, learned


def draw(arrays: dict[str, Tensor], among: Tensor | None, size: int, generator: torch.Generator) -> Frames:
    """Random frames, of all or of those listed [K, 2] as (trajectory, frame)."""
    if among is None:
        count, frames = arrays["force"].shape[:2]
        row = torch.randint(count, (size,), generator=generator)
        return frames_at(arrays, row, torch.randint(frames, (size,), generator=generator))
    row, at = among[torch.randint(len(among), (size,), generator=generator)].unbind(-1)
    return frames_at(arrays, row, at)


def inside_limits(robot: RobotModel, frames: Frames) -> Tensor:
    """[B]: frames that keep clear of the joint limits by the way they go."""
    low, high = torch.as_tensor(robot.joint_range).unbind(-1)
    q, after = frames["q"][:, robot.joint_q], frames["next_q"][:, robot.joint_q]
    way = (after - q).abs()
    return ((torch.minimum(q, after) - way > low) & (torch.maximum(q, after) + way < high)).all(-1)


def identify(
    robot: RobotModel, frames: Frames, torque_law: TorqueLaw | None = None, unexplained: bool = False
) -> Inertias:
    """Inertial parameters from frames without contact, beside a torque law or what is yet `unexplained`."""
    with torch.no_grad():
        given = [frames[name] for name in ("q", "qd", "force", "next_q", "next_qd")]
        problem = Identification(robot, torque_law=torque_law)
        if unexplained:
            return Inertias(robot, problem.guess(problem.calm(*given), unexplained=True))
        return problem.fit(*given)


def new_torque_law(robot: RobotModel, data: Data, seed: int) -> TorqueLaw:
    """Fresh, scaled to the data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rate = data.train["qd"].flatten(0, 1).double().square().mean(0).sqrt()
        force = data.train["force"].flatten(0, 1).double().square().mean(0).sqrt()
        return TorqueLaw(robot, rate=rate, force=force.clamp(min=0.1 * float(force.max()))).double()


def new_contact_law(robot: RobotModel, data: Data, inertias: Inertias, touching: Tensor, seed: int) -> ContactLaw:
    """Fresh, scaled to depths, speeds and forces that the data show."""
    frames = draw(data.train, touching, 4096, torch.Generator().manual_seed(seed))
    frames = {name: value.double() for name, value in frames.items()}
    motion = Articulated(robot, inertias.links())
    ground = frames["ground_point"], frames["ground_normal"]
    seen: list[Tensor] = []

    def watch(depth: Tensor, along: Tensor, slip: Tensor) -> tuple[Tensor, Tensor]:
        inside = depth > 0
        seen.extend(x[inside] for x in (depth, (along.square() + slip.square()).sqrt()))
        return torch.zeros_like(depth), torch.zeros_like(depth)

    motion.contact_force(motion.pose(frames["next_q"]), frames["next_qd"], ground, watch)
    depth, speed = (torch.quantile(x[:100_000], 0.9).item() for x in seen)
    # What the contacts must have given so that the frame ended as it did, over a metre's lever.
    pose = motion.pose(frames["q"])
    H, bias = motion.mass_and_bias(pose, frames["qd"])
    needed = (H @ (frames["next_qd"] - frames["qd"])[..., None])[..., 0] / robot.frame_dt + bias - frames["force"]
    force = needed.norm(dim=-1).median().item()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ContactLaw(depth=depth, speed=speed, slow=speed / 40, force=force).double()


class LawTrainer:
    """Loss and validation of laws in a robot's motion."""

    def __init__(
        self,
        data: Data,
        inertias: Inertias,
        contact_law: ContactLaw | None,
        torque_law: TorqueLaw | None,
        among: Tensor | None,
    ):
        self.data, self.robot, self.among = data, data.robot, among
        self.motion = Articulated(data.robot, inertias.links())
        self.laws = {"contact_law": contact_law, "torque_law": torque_law}
        frames = draw(data.train, among, 4096, torch.Generator().manual_seed(0))
        self._floor = 0.1 * (frames["next_qd"] - frames["qd"]).double().square().mean(0).sqrt()

    def frame(self, q: Tensor, qd: Tensor, force: Tensor, ground: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """One frame under the laws."""
        return self.motion.frame(q, qd, force, ground, **self.laws)

    def loss(self, frames: Frames) -> Tensor:
        """Mean size of the velocity's error, over the size of its change: every frame counts alike."""
        ground = frames["ground_point"], frames["ground_normal"]
        _, qd = self.frame(frames["q"], frames["qd"], frames["force"], ground)
        change = (frames["next_qd"] - frames["qd"]).abs().mean(-1, keepdim=True)
        off = (qd - frames["next_qd"]) / (self._floor + change)
        return torch.sqrt(off.square().sum(-1) + 1e-10).mean()

    def validate(self, rollouts: int = 256, frames: int = 50) -> dict[str, float]:
        """Mean joint error of rollouts of held-back trajectories."""
        held = self.data.held
        rows = slice(0, rollouts)
        ground = held["ground_point"][rows].double(), held["ground_normal"][rows].double()
        q, qd = held["q"][rows, 0].double(), held["qd"][rows, 0].double()
        total, frames = 0.0, min(frames, held["force"].shape[1])
        for frame in range(frames):
            q, qd = self.frame(q, qd, held["force"][rows, frame].double(), ground)
            total += state_error(self.robot, held["q"][rows, frame + 1].double(), q)["joints"].mean().item()
        return {"rollout": total / frames}

    def loop(self, module: nn.Module, recipe, checkpoint: Path, facts: dict[str, Any]) -> Loop:
        """The training of one of the laws."""
        others = [law for law in self.laws.values() if law is not None and law is not module]
        for law in others:
            law.requires_grad_(False)

        def sample(generator: torch.Generator, size: int) -> Frames:
            frames = draw(self.data.train, self.among, size, generator)
            return {name: value.double() for name, value in frames.items()}

        name = type(module).__name__
        return Loop(module, sample, self.loss, self.validate, recipe, checkpoint, facts, name)
