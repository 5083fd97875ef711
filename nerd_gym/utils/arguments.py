"""What the command line's words mean."""

from __future__ import annotations

import ast

LARGEST = 10**12


def count(text: str) -> int:
    """250000, 250k or 1M."""
    scale = {"k": 1e3, "K": 1e3, "M": 1e6}.get(text[-1:], 1)
    try:
        number = round(float(text.rstrip("kKM")) * scale)
    except (ValueError, OverflowError):
        number = 0
    if not 1 <= number <= LARGEST:
        raise ValueError(f"{text!r} is not a count from 1 to {LARGEST:,}; valid: 250000, 250k, 1M")
    return number


def key_value(text: str) -> tuple[str, object]:
    """KEY=VALUE, the value a Python literal or a bare word."""
    key, sep, value = text.partition("=")
    if not sep or not key:
        raise ValueError(f"option {text!r} is not KEY=VALUE")
    return key, literal(value)


def literal(text: str) -> object:
    """A Python literal, or the text itself: a bare word."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


MOST_ENVS, MOST_STEPS, MOST_THREADS, LARGEST_SEED = 10**7, 10**9, 4096, 2**32 - 1
BOUNDS = {
    "num_envs": MOST_ENVS,
    "episodes": MOST_ENVS,
    "rollouts": MOST_ENVS,
    "batch": MOST_ENVS,
    "threads": MOST_THREADS,
}


def whole(name: str, value: int, most: int = MOST_STEPS, least: int = 1) -> int:
    """The value, if it is a whole number within bounds."""
    if isinstance(value, bool) or int(value) != value or not least <= value <= most:
        raise ValueError(f"{name} is {value}; it must be a whole number from {least} to {most}")
    return int(value)


def check_counts(**counts: int | None) -> None:
    """Refuse one that is no count from 1; None stands for a default."""
    for name, value in counts.items():
        if value is not None:
            whole(name, value, BOUNDS.get(name, MOST_STEPS))


def check_seed(seed: int) -> None:
    """Refuse a seed that some generator of random numbers does not take."""
    whole("seed", seed, LARGEST_SEED, 0)


def check_real(name: str, value: float, least: float, most: float) -> None:
    """Refuse a number that is none or out of bounds, the lower of which is not valid itself."""
    if not least < value <= most:
        raise ValueError(f"{name} is {value}; it must be above {least:g} and at most {most:g}")
