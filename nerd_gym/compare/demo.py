"""The demo: the shipped policies on every backend. Does each behave the same? A table, plots, films, one page."""

from __future__ import annotations

from html import escape
from pathlib import Path

from .compare import Comparison, compare, number, percent
from .files import whole
from .report import aligned, html_table, page, section, verdict_lines

POLICIES = Path(__file__).parent.parent / "policies"  # beside the package in a checkout
# Environment, policy, backends: the first is the baseline.
DEMO = (
    ("NeRD/Cartpole-v0", "cartpole/swingup-neural-seed0.safetensors", ("warp", "mujoco", "neural")),
    ("NeRD/Franka-v0", "franka/position-neural-seed0.safetensors", ("warp", "mujoco", "neural")),
    ("NeRD/Anymal-v0", "anymal/forward-neural-seed1.safetensors", ("warp", "mujoco", "neural")),
)


def run_demo(
    out: Path,
    policies: Path = POLICIES,
    episodes: int = 64,
    seed: int = 0,
    video: bool = True,
    entries: tuple[tuple[str, str, tuple[str, ...]], ...] = DEMO,
) -> list[Comparison]:
    """Compare each entry (environment, policy under `policies`, backends) in a folder of its own; write demo.html."""
    missing = [name for _, name, _ in entries if not (policies / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"no {', '.join(missing)} in {policies}; the policies are in the project's checkout: give that folder"
        )
    comparisons, folders = [], []
    for env_id, name, backends in entries:
        comparisons.append(compare(env_id, policies / name, backends, episodes=episodes, seed=seed))
        folders.append(out / f"{Path(name).parent.name}-{Path(name).stem}")
        comparisons[-1].save(folders[-1], video)
    rows = [row for c in comparisons for row in summary(c)]
    print("\n".join(aligned([HEAD, *rows])), end="\n\n")
    print("\n".join(line for c in comparisons for line in [c.policy, *verdict_lines(c), ""]))
    links = [
        f'<li><a href="{escape(folder.name)}/compare.html">{escape(c.policy)}</a> on {escape(c.env_id)}: '
        + ", ".join(f"{escape(label)} <b>{v.word}</b>" for label, v in c.verdicts.items())
        for c, folder in zip(comparisons, folders, strict=True)
    ]
    head = "<h1>Does a policy behave the same in another simulator?</h1>"
    first = f"{head}\n<ul>{''.join(links)}</ul>\n{html_table(HEAD, rows)}"
    parts = [section(c, folder) for c, folder in zip(comparisons, folders, strict=True)]
    with whole(out / "demo.html") as part:
        part.write_text(page("demo", [first, *parts]))
    print(f"written to {out}: demo.html, {', '.join(f'{folder.name}/' for folder in folders)}")
    return comparisons


HEAD = ["environment", "policy", "backend", "return", "difference", "full length", "verdict"]


def summary(c: Comparison) -> list[list[str]]:
    """Rows of the common table, one for each backend."""
    rows = []
    mean = abs(c.baseline.figures["return"].mean)
    for side in (*c.sides, c.yardstick):
        e = side.differences.get("return")
        rows.append(
            [
                c.env_id,
                c.policy,
                side.label,
                number(side.figures["return"].mean, 4),
                f"{percent(e.mean, mean, 2)}{' %' if mean else ''}" if e else "-",
                f"{100 * side.figures['full length'].mean:.3g} %",
                side.verdict.word if side.verdict else "-",
            ]
        )
    return rows
