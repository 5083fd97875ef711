"""A comparison as text, json, picture, film and one page that opens without a network."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import __version__
from .bootstrap import Estimate
from .compare import DOUBTED, Comparison, Side, Trusted, number, percent, plain, quartiles
from .drift import quiet_env
from .files import whole
from .optional import require
from .progress import progress
from .video import VideoWriter

SECONDS, FPS, ROWS, QUALITY = 10.0, 20, 2, 5  # of a film
SHARES = ("full length", "falls", "diverged")
BASELINE, LEARNED, YARDSTICK = "#1f6fd0", "#f08a1d", "#888888"
DASHES = ("-", "--", "-.", ":", (0, (5, 1)))
OTHERS = ("#2a9d5c", "#8e44ad", "#c0392b", "#00838f")
SIGNS = {"agree": "#1a7f37", "differ": "#c62828", "undecided": "#b26a00"}


def save(c: Comparison, out: Path, video: bool = True, gif: bool = False) -> list[Path]:
    """Write the report; each file appears when it is whole, the page last."""
    require("matplotlib", extra="video")
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"compare.{kind}" for kind in ("json", "png")]
    with whole(paths[0]) as part:
        part.write_text(json.dumps(facts(c), indent=1) + "\n")
    plot(c, paths[1])
    films = {out / "compare.mp4": video, out / "compare.gif": gif}
    for path in films:
        path.unlink(missing_ok=True)  # one of an earlier comparison would not belong to this one
    wanted = [path for path, yes in films.items() if yes]
    if wanted:
        film(c, wanted)
    page_path = out / "compare.html"
    with whole(page_path) as part:
        part.write_text(page(c.policy, [section(c, out)]))
    return [*paths, *wanted, page_path]


# Text.


def title(c: Comparison) -> str:
    """What was compared."""
    options = "".join(f", {key}={value}" for key, value in plain(c.options).items())
    layout = "" if c.layout == "native" else f", layout {c.layout}"
    return f"{c.policy} on {c.env_id}{options}{layout}: {c.episodes} episodes, seed {c.seed}"


def grid(c: Comparison) -> tuple[list[str], list[list[str]]]:
    """The table: labels of the columns, and rows that begin with their name."""
    columns = [*c.sides, c.yardstick]
    mean = abs(c.baseline.figures["return"].mean)
    rows: list[list[str]] = []

    def row(name: str, cell: Callable[[Side], str]) -> None:
        cells = [cell(side) for side in columns]
        if any(cells):
            rows.append([name, *(text or "-" for text in cells)])

    for name in c.baseline.figures:
        if name in SHARES:
            row(f"{name} (%)", lambda side, n=name: f"{100 * side.figures[n].mean:.3g}")
            continue
        row(name, lambda side, n=name: _interval(side.figures[n], lambda x: number(x, 4)))
        row("   difference", lambda side, n=name: _interval(side.differences.get(n), lambda x: number(x, 3, "+")))
        if name == "return" and mean:
            row("   in %", lambda side: _interval(side.differences.get("return"), lambda x: percent(x, mean, 3)))
    for name, unit in c.units.items():
        row(f"error of {name} ({unit})", lambda side, n=name: number(side.error(n), 2) if side.errors else "")
    for name, trusted in (("it visits", "trust"), (f"{c.baseline.label} visits", "trust_on_baseline")):
        row(
            f"trust < {DOUBTED:g} where {name} (%)",
            lambda side, t=trusted: f"{100 * getattr(side, t).doubted:.3g}" if getattr(side, t) else "",
        )
    return [side.label for side in columns], rows


def table(c: Comparison) -> str:
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
    if any(side.trust for side in c.sides):
        lines.append("Trust is 1 where a model expects to err by a hundredth of what a frame usually changes, or less,")
        lines.append("one half at a tenth, and 0 where it knows nothing.")
    for side in c.sides:
        for where, trusted in (("it visits", side.trust), (f"{c.baseline.label} visits", side.trust_on_baseline)):
            if trusted and trusted.outside:
                out = (
                    f"{n} {100 * share:.2g} % (up to {far:.4g} times the range)"
                    for n, (share, far) in trusted.outside.items()
                )
                lines.append(f"Outside the training data of {side.label} where {where}: {', '.join(out)}.")
    return lines


def _interval(e: Estimate | None, text: Callable[[float], str]) -> str:
    return f"{text(e.mean)} [{text(e.low)}, {text(e.high)}]" if e else ""


# Json.


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
        "backends": {side.label: _side_facts(side) for side in c.sides},
        "yardstick": {"label": c.yardstick.label, **_side_facts(c.yardstick)},
    }


def _side_facts(side: Side) -> dict[str, Any]:
    out: dict[str, Any] = {
        "model": side.model,
        "figures": {name: _estimate_facts(e) for name, e in side.figures.items()},
        "differences": {name: _estimate_facts(e) for name, e in side.differences.items()},
        "errors": {
            name: {"median of the mean over time": rounded(side.error(name)), "over time": _course(quartiles(values))}
            for name, values in side.errors.items()
        },
        "returns": [rounded(x) for x in side.played.returns.tolist()],
    }
    for name, trusted in (("trust", side.trust), ("trust_on_baseline", side.trust_on_baseline)):
        if trusted is not None:
            out[name] = _trust_facts(trusted)
    return out | ({"verdict": vars(side.verdict)} if side.verdict else {})


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


# Picture.


def colours(c: Comparison) -> dict[str, str]:
    """The baseline blue, the film's other robot orange."""
    out, others = {c.baseline.label: BASELINE, c.pair[1].label: LEARNED, c.yardstick.label: YARDSTICK}, iter(OTHERS * 9)
    return out | {side.label: next(others) for side in c.sides if side.label not in out}


