"""What a residual model expects of a frame before its network has spoken: the interface of all priors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
import warp as wp
from torch import Tensor

from nerd_gym.dynamics.features.canonical import View
from nerd_gym.dynamics.features.contacts import PointMotion
from nerd_gym.dynamics.features.normaliser import Normaliser
from nerd_gym.dynamics.features.robot_centric import RobotPose
from nerd_gym.dynamics.features.state_view import StateView
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_to_matrix
from nerd_gym.robots.state import Motion

if TYPE_CHECKING:
    from .fused_step import StepBuffers


class Expected(NamedTuple):
    """What a prior expects of a frame; motion is in the robot's frame."""

    frame: RobotPose  # the robot's, in which the network sees it
    step: Tensor  # [N, nv]
    change: Tensor  # [N, nv] of velocity
    points: PointMotion | None  # of the contact candidates that the network is told of


class Prior(ABC):
    """The frame that a network corrects: torch for training, and launches for the fused step.

    Made from what its file holds of it. `kind` and `near` are what the feature kernels are made for.
    """

    kind: ClassVar[str]  # one of kernel_tables.PRIORS
    fact_names: ClassVar[tuple[str, ...]]  # facts that belong to it; they stay if a network is trained further
    writes: ClassVar[tuple[str, ...]]  # the buffers of a fused step that its launches fill
    centred: ClassVar[bool]  # whether the mean of what is left may be learned: not where no output means no correction
    near: int  # features of the distance of a contact candidate or a joint limit

    def __init__(
        self,
        view: StateView,
        tensors: dict[str, Tensor],
        facts: dict[str, Any],
        device: torch.device,
        threads: int | None = None,
    ):
        self.view, self.robot, self.dt, self.device = view, view.robot, view.robot.frame_dt, device
        self._open(tensors, facts, threads)

    @abstractmethod
    def _open(self, tensors: dict[str, Tensor], facts: dict[str, Any], threads: int | None) -> None:
        """Take from a file's tensors and facts what belongs to the prior."""

    @classmethod
    @abstractmethod
    def new_facts(cls, robot: RobotModel) -> dict[str, Any]:
        """Of a new model."""

    def tensors(self) -> dict[str, Tensor]:
        """What to save."""
        return {}

    @abstractmethod
    def expect(self, now: Motion, force: Tensor, contacts: Contacts) -> Expected:
        """Of a frame in which the joint forces are held."""

    @abstractmethod
    def groups(self) -> dict[str, int]:
        """How many inputs :meth:`features` gives, by what they tell."""

    @abstractmethod
    def features(self, now: Motion, view: View, element: Tensor | None, expected: Expected) -> list[Tensor]:
        """Parts [N, ...] of a network's inputs: what it is told of contacts, joint limits and the prior itself."""

    def output_gate(self, inputs: Tensor, groups: dict[str, slice], scale: Normaliser) -> Tensor:
        """Of normalised inputs [..., D], broadcast with outputs: the factor on the network's output there."""
        return inputs.new_ones(())

    @abstractmethod
    def record(self, buffers: StepBuffers) -> list[wp.Launch]:
        """Launches that fill what it `writes` from the state in a fused step's buffers."""

    @abstractmethod
    def expected_after(self, buffers: StepBuffers, now: Motion) -> tuple[Tensor, Tensor]:
        """Step and change of velocity [N, nv] that it expects of states whose launches have run."""

    def base_pose(self, now: Motion) -> RobotPose:
        """Of a free base."""
        return RobotPose(now.q[:, :3], quat_to_matrix(now.q[:, 3:7]))

    def free_fall(self, now: Motion) -> Tensor:
        """The change of a free base's velocity [N, 3] in free fall, in its axes."""
        return self.view.fall * self.view.robot_centric.gravity_in(self.base_pose(now))
