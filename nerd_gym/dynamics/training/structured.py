"""Train a structured model: inertial parameters by identification, contact and torque networks by gradient descent.

Transitions that are clear of the ground tell the inertias. The networks are then trained through the substeps of whole
frames, in float64. If the inertias leave more than a thousandth of the motion unexplained, the teacher knows forces
that the MJCF does not: a torque network learns them, and the inertias are fitted again beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nerd_gym.data.reader import Data, Transitions, frames_at, nearness
from nerd_gym.dynamics.identify.fixed_base import Identification
from nerd_gym.dynamics.models.force_networks import JointForceNet
from nerd_gym.dynamics.models.inertias import Inertias
from nerd_gym.physics.torch.contact_net import ContactForceNet
from nerd_gym.physics.torch.engine import Articulated, read_parameters
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import state_error

from .loop import TrainingLoop

if TYPE_CHECKING:
    from .train import Settings

UNEXPLAINED = 1e-3  # of a frame's change of velocity, above which a joint force network is worth its while
CLEAR = 0.02  # m over the ground, besides a quarter of a candidate's displacement in the frame
TOUCHING = 0.03  # m: frames that end this close, or closer, teach contact
ROUNDS = 2  # of joint force network and inertias in turn
FORCE_NET = ("auto", "on", "off")
CONTACT_RECIPE = {"steps": 3000, "batch": 1024, "ema": 0.99}
TORQUE_RECIPE = {"steps": 1500, "batch": 512, "lr": 1e-2, "ema": 0.99}


def train_structured(
    data: Data, settings: Settings, checkpoint: Path, facts: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and further facts of a structured model."""
    robot = data.robot
    if robot.free_base:
        raise ValueError(f"{robot.name} has a free base; structured models are for robots with a fixed one")
    if settings.force_net not in FORCE_NET:
        raise ValueError(f"unknown force_net {settings.force_net!r}; valid: {', '.join(FORCE_NET)}")
    generator = torch.Generator().manual_seed(settings.seed)
    clear = touching = None
    if robot.ground is not None:
        near, displacement = nearness(robot, data.train)
        clear, touching = near > CLEAR + 0.25 * displacement, near < TOUCHING
        clear, touching = clear.nonzero(), touching.nonzero()
        if len(clear) < 500 or len(touching) < 2000:
            raise ValueError(
                f"{len(clear)} frames are clear of the ground and {len(touching)} touch it; at least 500 and 2000 are "
                "needed to learn inertias and contact: generate more transitions"
            )
    free = draw(data.train, clear, settings.transitions, generator)
    inertias = identify(robot, free)
    inside = inside_limits(robot, free)
    if leaves_much(inertias) and not bool(inside.all()):
        # Perhaps only the teacher's joint limits are other than the MJCF's springs: these tell nothing of inertias.
        free = {name: value[inside] for name, value in free.items()}
        inertias = identify(robot, free)
    learned: dict[str, Any] = {"curves": {}}
    joint_force_net = None
    if settings.force_net == "on" or (settings.force_net == "auto" and leaves_much(inertias)):
        joint_force_net = new_joint_force_net(robot, data, settings.seed)
        inertias = identify(robot, free, unexplained=True)
        for round_ in range(ROUNDS):
            recipe = settings.recipe(**TORQUE_RECIPE)
            trainer = ForceNetTrainer(data, inertias, None, joint_force_net, clear)
            loop = trainer.loop(joint_force_net, recipe, checkpoint.with_suffix(f".torque{round_}"), facts)
            learned["curves"][f"torque {round_}"] = loop.run()
            inertias = identify(robot, free, joint_force_net)
    contact_net = None
    if touching is not None:
        contact_net = new_contact_net(robot, data, inertias, touching, settings.seed)
        trainer = ForceNetTrainer(data, inertias, contact_net, joint_force_net, touching)
        loop = trainer.loop(contact_net, settings.recipe(**CONTACT_RECIPE), checkpoint, facts)
        learned["curves"]["contact"] = loop.run()
        learned["recipe"] = loop.facts["recipe"]
    learned |= {"rank": inertias.rank, "residual": inertias.residual, "transitions": settings.transitions}
    tensors = {"parameters": inertias.parameters}
    for name, network in (("contact", contact_net), ("torque", joint_force_net)):
        if network is not None:
            tensors |= {f"{name}.{key}": value.detach().float() for key, value in network.state_dict().items()}
    return tensors, learned


def draw(arrays: dict[str, Tensor], among: Tensor | None, size: int, generator: torch.Generator) -> Transitions:
    """Random frames, of all or of those listed [K, 2] as (trajectory, frame)."""
    if among is None:
        count, frames = arrays["force"].shape[:2]
        row = torch.randint(count, (size,), generator=generator)
        return frames_at(arrays, row, torch.randint(frames, (size,), generator=generator))
    row, at = among[torch.randint(len(among), (size,), generator=generator)].unbind(-1)
    return frames_at(arrays, row, at)


