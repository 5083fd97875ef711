"""What a library is told: a yaml in its own format, the defaults first, then what differs for a task.

A section is named by an id, or by an id and options, ``NeRD/Franka-v0 control=torque``; sections that fit are laid over
``default`` in their order in the file. Every section may have ``run``, which is ours: see :class:`Run`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nerd_gym.utils.arguments import literal
from nerd_gym.utils.plain_yaml import load_yaml

from .trainer import check_library

Config = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """How an environment is run, whatever the library."""

    num_envs: int
    """Robots in the batch."""
    steps: int
    """Env-steps of all of them together."""
    random_ages: bool = True
    """Whether the first episodes start at a random age."""
    reward_scale: float = 1.0
    """What the library sees of a reward. Returns are told unscaled."""


def load_config(
    library: str, env_id: str, options: dict[str, Any], file: Path | None = None, changes: tuple[str, ...] = ()
) -> tuple[Run, Config]:
    """How to run the environment, and what to tell the library.

    Args:
        library: one of ``LIBRARIES``.
        env_id: the environment.
        options: all options of its task.
        file: a yaml like the packaged ones; None for the packaged one.
        changes: ``a.b=value`` each; ``+a.b=value`` for a key that is not there yet.
    """
    check_library(library)
    path = file or Path(__file__).with_name(f"{library.replace('-', '_')}.yaml")
    sections = load_yaml(path)
    if not isinstance(sections, dict) or not isinstance(sections.get("default"), dict):
        raise ValueError(f"{path.name} has no section `default`")
    config: Config = {}
    for name, section in sections.items():
        if name == "default" or _fits(name, env_id, options):
            config = _laid_over(config, section)
    for change in changes:
        _change(config, change)
    run = config.pop("run", {})
    known = [f.name for f in fields(Run)]
    if odd := sorted(set(run) - set(known)):
        raise ValueError(f"unknown run.{odd[0]}; valid: {', '.join(known)}")
    if missing := sorted({"num_envs", "steps"} - set(run)):
        raise ValueError(f"{path.name} does not tell run.{missing[0]}")
    return Run(**run), config


def _fits(name: str, env_id: str, options: dict[str, Any]) -> bool:
    first, *rest = name.split()
    wanted = (text.partition("=") for text in rest)
    return first == env_id and all(str(options.get(key)) == value for key, _, value in wanted)


def _laid_over(below: Config, above: Config) -> Config:
    merged = deepcopy(below)
    for key, value in (above or {}).items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _laid_over(merged[key], value) if both else deepcopy(value)
    return merged


def _change(config: Config, text: str) -> None:
    new = text.startswith("+")
    path, sep, value = text.removeprefix("+").partition("=")
    *parents, leaf = path.split(".")
    if not sep or not all((*parents, leaf)):
        raise ValueError(f"{text!r} is not KEY=VALUE, e.g. run.num_envs=256")
    place = config
    for depth, parent in enumerate(parents):
        if not isinstance(place.get(parent), dict):
            if not new:
                raise ValueError(f"no {'.'.join(parents[: depth + 1])} in the config; valid: {', '.join(place)}")
            place[parent] = {}
        place = place[parent]
    if leaf not in place and not new:
        raise ValueError(f"no {path} in the config; valid: {', '.join(place)}; +{path}=... adds it")
    words = {"true": True, "false": False, "null": None}  # as yaml has them
    place[leaf] = words[value] if value in words else literal(value)
