"""`transformer`: the paper's model, a causal transformer over the last ten frames in robot-centric coordinates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nerd_gym.dynamics.features.contacts import masked_features
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.state import Motion

from .base import History
from .network_model import NetworkModel
from .networks import CausalTransformer, RingCache


class TransformerHistory(History):
    """Keys and values of each row's last tokens."""

    def __init__(self, cache: RingCache):
        self.cache = cache

    def forget(self, mask: Tensor) -> None:
        self.cache.forget(mask)

    def snapshot(self) -> dict[str, Any]:
        return self.cache.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.cache.restore(snapshot)

    def select_rows(self, snapshot: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        return self.cache.select_rows(snapshot, rows)


class TransformerModel(NetworkModel):
    """Tokens of state, contacts, joint forces and gravity; each gives the relative motion over its frame.

    The pose of a free base is the origin of its own frame and so is no input. Turns are rotation vectors.
    """

    kind = "transformer"
    default_network = {"layers": 6, "heads": 12, "width": 192, "window": 10}
    module: CausalTransformer
    frames = 20  # twice the window, so that most tokens see a full one

    def _build(self, inputs: int, outputs: int, sizes: dict[str, int]) -> CausalTransformer:
        return CausalTransformer(inputs, outputs, **sizes)

    def tokens(self, now: Motion, force: Tensor, contacts: Contacts) -> Tensor:
        """[N, D]."""
        frames, robot = self.robot_centric, self.robot
        if not robot.free_base and robot.ground is None:
            return torch.cat([frames.wrapped(now.q), now.qd, force], 1)
        frame = frames.frame(contacts.poses)
        parts = [frames.wrapped(now.q[:, robot.joint_q]), frames.velocity(frame, now.qd)]
        if robot.ground is not None:
            parts.append(masked_features(contacts, frame, self.find_contacts.radius))
        return torch.cat([*parts, force, frames.gravity_in(frame)], 1)

    def _examples(self, now: Motion, after: Motion, force: Tensor, contacts: Contacts) -> tuple[Tensor, Tensor]:
        return self.tokens(now, force, contacts), torch.cat(self.robot_centric.relative_motion(now, after), 1)

    def new_history(self, num_envs: int) -> TransformerHistory:
        return TransformerHistory(RingCache(self.module, num_envs, self.device))

    @torch.no_grad()
    def predict(self, state: Motion, joint_force: Tensor, contacts: Contacts, history: History | None) -> Motion:
        history = self.new_history(len(state.q)) if history is None else history
        if not isinstance(history, TransformerHistory):
            raise TypeError(f"a {type(history).__name__} is no memory of a transformer; new_history makes one")
        token = self.normaliser.inputs(self.tokens(state, joint_force, contacts))
        motion = self.normaliser.outputs(self.module.step(token, history.cache))
        return self.robot_centric.advance(state, *motion.split(self.robot.nv, 1))
