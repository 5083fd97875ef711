"""Small policies with random weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import nn

from nerd_gym.policies.policy import Policy


def small_policy(activation: str = "elu", clip: float | None = 5.0) -> Policy:
    """Five observations, two hidden layers, three actions."""
    torch.manual_seed(0)
    sizes = (5, 16, 8, 3)
    layers = [(torch.randn(n, m) / m**0.5, torch.randn(n) / 4) for m, n in pairwise(sizes)]
    return Policy(torch.randn(5), torch.rand(5) + 0.5, layers, activation, clip, {"seed": 3})


def recurrent_policy(
    kind: type[nn.RNNBase] = nn.LSTM,
    norm: bool = True,
    concat: bool = False,
    depth: int = 2,
    obs_size: int = 5,
    action_size: int = 3,
) -> Policy:
    """A memory of six units before one hidden layer."""
    torch.manual_seed(0)
    memory = {f"rnn.{name}": value for name, value in kind(obs_size, 6, depth).state_dict().items()}
    memory |= {"norm.weight": torch.rand(6) + 0.5, "norm.bias": torch.randn(6)} if norm else {}
    first = torch.randn(8, 6 + obs_size if concat else 6), torch.randn(8)
    last = torch.randn(action_size, 8) / 4, torch.randn(action_size) / 4
    return Policy(torch.randn(obs_size), torch.rand(obs_size) + 0.5, [first, last], "tanh", memory=memory)


def linear_policy(env: VectorEnv, facts: dict[str, Any] | None = None) -> Policy:
    """A policy of an environment's sizes."""
    torch.manual_seed(0)
    obs, act = (space.shape[0] for space in (env.single_observation_space, env.single_action_space))
    layers = [(torch.randn(8, obs) / obs**0.5, torch.randn(8)), (torch.randn(act, 8) / 3, torch.zeros(act))]
    return Policy(torch.zeros(obs), torch.ones(obs), layers, "tanh", facts=facts)
