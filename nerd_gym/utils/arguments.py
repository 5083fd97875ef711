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
