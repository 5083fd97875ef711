"""A comparison as text, json, picture, film and one page that opens without a network."""

from __future__ import annotations

import base64
import json
import sys
from html import escape
from pathlib import Path

from nerd_gym.utils.files import atomic_write, finite
from nerd_gym.utils.optional import absent

from .comparison import Comparison
from .film import film
from .plot import plot
from .table import facts, grid, method, notes, title

PICTURES = ("matplotlib", "imageio", "imageio_ffmpeg", "PIL")  # what plots and films need
SIGNS = {"agree": "#1a7f37", "differ": "#c62828", "undecided": "#b26a00"}


def save(c: Comparison, out: Path, video: bool = True, gif: bool = False) -> list[Path]:
    """Write the report; each file appears when it is whole, the page last.

    Without the packages of the extra `video` it has figures and verdicts alone: the episodes are not played in vain.
    """
    out.mkdir(parents=True, exist_ok=True)
    json_path, picture, page_path = (out / f"compare.{kind}" for kind in ("json", "png", "html"))
    with atomic_write(json_path) as part:
        part.write_text(json.dumps(finite(facts(c)), indent=1, allow_nan=False, default=str) + "\n")
    films = {out / "compare.mp4": video, out / "compare.gif": gif}
    for path in (picture, *films):
        path.unlink(missing_ok=True)  # one of an earlier comparison would not belong to this one
    wanted = [path for path, yes in films.items() if yes]
    if missing := absent(*PICTURES):
        print(f"no plots and films without {', '.join(missing)}: pip install 'nerd-gym[video]'", file=sys.stderr)
        drawn = []
    else:
        plot(c, picture)
        if wanted:
            film(c, wanted)
        drawn = [picture, *wanted]
    with atomic_write(page_path) as part:
        part.write_text(page(c.policy, [section(c, out)]))
    return [json_path, *drawn, page_path]


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
    if (folder / "compare.png").exists():
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


def _embedded(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
