"""The controllers as agents: `mpc` and `mpc-net`, with options after a colon, `mpc:speed=0.3,turn=0.2`."""

from __future__ import annotations

from pathlib import Path

import torch
from gymnasium.vector import VectorEnv

from nerd_gym.envs.factory import native
from nerd_gym.registration import task_of
from nerd_gym.utils.arguments import key_value
from nerd_gym.wrappers.reference_observation import ReferenceObservation

from .forces import MpcForces
from .trot import Trot

ENV = "NeRD/Anymal-v0"
# Default and largest size; together too, Anymal trots at these on `warp` and `mujoco` (benchmarks/mpc_trot.py).
COMMANDS = {"speed": (0.5, 0.5), "side": (0.0, 0.2), "turn": (0.0, 0.4)}


def mpc(env: VectorEnv, options: str = "") -> Trot:
    """A trot whose forces a QP finds; options: speed (m/s forwards), side (m/s to the left), turn (rad/s)."""
    inner, command, _ = _prepared("mpc", env, options, ())
    robot, actuation = inner.task.robot, inner.task.actuation
    return Trot(robot, actuation, MpcForces(robot, actuation["pose"], device=inner.device), command)


def mpc_net(env: VectorEnv, options: str = "") -> Trot:
    """The same with a network in place of the QP; options: those of mpc, and model, a file."""
    from .imitation import PRETRAINED, NetworkForces

    inner, command, rest = _prepared("mpc-net", env, options, ("model",))
    model = Path(str(rest.get("model", PRETRAINED)))
    forces = NetworkForces.load(model, inner.task.robot)
    forces.network.to(inner.device)
    return Trot(inner.task.robot, inner.task.actuation, forces, command)


def _prepared(name: str, env: VectorEnv, text: str, more: tuple[str, ...]):
    """The environment, if the agent can play it, the command [3], and further options."""
    inner = native(env)
    env_id = task_of(inner.task.robot) or inner.task.robot.name
    if env_id != ENV or inner.task.actuation["kind"] != "position":
        control = getattr(inner.task.config, "control", None)
        told = env_id if control is None else f"{env_id} with control={control!r}"
        raise ValueError(f"agent {name!r} plays {ENV} with control='position'; this is {told}")
    if isinstance(env, ReferenceObservation):
        raise ValueError(f"agent {name!r} reads layout='native'; this is layout='reference'")
    options = dict(map(key_value, text.split(","))) if text else {}
    for option in options:
        if option not in (*COMMANDS, *more):
            raise ValueError(f"unknown option {option!r} for agent {name!r}; valid: {', '.join((*COMMANDS, *more))}")
    command = []
    for option, (default, largest) in COMMANDS.items():
        value = options.get(option, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= largest:
            raise ValueError(f"{option} is {value!r}; agent {name!r} takes -{largest} to {largest}")
        command.append(float(value))
    return inner, torch.tensor(command, device=inner.device), options