def plot(c: Comparison, path: Path) -> None:
    """Returns, differences, the task's measures, errors and trust over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns, colour = [*c.sides, c.yardstick], colours(c)
    dashes = {side.label: DASHES[k % len(DASHES)] for k, side in enumerate(columns)}  # lines often lie on one another
    judged = [side for side in c.sides if side.trust]
    panels = 2 + len(c.baseline.played.measures) + len(c.units) + bool(judged)
    wide, high = min(3, panels), -(-panels // 3)
    figure, axes = pyplot.subplots(high, wide, figsize=(4.6 * wide, 3.3 * high), squeeze=False)
    free = iter(axes.flat)

    def intervals(axis, sides: list[Side], which: str, scale: float = 1.0) -> None:
        for k, side in enumerate(sides):
            e = getattr(side, which)["return"]
            spread = [[scale * (e.mean - e.low)], [scale * (e.high - e.mean)]]
            axis.errorbar([scale * e.mean], [k], xerr=spread, fmt="o", color=colour[side.label], capsize=4)
        axis.set_yticks(range(len(sides)), [_short(side.label) for side in sides], fontsize=8)
        axis.set_ylim(len(sides) - 0.5, -0.5)

    def course(axis, values: Tensor, label: str, of: str) -> None:
        low, middle, high = values.clamp(min=1e-9).T.numpy() if axis.get_yscale() == "log" else values.T.numpy()
        time = c.step * (1 + torch.arange(len(middle)).numpy())
        axis.plot(time, middle, color=colour[of], linestyle=dashes[of], label=_short(label), linewidth=1.8)
        axis.fill_between(time, low, high, color=colour[of], alpha=0.12, linewidth=0)
        axis.set_xlabel("s")

    axis = next(free)
    intervals(axis, columns, "figures")
    axis.set_title("mean return, 95 % interval")
    axis = next(free)
    mean = abs(c.baseline.figures["return"].mean)
    intervals(axis, columns[1:], "differences", 100 / mean if mean else 1.0)
    edge = 100 * c.margin if mean else 0.0
    axis.axvspan(-edge, edge, color="#1a7f37", alpha=0.12, linewidth=0)
    axis.axvline(0, color=BASELINE, linewidth=1)
    axis.set_title(f"return less that on {c.baseline.label} ({'%' if mean else 'absolute'})")
    for name in c.baseline.played.measures:
        axis = next(free)
        for side in columns:
            course(axis, quartiles(side.played.measures[name], side.played.running), side.label, side.label)
        axis.set_title(name)
        axis.legend(fontsize=7)
    for name, unit in c.units.items():
        axis = next(free)
        axis.set_yscale("log")
        for side in columns[1:]:
            course(axis, quartiles(side.errors[name]), side.label, side.label)
        axis.set_title(f"{name} ({unit}) off {c.baseline.label}")
        axis.legend(fontsize=7)
    if judged:
        axis = next(free)
        for side in judged:
            if side.trust_on_baseline:
                label = f"{side.label}, where {c.baseline.label} goes"
                course(axis, side.trust_on_baseline.course, label, c.baseline.label)
            course(axis, side.trust.course, f"{side.label}, where it goes", side.label)
        axis.set_ylim(-0.03, 1.03)
        axis.axhline(DOUBTED, color="#888888", linewidth=0.8, linestyle=":")
        axis.set_title("trust of the learned model")
        axis.legend(fontsize=7)
    for axis in free:
        axis.axis("off")
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.title.set_fontsize(10)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title(c)}; lines are medians with quartiles", fontsize=11)
    figure.tight_layout()
    with whole(path) as part:
        figure.savefig(part, dpi=110, format="png")
    pyplot.close(figure)


def _short(label: str) -> str:
    return label.replace(", starts displaced by", ",\nstarts off by")


# Film.


def film(c: Comparison, paths: list[Path]) -> None:
    """The first episodes, one backend in blue and the other over it in orange, at the speed of life.

    A gif has half the size and half the pictures of an mp4.
    """
    from .envs.render import overlay

    first, second = c.pair
    rows = min(ROWS, c.episodes)
    env = quiet_env(c.env_id, rows, first.physics.backend, **c.options | first.physics.options)
    env.reset(seed=c.seed)  # for the grounds
    everyone = torch.ones(rows, dtype=torch.bool)
    stride = max(1, round(1 / (c.step * FPS)))
    steps = int(max(side.played.lengths[:rows].max() for side in (first, second)))
    frames = range(0, min(steps, int(SECONDS / c.step)), stride)
    with ExitStack() as stack:
        stack.callback(env.close)
        writers = []
        for path in paths:
            coarse = 2 if path.suffix == ".gif" else 1
            writer = stack.enter_context(VideoWriter(path, 1 / (c.step * stride * coarse), QUALITY))
            writers.append((writer, coarse))
        for k, t in enumerate(progress(frames, unit="frame", desc="film")):
            here, there = (side.played.q[min(t, len(side.played.q) - 1), :rows] for side in (first, second))
            env.backend.reset(everyone, here, torch.zeros_like(env.backend.qd))
            text = f"{first.label} blue, {second.label} orange   {(t + 1) * c.step:.2f} s"
            picture = overlay(env, there, rows, text)
            for writer, coarse in writers:
                if k % coarse == 0:
                    writer.add(picture[::coarse, ::coarse])


# Page.

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; margin: 2rem auto; max-width: 1180px; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
.verdict { border-left: 8px solid; border-radius: 4px; background: #f6f8fa; padding: .6rem 1rem; margin: .7rem 0; }
.word { font-size: 2rem; font-weight: 800; letter-spacing: .03em; line-height: 1.2; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; white-space: nowrap; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #e3e7ec; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 2px solid #1c2430; }
td:first-child { white-space: pre; }
img, video { width: 100%; border: 1px solid #e3e7ec; border-radius: 4px; } .small { color: #57606a; font-size: .9rem; }
"""


