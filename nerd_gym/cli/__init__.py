"""`nerd-gym`: the command line, made from typed dataclasses, one file per group of commands."""

from __future__ import annotations

import sys

import tyro

from nerd_gym import __version__

from .augmented import Augment
from .collision import Collision
from .compare import Compare, Demo
from .dynamics import Evaluate, Generate, Train
from .environments import Bench, List, Play
from .planning import Plan
from .policies import Export
from .rl import Rl

GO_ON = ("generate", "train", "rl", "collision", "augment")  # commands that go on where they were stopped

COMMANDS = (List, Play, Compare, Bench, Demo, Generate, Train, Evaluate, Export, Rl, Plan, Collision, Augment)


def main(args: list[str] | None = None) -> int:
    """Entry point. Wrong input, a full disk and the like end with one line on stderr and exit code 2."""
    args = sys.argv[1:] if args is None else args
    if args == ["--version"]:
        print(f"nerd-gym {__version__}")
        return 0
    command = tyro.extras.subcommand_cli_from_dict(
        {c.__name__.lower(): c for c in COMMANDS},
        prog="nerd-gym",
        description="Gymnasium environments with swappable physics. `nerd-gym --version` tells the version.",
        args=args,
    )
    try:
        command.run()
    except KeyboardInterrupt:
        again = "; the same command goes on from here" if args[0] in GO_ON else "; nothing half-written is left"
        return _failed(f"stopped{again}")
    except (ValueError, ImportError) as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(_told(error))
    except MemoryError as error:
        return _failed(f"not enough memory{f': {error}' if str(error) else ''}; fewer robots or episodes take less")
    return 0


def _told(error: OSError) -> str:
    """Which file it is about and why."""
    if error.strerror is None:
        return str(error)
    where = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{', '.join(where)}: {error.strerror}" if where else error.strerror


def _failed(why: str) -> int:
    print(f"nerd-gym: {' '.join(why.split())}", file=sys.stderr)
    return 2
