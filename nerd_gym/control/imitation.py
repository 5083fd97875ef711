"""A network in place of the QP: from the robot's state, its gait and its command to the forces of the ground.

It is trained on what the QP answers along trots of its own, then on what it answers along trots of the network
(DAgger, Ross et al. 2011), each time on everything so far.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.policies.policy import Policy
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import check_facts

from .forces import Forces, MpcForces, Plan
from .gait import FEET, TrotConfig
from .trot import Trot

KIND = "trot_forces"
HIDDEN, CLIP = (192, 192), 5.0
BATCH, RATE = 256, 2e-3
SMALLEST = 1e-3  # standard deviation of an input, which may be constant
AHEAD = 1 / 3  # s: a foot's next switch is told up to there, the end of the QP's horizon
PRETRAINED = Path(__file__).parent / "pretrained" / "trot-anymal.safetensors"
# State (10), positions of the feet (12), command (3), and four numbers that tell each foot's place in its cycle (16).
INPUTS, OUTPUTS = 10 + 3 * len(FEET) + 3 + 4 * len(FEET), 3 * len(FEET)


def network_inputs(plan: Plan) -> Tensor:
    """[N, 41]."""
    angle = 2 * torch.pi * plan.gait.phase
    state = (plan.angles, plan.yaw_error, plan.height, plan.omega, plan.velocity, plan.feet.flatten(1), plan.command)
    feet = (plan.gait.stance, angle.sin(), angle.cos(), plan.gait.left.clamp(max=AHEAD))
    return torch.cat([*state, *feet], 1)


class NetworkForces:
    """The forces that a network finds; the scale in its facts is the force in newtons of an output of 1."""

    def __init__(self, network: Policy):
        sizes = network.obs_size, network.action_size
        if sizes != (INPUTS, OUTPUTS):
            told = f"a network of {sizes[0]} inputs and {sizes[1]} outputs"
            raise ValueError(f"{told}; it must have {INPUTS} and {OUTPUTS}")
        self.network, self._scale = network, float(network.facts["scale"])

    @classmethod
    def load(cls, path: str | Path, robot: RobotModel, config: TrotConfig | None = None) -> NetworkForces:
        """From a file that was made for this robot and gait."""
        config, name = config or TrotConfig(), Path(path).name
        network = Policy.load(path)
        facts = network.facts
        if facts.get("kind") != KIND:
            raise ValueError(f"{name} is of kind {facts.get('kind')!r}; it must be of kind {KIND!r}")
        check_facts(name, facts, {"scale": (float,), "gait": (dict,), "frame_dt": (float,)})
        robot.check_learned(name, facts)
        if facts["gait"] != _plain(config):
            raise ValueError(f"{name} was made for the gait {facts['gait']}; this is {_plain(config)}")
        try:
            return cls(network)
        except ValueError as error:
            raise ValueError(f"{name} holds {error}") from error

    def __call__(self, plan: Plan) -> Tensor:
        outputs = self._scale * self.network.act(network_inputs(plan))
        return outputs.view(-1, len(FEET), 3) * plan.gait.stance[..., None]

    def reset(self, rows: Tensor | None = None) -> None:
        pass


def _plain(config: TrotConfig) -> dict[str, Any]:
    """As a file's facts have it."""
    return json.loads(json.dumps(asdict(config)))


class Labelled:
    """Forces of a student, or of the teacher if there is none, and the teacher's kept beside what they depend on."""

    def __init__(self, teacher: MpcForces, student: Forces | None):
        self._teacher, self._student = teacher, student
        self.inputs: list[Tensor] = []
        self.labels: list[Tensor] = []  # in newtons

    def __call__(self, plan: Plan) -> Tensor:
        force = self._teacher(plan)
        self.inputs.append(network_inputs(plan))
        self.labels.append(force.flatten(1))
        return force if self._student is None else self._student(plan)

    def reset(self, rows: Tensor | None = None) -> None:
        self._teacher.reset(rows)


