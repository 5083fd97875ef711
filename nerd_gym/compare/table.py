"""A comparison as text and as json."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from nerd_gym import __version__
from nerd_gym.dynamics.models.trust import MEANING

from .comparison import DOUBTED, BackendRun, Comparison, Trusted, plain
from .metrics import Estimate, quartiles
from .verdict import number, percent

SHARES = ("full length", "falls", "diverged")


def title(c: Comparison) -> str:
    """What was compared."""
    options = "".join(f", {key}={value}" for key, value in plain(c.options).items())
    layout = "" if c.layout == "native" else f", layout {c.layout}"
    return f"{c.policy} on {c.env_id}{options}{layout}: {c.episodes} episodes, seed {c.seed}"


def grid(c: Comparison) -> tuple[list[str], list[list[str]]]:
    """The table: labels of the columns, and rows that begin with their name."""
    columns = [*c.runs, c.yardstick]
    mean = abs(c.baseline.figures["return"].mean)
    rows: list[list[str]] = []

    def row(name: str, cell: Callable[[BackendRun], str]) -> None:
        cells = [cell(run) for run in columns]
        if any(cells):
            rows.append([name, *(text or "-" for text in cells)])

    for name in c.baseline.figures:
        if name in SHARES:
            row(f"{name} (%)", lambda run, n=name: f"{100 * run.figures[n].mean:.3g}")
            continue
        row(name, lambda run, n=name: _interval(run.figures[n], lambda x: number(x, 4)))
        row("   difference", lambda run, n=name: _interval(run.differences.get(n), lambda x: number(x, 3, "+")))
        if name == "return" and mean:
            row("   in %", lambda run: _interval(run.differences.get("return"), lambda x: percent(x, mean, 3)))
    for name, unit in c.units.items():
        row(f"error of {name} ({unit})", lambda run, n=name: number(run.error(n), 2) if run.errors else "")
    for name, trusted in (("it visits", "trust"), (f"{c.baseline.label} visits", "trust_on_baseline")):
        row(
            f"trust < {DOUBTED:g} where {name} (%)",
            lambda run, t=trusted: f"{100 * getattr(run, t).doubted:.3g}" if getattr(run, t) else "",
        )
    return [run.label for run in columns], rows


def comparison_table(c: Comparison) -> str:
    """For a terminal; it ends with the verdicts."""
    head, rows = grid(c)
    lines = [title(c), "", *aligned([["", *head], *rows], right=True), "", *notes(c), ""]
    return "\n".join([*lines, *verdict_lines(c)])


def aligned(rows: list[list[str]], right: bool = False) -> list[str]:
    """Rows of text as lines with columns; all but the first flush right if wanted."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [f"{text:>{w}}" if right else f"{text:{w}}" for text, w in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([f"{first:{widths[0]}}", *cells]).rstrip())
    return lines


def verdict_lines(c: Comparison) -> list[str]:
    """One for each backend but the baseline."""
    labels = {label: f"{label} against {c.baseline.label}" for label in c.verdicts}
    width = max(map(len, labels.values()))
    return [f"{labels[label]:{width}s}  {v.word.upper():9s}  {v.sentence}" for label, v in c.verdicts.items()]


def notes(c: Comparison) -> list[str]:
    """How to read the table."""
    lines = [
        f"Means, [95 % intervals of {c.resamples:,} resamples]; differences from {c.baseline.label} are paired.",
        f"Errors are from the state on {c.baseline.label}: mean over time, median of the episodes. "
        "A backend without options has its default physics.",
    ]
    if any(run.trust for run in c.runs):
        lines.append(MEANING)
    for run in c.runs:
        for where, trusted in (("it visits", run.trust), (f"{c.baseline.label} visits", run.trust_on_baseline)):
            if trusted and trusted.outside:
                out = (
                    f"{n} {100 * share:.2g} % (up to {far:.4g} times the range)"
                    for n, (share, far) in trusted.outside.items()
                )
                lines.append(f"Outside the training data of {run.label} where {where}: {', '.join(out)}.")
    return lines


def _interval(e: Estimate | None, text: Callable[[float], str]) -> str:
    return f"{text(e.mean)} [{text(e.low)}, {text(e.high)}]" if e else ""


def facts(c: Comparison) -> dict[str, Any]:
    """Everything, as json takes it."""
    return {
        "what": "first episodes of one policy from the same starts on several backends, deterministic actions",
        "nerd_gym": __version__,
        "env": c.env_id,
        "options": plain(c.options),
        "policy": c.policy,
        "policy_facts": c.policy_facts,
        "layout": c.layout,
        "episodes": c.episodes,
        "seed": c.seed,
        "margin": c.margin,
        "displaced": c.displaced,
        "resamples": c.resamples,
        "seconds_per_step": c.step,
        "units": c.units,
        "baseline": c.baseline.label,
        "backends": {run.label: _run_facts(run) for run in c.runs},
        "yardstick": {"label": c.yardstick.label, **_run_facts(c.yardstick)},
    }


def _run_facts(run: BackendRun) -> dict[str, Any]:
    out: dict[str, Any] = {
        "model": run.model,
        "figures": {name: _estimate_facts(e) for name, e in run.figures.items()},
        "differences": {name: _estimate_facts(e) for name, e in run.differences.items()},
        "errors": {
            name: {"median of the mean over time": rounded(run.error(name)), "over time": _course(quartiles(values))}
            for name, values in run.errors.items()
        },
        "returns": [rounded(x) for x in run.played.returns.tolist()],
    }
    for name, trusted in (("trust", run.trust), ("trust_on_baseline", run.trust_on_baseline)):
        if trusted is not None:
            out[name] = _trust_facts(trusted)
    return out | ({"verdict": vars(run.verdict)} if run.verdict else {})


def _estimate_facts(e: Estimate) -> dict[str, Any]:
    return {"mean": rounded(e.mean), "interval": [rounded(e.low), rounded(e.high)]}


def _trust_facts(t: Trusted) -> dict[str, Any]:
    outside = {name: {"share": rounded(share), "furthest": rounded(far)} for name, (share, far) in t.outside.items()}
    return {f"share below {DOUBTED:g}": rounded(t.doubted), "over time": _course(t.course), "outside": outside}


def _course(values: Tensor) -> dict[str, list]:
    low, middle, high = ([rounded(x, 3) for x in column] for column in values.T.tolist())
    return {"lower quartile": low, "median": middle, "upper quartile": high}


def rounded(x: float, digits: int = 6) -> float | None:
    """To so many significant digits; json has no NaN and no infinity."""
    return float(f"{x:.{digits}g}") if math.isfinite(x) else None


def method(c: Comparison) -> str:
    """In words."""
    return (
        f"Every backend plays the first episode of {c.episodes} rows with deterministic actions, from the same starts, "
        "goals and grounds to the bit. Differences are taken episode by episode; their 95 % intervals come from "
        f"{c.resamples:,} seeded resamples. Returns agree if the interval lies within {100 * c.margin:g} % of the mean "
        f"return on {c.baseline.label}, differ if it lies wholly outside, and are undecided otherwise. Errors are "
        "between states at the same time while both episodes run; orientation is an angle, joints are averaged. The "
        f"yardstick is {c.baseline.label} itself from starts displaced by {c.displaced:g} (m and rad, every direction "
        "and joint): motion agrees if no error's median is above the yardstick's. The verdict is agree if both agree, "
        "differ if either differs."
    )
