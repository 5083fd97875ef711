"""Does a policy behave the same on a backend as on the baseline: agree, differ or undecided, with figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .metrics import Estimate

if TYPE_CHECKING:
    from .comparison import BackendRun, Comparison

MILLION = 1_000_000
VERBS = {"agree": ("agree", "agrees"), "differ": ("differ", "differs"), "undecided": ("are undecided", "is undecided")}


@dataclass(frozen=True)
class Verdict:
    """`agree`, `differ` or `undecided`: of the returns, of the motion, and of both; and a sentence with figures."""

    returns: str
    motion: str
    word: str
    sentence: str


def judge(c: Comparison, run: BackendRun) -> Verdict:
    """Compare a backend with the baseline."""
    difference, mean = run.differences["return"], abs(c.baseline.figures["return"].mean)
    limit = c.margin * mean
    if -limit <= difference.low and difference.high <= limit:
        returns = "agree"
    elif difference.low > limit or difference.high < -limit:
        returns = "differ"
    else:
        returns = "undecided"
    middle, low, high = (percent(x, mean, 2) for x in (difference.mean, difference.low, difference.high))
    words = f"returns {VERBS[returns][0]}: {middle}{' %' if mean else ''} (95 %: {low} to {high})"
    if returns == "undecided":
        words += f", {episodes_to_decide(difference, limit, c.episodes)} would decide"
    worse = [name for name in run.errors if not run.error(name) <= c.yardstick.error(name)]
    motion = "differ" if worse else "agree"
    named = worse or list(run.errors)
    words += f"; motion {VERBS[motion][1]}: median error of "
    words += ", ".join(f"{name} {number(run.error(name), 2)} {c.units[name]}" for name in named)
    words += f"; starts displaced by {c.displaced:g} give "
    words += ", ".join(number(c.yardstick.error(name), 2) for name in named)
    both = {returns, motion}
    word = "differ" if "differ" in both else "undecided" if "undecided" in both else "agree"
    return Verdict(returns, motion, word, words)


def number(x: float, digits: int, sign: str = "") -> str:
    """To so many digits, but none of those before the point is lost."""
    text = f"{x:{sign}.{digits}g}"
    return f"{x:{sign}.0f}" if "e+" in text else text


def percent(x: float, whole: float, digits: int) -> str:
    """A signed part of the whole to a thousandth of a percent; the number itself if there is no whole."""
    return number(round(100 * x / whole, 3) + 0.0, digits, "+") if whole else number(x, digits, "+")


def episodes_to_decide(difference: Estimate, limit: float, episodes: int) -> str:
    """About how many episodes make the interval so narrow that it lies on one run of the limit."""
    half = max(difference.high - difference.mean, difference.mean - difference.low)
    gap = abs(abs(difference.mean) - limit)
    if half**2 * episodes > MILLION * gap**2:
        return "not even a million episodes"
    needed = max(episodes + 1, episodes * (half / gap) ** 2)
    return f"about {float(f'{needed:.2g}'):,.0f} episodes"