def record(env: NerdVectorEnv, teacher: MpcForces, student: Forces | None, command: Tensor, steps: int, seed: int):
    """`steps` steps of every robot of `env` under commands [N, 3]: inputs [N steps, 41] and forces [N steps, 12]."""
    labelled = Labelled(teacher, student)
    trot = Trot(env.task.robot, env.task.actuation, labelled, command, teacher.config)
    trot.reset()
    obs, _ = env.reset(seed=seed)
    for _ in range(steps):
        obs, _, terminated, truncated, _ = env.step(trot.act(obs))
        trot.reset(terminated | truncated)
    return torch.cat(labelled.inputs), torch.cat(labelled.labels)


def fit(layers: nn.Sequential, inputs: Tensor, targets: Tensor, stance: Tensor, epochs: int) -> float:
    """Adam on the mean square over forces of feet that stand, its rate falling to 0; returns that of the last epoch.

    inputs [M, 41], targets and stance [M, 12].
    """
    optimiser = torch.optim.Adam(layers.parameters(), RATE)
    batches = len(inputs) // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * batches)
    loss = torch.zeros(())
    for _ in range(epochs):
        loss = torch.zeros(())
        for rows in torch.randperm(len(inputs))[: batches * BATCH].view(batches, BATCH):
            square = ((layers(inputs[rows]) - targets[rows]).square() * stance[rows]).sum() / stance[rows].sum()
            optimiser.zero_grad()
            square.backward()
            optimiser.step()
            schedule.step()
            loss = loss + square.detach() / batches
    return float(loss)


def imitate(
    envs: list[NerdVectorEnv],
    commands: Tensor,
    *,
    steps: int = 10_000,
    rounds: int = 5,
    epochs: int = 100,
    seed: int = 0,
    report: Callable[[str], None] = print,
) -> Policy:
    """A network that imitates the QP in these environments.

    Args:
        envs: of Anymal, as many robots in each; data are taken from each alike.
        commands: [rounds + 1, robots in all, 3], of each robot in each round.
        steps: samples of a round, over all robots.
        rounds: of DAgger, after the first round of the QP alone.
        epochs: over all data so far, after each round.
        seed: of starts, weights and batches.
        report: takes a line about each round.
    """
    config, task = TrotConfig(), envs[0].task
    teacher = MpcForces(task.robot, task.actuation["pose"], config)
    scale = teacher.mpc.weight * teacher.mpc.config.limit
    facts = {"kind": KIND, "robot": task.robot.name, "robot_hash": task.robot.hash, "frame_dt": task.robot.frame_dt}
    facts |= {"scale": scale, "gait": _plain(config), "seed": seed, "steps": steps, "rounds": rounds, "epochs": epochs}
    facts |= {"backends": [env.backend.name for env in envs]}
    torch.manual_seed(seed)
    sizes = (INPUTS, *HIDDEN, OUTPUTS)
    parts: list[nn.Module] = [m for size in pairwise(sizes) for m in (nn.Linear(*size), nn.ELU())]
    layers = nn.Sequential(*parts[:-1])
    data: list[tuple[Tensor, Tensor]] = []
    student: NetworkForces | None = None
    mean = std = torch.zeros(0)
    per_robot = steps // commands.shape[1]
    for k in range(rounds + 1):
        for env, command in zip(envs, commands[k].chunk(len(envs))):
            data.append(record(env, teacher, student, command, per_robot, seed + 1000 * k))
        inputs, labels = (torch.cat(x) for x in zip(*data))
        if k == 0:
            mean, std = inputs.mean(0), inputs.std(0).clamp(min=SMALLEST)
        stance = inputs[:, -4 * len(FEET) : -3 * len(FEET)].repeat_interleave(3, 1)
        normalised = ((inputs - mean) / std).clamp(-CLIP, CLIP)
        error = fit(layers, normalised, labels / scale, stance, epochs) ** 0.5 * scale
        linear = [(m.weight.detach(), m.bias.detach()) for m in layers if isinstance(m, nn.Linear)]
        facts["rms_error"] = error
        student = NetworkForces(Policy(mean, std, linear, "elu", CLIP, facts))
        report(f"round {k}: {len(inputs)} samples, forces within {error:.1f} N (root mean square)")
    assert student is not None
    return student.network