def inside_limits(robot: RobotModel, frames: Transitions) -> Tensor:
    """[B]: frames that keep clear of the joint limits by the displacement they go."""
    low, high = torch.as_tensor(robot.joint_range).unbind(-1)
    q, after = frames["q"][:, robot.joint_q], frames["next_q"][:, robot.joint_q]
    displacement = (after - q).abs()
    return ((torch.minimum(q, after) - displacement > low) & (torch.maximum(q, after) + displacement < high)).all(-1)


def identify(
    robot: RobotModel, frames: Transitions, joint_force_net: JointForceNet | None = None, unexplained: bool = False
) -> Inertias:
    """Inertial parameters from frames without contact, beside a torque network or what is yet `unexplained`."""
    with torch.no_grad():
        q, qd, force, next_q, next_qd = (frames[name] for name in ("q", "qd", "force", "next_q", "next_qd"))
        problem = Identification(robot, joint_force_net=joint_force_net)
        if unexplained:
            return Inertias(robot, problem.guess(problem.calm(q, qd, force, next_q, next_qd), unexplained=True))
        return problem.fit(q, qd, force, next_q, next_qd)


def leaves_much(inertias: Inertias) -> bool:
    """Whether fitted inertias leave so much of the motion unexplained that a joint force network is worth its while."""
    return inertias.residual is not None and inertias.residual > UNEXPLAINED


def new_joint_force_net(robot: RobotModel, data: Data, seed: int) -> JointForceNet:
    """Fresh, scaled to the data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rate = data.train["qd"].flatten(0, 1).double().square().mean(0).sqrt()
        force = data.train["force"].flatten(0, 1).double().square().mean(0).sqrt()
        return JointForceNet(robot, rate=rate, force=force.clamp(min=0.1 * float(force.max()))).double()


def new_contact_net(robot: RobotModel, data: Data, inertias: Inertias, touching: Tensor, seed: int) -> ContactForceNet:
    """Fresh, scaled to depths, speeds and forces that the data show."""
    frames = draw(data.train, touching, 4096, torch.Generator().manual_seed(seed))
    frames = {name: value.double() for name, value in frames.items()}
    motion = Articulated(robot, read_parameters(robot, inertias.links()))
    ground = frames["ground_point"], frames["ground_normal"]
    seen: list[Tensor] = []

    def watch(depth: Tensor, along: Tensor, slip: Tensor) -> tuple[Tensor, Tensor]:
        inside = depth > 0
        seen.extend(x[inside] for x in (depth, (along.square() + slip.square()).sqrt()))
        return torch.zeros_like(depth), torch.zeros_like(depth)

    motion.contact_force(frames["next_q"], motion.pose(frames["next_q"]), frames["next_qd"], ground, watch)
    depth, speed = (torch.quantile(x[:100_000], 0.9).item() for x in seen)
    # What the contacts must have given so that the frame ended as it did, over a metre's lever.
    pose = motion.pose(frames["q"])
    H, bias = motion.mass_and_bias(pose, frames["qd"])
    needed = (H @ (frames["next_qd"] - frames["qd"])[..., None])[..., 0] / robot.frame_dt + bias - frames["force"]
    force = needed.norm(dim=-1).median().item()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ContactForceNet(depth=depth, speed=speed, slow=speed / 40, force=force).double()


class ForceNetTrainer:
    """Loss and validation of networks in a robot's motion."""

    def __init__(
        self,
        data: Data,
        inertias: Inertias,
        contact_net: ContactForceNet | None,
        joint_force_net: JointForceNet | None,
        among: Tensor | None,
    ):
        self.data, self.robot, self.among = data, data.robot, among
        self.motion = Articulated(data.robot, read_parameters(data.robot, inertias.links()))
        self.networks = {"contact_law": contact_net, "joint_law": joint_force_net}
        frames = draw(data.train, among, 4096, torch.Generator().manual_seed(0))
        self._floor = 0.1 * (frames["next_qd"] - frames["qd"]).double().square().mean(0).sqrt()

    def frame(self, q: Tensor, qd: Tensor, force: Tensor, ground: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """One frame under the networks."""
        return self.motion.frame(q, qd, force, ground, **self.networks)

    def loss(self, frames: Transitions) -> Tensor:
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

    def loop(self, module: nn.Module, recipe, checkpoint: Path, facts: dict[str, Any]) -> TrainingLoop:
        """The training of one of the networks."""
        others = [network for network in self.networks.values() if network is not None and network is not module]
        for network in others:
            network.requires_grad_(False)

        def sample(generator: torch.Generator, size: int) -> Transitions:
            frames = draw(self.data.train, self.among, size, generator)
            return {name: value.double() for name, value in frames.items()}

        name = type(module).__name__
        return TrainingLoop(module, sample, self.loss, self.validate, recipe, checkpoint, facts, name)
