"""What a library is told: a yaml in its own format, the defaults first, then what differs for a task.

A section is named by an id, or by an id and options, ``NeRD/Franka-v0 control=torque``; sections that fit are laid over
``default`` in their order in the file. Every section may have ``run``, which is ours: see :class:`Run`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nerd_gym.utils.arguments import literal
from nerd_gym.utils.plain_yaml import load_yaml

from .trainer import DEFAULT_ALGO, check_library

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


def _count(value: Any, most: float) -> bool:
    return type(value) is int and 1 <= value <= most


# Which values may stand there, and in words.
RUN_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_envs": (lambda x: _count(x, 1e7), "a count from 1 to 10 million"),
    "steps": (lambda x: _count(x, 1e12), "a count from 1"),
    "random_ages": (lambda x: isinstance(x, bool), "true, false"),
    "reward_scale": (lambda x: type(x) in (int, float) and 0 < x < 1e9, "a positive number"),
}


def load_config(
    library: str,
    env_id: str,
    options: dict[str, Any],
    file: Path | None = None,
    changes: tuple[str, ...] = (),
    algo: str = DEFAULT_ALGO,
) -> tuple[Run, Config]:
    """How to run the environment, and what to tell the library.

    Args:
        library: one of ``LIBRARIES``.
        env_id: the environment.
        options: all options of its task.
        file: a yaml like the packaged ones; None for the packaged one.
        changes: ``a.b=value`` each; ``+a.b=value`` for a key that is not there yet.
        algo: one of the library's algorithms.
    """
    check_library(library, algo)
    name = library.replace("-", "_") + ("" if algo == DEFAULT_ALGO else f"_{algo}")
    path = file or Path(__file__).with_name(f"{name}.yaml")
    sections = load_yaml(path)
    if not isinstance(sections, dict) or not isinstance(sections.get("default"), dict):
        raise ValueError(f"{path.name} has no section `default`")
    for name, section in sections.items():
        if not isinstance(name, str) or not name.split() or not isinstance(section, dict):
            raise ValueError(f"{path.name} has a section {name!r} that is no name with settings under it")
    config: Config = {}
    for name, section in sections.items():
        if name == "default" or _fits(name, env_id, options):
            config = _laid_over(config, section)
    for change in changes:
        _change(config, change)
    run = config.pop("run", {})
    if not isinstance(run, dict):
        raise ValueError(f"{path.name} has run = {run!r}; it must be settings of {Run.__name__}")
    known = [f.name for f in fields(Run)]
    if odd := sorted(set(run) - set(known)):
        raise ValueError(f"unknown run.{odd[0]} in {path.name}; valid: {', '.join(known)}")
    if missing := sorted({"num_envs", "steps"} - set(run)):
        raise ValueError(f"{path.name} does not tell run.{missing[0]}")
    for name, (valid, words) in RUN_VALUES.items():
        if name in run and not valid(run[name]):
            raise ValueError(f"run.{name} is {run[name]!r} with {path.name}; valid: {words}")
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
    if isinstance(place.get(leaf), dict):
        raise ValueError(f"{text!r} would replace all settings under {path}; valid: {', '.join(place[leaf])} below it")
    words = {"true": True, "false": False, "null": None}  # as yaml has them
    place[leaf] = words[value] if value in words else literal(value)
