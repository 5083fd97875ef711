"""The demo: the shipped policies on every backend. Does each behave the same? A table, plots, films, one page."""

from __future__ import annotations

from html import escape
from pathlib import Path

from nerd_gym.policies.shipped import shipped_policies
from nerd_gym.utils.files import atomic_write

from .comparison import Comparison, compare
from .page import html_table, page, section
from .table import aligned, verdict_lines
from .verdict import number, percent

POLICIES = shipped_policies()
# Environment and policy; each is played on every backend that the robot has.
DEMO = (
    ("NeRD/Cartpole-v0", "cartpole/swingup-neural-seed0.safetensors"),
    ("NeRD/Franka-v0", "franka/position-neural-seed0.safetensors"),
    ("NeRD/Anymal-v0", "anymal/forward-neural-seed1.safetensors"),
)


def run_demo(
    out: Path,
    policies: Path = POLICIES,
    episodes: int = 64,
    seed: int = 0,
    video: bool = True,
    entries: tuple[tuple[str, str], ...] = DEMO,
    backends: tuple[str, ...] = (),
) -> list[Comparison]:
    """Compare each entry (environment, policy under `policies`) in a folder of its own; write demo.html."""
    missing = [name for _, name in entries if not (policies / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"no {', '.join(missing)} in {policies}; the policies come with the package ({POLICIES}) and are in "
            "policies/ of the project's checkout"
        )
    comparisons, folders = [], []
    for env_id, name in entries:
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
    with atomic_write(out / "demo.html") as part:
        part.write_text(page("demo", [first, *parts]))
    print(f"written to {out}: demo.html, {', '.join(f'{folder.name}/' for folder in folders)}")
    return comparisons


HEAD = ["environment", "policy", "backend", "return", "difference", "full length", "verdict"]


def summary(c: Comparison) -> list[list[str]]:
    """Rows of the common table, one for each backend."""
    rows = []
    mean = abs(c.baseline.figures["return"].mean)
    for run in (*c.runs, c.yardstick):
        e = run.differences.get("return")
        rows.append(
            [
                c.env_id,
                c.policy,
                run.label,
                number(run.figures["return"].mean, 4),
                f"{percent(e.mean, mean, 2)}{' %' if mean else ''}" if e else "-",
                f"{100 * run.figures['full length'].mean:.3g} %",
                run.verdict.word if run.verdict else "-",
            ]
        )
    return rows