def page(name: str, sections: list[str]) -> str:
    """One html page with everything in it."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)}: does it behave the same?</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{'<hr>'.join(sections)}\n</body>\n</html>\n"
    )


def section(c: Comparison, folder: Path) -> str:
    """A comparison's part of a page, with the pictures and films of its folder inside."""
    head, rows = grid(c)
    parts = [f"<h1>{escape(title(c))}</h1>"]
    for label, v in c.verdicts.items():
        parts.append(
            f'<div class="verdict" style="border-color: {SIGNS[v.word]}">'
            f'<div class="word" style="color: {SIGNS[v.word]}">{v.word.upper()}</div>'
            f"<b>{escape(label)}</b> against <b>{escape(c.baseline.label)}</b>: {escape(v.sentence)}.</div>"
        )
    parts.append(f"<h2>Figures</h2>\n{html_table(['', *head], rows)}")
    parts += [f'<p class="small">{escape(line)}</p>' for line in notes(c)]
    parts.append(f'<h2>Plots</h2>\n<img alt="plots" src="{_embedded(folder / "compare.png", "image/png")}">')
    first, second = c.pair
    what = f"{escape(first.label)} in blue, {escape(second.label)} in orange"
    if (folder / "compare.mp4").exists():
        source = _embedded(folder / "compare.mp4", "video/mp4")
        parts.append(f'<h2>Film: {what}</h2>\n<video controls loop muted autoplay playsinline src="{source}"></video>')
    parts.append(f"<h2>How this was measured</h2>\n<p>{escape(method(c))}</p>")
    return "\n".join(parts)


def html_table(head: list[str], rows: list[list[str]]) -> str:
    """A table that scrolls if it is too wide."""
    top = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>\n" for row in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'


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
        "differ if either differs. Trust, from 0 to 1, is the part of unseen frames of its training data on which a "
        "learned model expects to err more; outside of those data it falls to 0."
    )


def _embedded(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
