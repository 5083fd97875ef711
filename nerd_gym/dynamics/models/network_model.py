"""What models around a network share: normalisation, training loss, and what is saved."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nerd_gym.dynamics.features.normaliser import Normaliser
from nerd_gym.dynamics.features.robot_centric import RobotCentric
from nerd_gym.robots.contacts import ContactFinder, Contacts
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Motion
from nerd_gym.utils.files import strip_prefix

from .base import DynamicsModel

HUBER = 1.0  # standard deviations: beyond that an impact counts linearly
CHUNK = 65536  # transitions encoded at a time when the normaliser is fitted


class NetworkModel(DynamicsModel):
    """A network between encoded inputs and relative motion.

    facts["network"] holds its sizes, as far as they are not the default ones. Tensors named ``network.*`` and
    ``normaliser.*`` are loaded if there are any; without them the weights are fresh, from torch's global generator.
    """

    default_network: ClassVar[dict[str, int]]
    module: nn.Module
    frames: ClassVar[int]  # frames of a training window
    rows_exact = False  # a matrix product rounds by the size of the batch
    centred = True  # whether the normaliser may move the targets' mean: not where no output means no correction

    def _open(self, tensors: dict[str, Tensor]) -> None:
        robot, facts = self.robot, self.facts
        self.kinematics = Kinematics(robot, self.device)
        self.find_contacts = ContactFinder(robot, self.kinematics)
        self.robot_centric = RobotCentric(self.kinematics, self.device)
        self._prepare(tensors)
        inputs, outputs = self._sizes()
        sizes = self.default_network | facts.get("network", {})
        self.module = self._build(inputs, outputs, sizes).to(self.device)
        self.normaliser = Normaliser(inputs, outputs).to(self.device)
        for prefix, module in (("network.", self.module), ("normaliser.", self.normaliser)):
            own = strip_prefix(tensors, prefix)
            if own:
                module.load_state_dict(own)
        self.normaliser.requires_grad_(False)
        self._weight = self._output_weight().to(self.device)

    # What a kind of model fills in.

    def _prepare(self, tensors: dict[str, Tensor]) -> None:
        """Make what encoding needs."""

    @abstractmethod
    def _build(self, inputs: int, outputs: int, sizes: dict[str, int]) -> nn.Module:
        """The network, [..., inputs] -> [..., outputs]."""

    @abstractmethod
    def _examples(self, now: Motion, after: Motion, force: Tensor, contacts: Contacts) -> tuple[Tensor, Tensor]:
        """Raw inputs [N, D] and targets [N, 2 nv] of N transitions."""

    @classmethod
    def new_facts(cls, robot: RobotModel) -> dict[str, Any]:
        """What a new network of a robot learns and takes; one that is trained further stays as it was made."""
        return {}

    @classmethod
    def kept_facts(cls) -> tuple[str, ...]:
        """Names of facts of what a network learns and takes, which stay if it is trained further."""
        return ()

    def _output_weight(self) -> Tensor:
        """[O] or a scalar: how much each target counts in the loss."""
        return torch.ones(())

    def loss_scale(self, targets: Tensor) -> Tensor:
        """Of normalised targets [..., O], broadcast with them: by how much errors are divided in the loss."""
        return torch.ones((), device=targets.device)

    def output_gate(self, inputs: Tensor) -> Tensor:
        """Of normalised inputs [..., D], broadcast with outputs: the factor on the network's output there."""
        return inputs.new_ones(())

    def outputs(self, inputs: Tensor) -> Tensor:
        """The network's output [..., O] for normalised inputs [..., D], as targets are."""
        return self.normaliser.outputs(self.output_gate(inputs) * self.module(inputs))

    # Training.

    def examples(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Raw inputs [B, T, D] and targets [B, T, O].

        batch: q [B, T+1, nq], qd [B, T+1, nv], force [B, T, nj], ground_point and ground_normal [B, 3].
        """
        inputs, targets = self._examples(*self._transitions(batch))
        shape = batch["force"].shape[:2]
        return inputs.unflatten(0, shape), targets.unflatten(0, shape)

    def _transitions(self, batch: dict[str, Tensor]) -> tuple[Motion, Motion, Tensor, Contacts]:
        """All frames of a batch of windows, as :meth:`_examples` takes them."""
        rows, frames = batch["force"].shape[:2]
        q, qd = batch["q"], batch["qd"]
        now = Motion(q[:, :-1].flatten(0, 1), qd[:, :-1].flatten(0, 1))
        after = Motion(q[:, 1:].flatten(0, 1), qd[:, 1:].flatten(0, 1))
        ground = [
            batch[name][:, None].expand(rows, frames, 3).flatten(0, 1) for name in ("ground_point", "ground_normal")
        ]
        return now, after, batch["force"].flatten(0, 1), self.find_contacts(now.q, *ground)

    def normalised(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What :meth:`examples` gives, as the network takes it and is judged by."""
        inputs, targets = self.examples(batch)
        return self.normaliser.inputs(inputs), self.normaliser.targets(targets)

    @torch.no_grad()
    def fit_normaliser(self, batch: dict[str, Tensor], fresh: bool = True) -> None:
        """From one big batch, once before training; a trained network's is only allowed larger targets."""
        size = max(1, CHUNK // batch["force"].shape[1])
        parts = [
            self.examples({name: value[start : start + size] for name, value in batch.items()})
            for start in range(0, len(batch["q"]), size)
        ]
        inputs, targets = (torch.cat(part).flatten(0, 1) for part in zip(*parts, strict=True))
        if fresh:
            self.normaliser.fit(inputs, targets, self.centred)
        else:
            self.normaliser.allow(targets)

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """Mean Huber loss of the normalised targets, over what :meth:`loss_scale` says of each frame."""
        with torch.no_grad():
            inputs, targets = self.normalised(batch)
            scale, quiet = self.loss_scale(targets), self.output_gate(inputs)
        error = F.huber_loss(self.module(inputs) * (quiet / scale), targets / scale, reduction="none", delta=HUBER)
        return 2 * (error * self._weight).mean()  # the mean squared error while errors are small

    def tensors(self) -> dict[str, Tensor]:
        """What to save."""
        parts = (("network.", self.module), ("normaliser.", self.normaliser))
        return {
            prefix + name: value.detach().clone()
            for prefix, module in parts
            for name, value in module.state_dict().items()
        }

    def _sizes(self) -> tuple[int, int]:
        """How many inputs and outputs there are, by trying."""
        q = torch.as_tensor(self.robot.mj_model.qpos0, dtype=torch.float32, device=self.device)[None]
        qd = torch.zeros(1, self.robot.nv, device=self.device)
        force = torch.zeros(1, self.robot.nj, device=self.device)
        up = torch.tensor([[0.0, 0.0, 1.0]], device=self.device)
        contacts = self.find_contacts(q, torch.zeros_like(up), up)
        inputs, targets = self._examples(Motion(q, qd), Motion(q, qd), force, contacts)
        return inputs.shape[1], targets.shape[1]
