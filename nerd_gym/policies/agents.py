"""Whatever a user has, as an agent: `act(obs)` gives actions, `reset(rows)` drops what it remembers of episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Protocol

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from nerd_gym.envs.factory import native

from .onnx import OnnxPolicy
from .policy import ACTIVATIONS, Policy

FILES = (".safetensors", ".pth", ".onnx")
# Controllers of control/, which stands above this room: made when they are asked for.
CONTROLLERS = {"mpc": "mpc", "mpc-net": "mpc_net"}
VALID = f"zero, random, {', '.join(CONTROLLERS)}, a policy ({', '.join(FILES)}), module:function or file.py:function"
# Options of a task that change what its policies see or mean.
MUST_MATCH = ("task", "control", "velocity", "action_scale", "stiffness", "damping")


class Agent(Protocol):
    """What :func:`load_agent` gives."""

    def act(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> [N, action_size]."""
        ...

    def reset(self, rows: Tensor | None = None) -> None:
        """Start anew: every episode, or those of a mask [N]."""


class FunctionAgent:
    """Any function of observations to actions of a size; a `reset(rows)` of its own is called too."""

    def __init__(self, function: Callable[[Tensor], Any], size: int):
        self._function, self._size, self._reset = function, size, getattr(function, "reset", None)

    def act(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> [N, action_size]."""
        with torch.no_grad():
            try:
                action = torch.as_tensor(self._function(obs), dtype=torch.float32, device=obs.device)
            except (TypeError, ValueError) as error:
                name = agent_name(self._function)
                raise ValueError(f"agent {name!r} gives no action: {type(error).__name__}: {error}") from error
        if action.shape != (len(obs), self._size):
            name, wanted = agent_name(self._function), (len(obs), self._size)
            raise ValueError(f"{name} gives actions of shape {tuple(action.shape)}; they must have {wanted}")
        return action

    def reset(self, rows: Tensor | None = None) -> None:
        """Tell the function, if it wants to know."""
        if self._reset is not None:
            self._reset(rows)


class RandomAgent:
    """Uniform actions; the same ones again after a reset of everything."""

    def __init__(self, size: int, seed: int):
        self._size, self._seed = size, seed
        self.reset()

    def act(self, obs: Tensor) -> Tensor:
        """[N, obs_size] -> [N, size]."""
        return (2 * torch.rand(len(obs), self._size, generator=self._generator) - 1).to(obs.device)

    def reset(self, rows: Tensor | None = None) -> None:
        """A single episode's end changes nothing."""
        if rows is None:
            self._generator = torch.Generator().manual_seed(self._seed)


def load_agent(
    source: str | Path | Callable[[Tensor], Any], env: VectorEnv, activation: str | None = None, seed: int = 0
) -> Agent:
    """An agent for an environment, from what the user has.

    Args:
        source: a function [N, obs_size] -> [N, action_size], a policy, or text: ``zero``, ``random``, ``mpc`` or
            ``mpc-net`` (``mpc:speed=0.3``), the path of a policy, ``module:function`` or ``file.py:function``.
            A policy made for something else is refused.
        activation: of an rl-games .pth, which the file does not tell.
        seed: of random actions.
    """
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}; valid: {', '.join(ACTIVATIONS)}")
    inner = native(env)
    size, device = inner.task.action_size, inner.device
    agent: Agent
    if not isinstance(source, (str, Path)):
        own: Any = source
        agent = own if hasattr(own, "act") and hasattr(own, "reset") else FunctionAgent(_callable(own), size)
    elif str(source) == "zero":
        agent = FunctionAgent(lambda obs: torch.zeros(len(obs), size), size)
    elif str(source) == "random":
        agent = RandomAgent(size, seed)
    elif (controller := _controller(str(source))) is not None:
        agent = controller(env)
    elif Path(source).suffix == ".onnx":
        agent = OnnxPolicy.load(source)
    elif Path(source).suffix in FILES:
        agent = Policy.load(source, activation).to(device)
    elif ":" in str(source):
        agent = FunctionAgent(_imported(str(source)), size)
    else:
        raise ValueError(f"unknown agent {str(source)!r}; valid: {VALID}")
    if isinstance(agent, (Policy, OnnxPolicy)):
        check_policy(agent, env, agent_name(source))
    return agent


def agent_name(source: Any) -> str:
    """How to call an agent: its file's or function's name."""
    if isinstance(source, (str, Path)):
        return Path(source).name
    return getattr(source, "__name__", type(source).__name__)


def check_policy(policy: Policy | OnnxPolicy, env: VectorEnv, name: str) -> None:
    """Refuse a policy of another environment, of other options that matter, or of other sizes."""
    inner = native(env)
    env_id = inner.spec.id if inner.spec else inner.task.robot.name
    trained = policy.facts.get("env")
    if inner.spec and trained not in (None, env_id):
        raise ValueError(f"{name} is a policy of {trained}; this is {env_id}")
    theirs, ours = policy.facts.get("options"), asdict(inner.task.config)
    theirs = theirs if isinstance(theirs, dict) else {}
    for option in MUST_MATCH:
        if option in theirs and option in ours and theirs[option] != ours[option]:
            raise ValueError(f"{name} is a policy of {option}={theirs[option]!r}; this is {option}={ours[option]!r}")
    sizes = [*(env.single_observation_space.shape or ()), inner.task.action_size]
    if [policy.obs_size, policy.action_size] != sizes:
        raise ValueError(
            f"{name} takes {policy.obs_size} observations and gives {policy.action_size} actions; "
            f"{env_id} has {sizes[0]} and {sizes[1]}"
        )


def _callable(source: Any) -> Callable:
    if not callable(source):
        raise ValueError(f"a {type(source).__name__} is no agent; valid: a function, a policy, {VALID}")
    return source


def _controller(text: str) -> Callable[[VectorEnv], Agent] | None:
    """`mpc` or `mpc:speed=0.3`, but not `mpc:function`."""
    name, _, options = text.partition(":")
    if name not in CONTROLLERS or (options and "=" not in options):
        return None
    make = getattr(import_module("nerd_gym.control.agents"), CONTROLLERS[name])
    return lambda env: make(env, options)


def _imported(text: str) -> Callable:
    """`module:function` or `file.py:function`."""
    place, _, name = text.rpartition(":")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise FileNotFoundError(f"no python file at {place}")
        spec = spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None:
            raise ImportError(f"{place} cannot be imported")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        try:
            module = import_module(place)
        except ModuleNotFoundError as error:
            raise ValueError(f"agent {text!r} cannot be imported: {error}") from error
    if not callable(getattr(module, name, None)):
        raise ValueError(f"{place} has no function {name!r}")
    return getattr(module, name)
