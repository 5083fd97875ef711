"""`nerd-gym`: the command line, made from typed dataclasses, one file per group of commands."""

from __future__ import annotations

import sys

import tyro

from .compare import Compare, Demo
from .dynamics import Evaluate, Generate, Train
from .environments import Bench, List, Play
from .policies import Export
from .rl import Rl


def main(args: list[str] | None = None) -> int:
    """Entry point. Wrong input ends with one line on stderr and exit code 2."""
    command = tyro.extras.subcommand_cli_from_dict(
        {c.__name__.lower(): c for c in (List, Play, Compare, Bench, Demo, Generate, Train, Evaluate, Export, Rl)},
        prog="nerd-gym",
        description="Gymnasium environments with swappable physics.",
        args=args,
    )
    try:
        command.run()
    except (ValueError, FileNotFoundError, ImportError) as error:
        print(f"nerd-gym: {error}", file=sys.stderr)
        return 2
    return 0
