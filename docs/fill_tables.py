"""Write the tables of README.md and docs from the json files that commands of the project wrote.

python docs/fill_tables.py            rewrites the documents
python docs/fill_tables.py --check    fails if a table is not what the json says, or a json not what its model says

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; docs/tables.py writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from results_json import ROOT, load, modern, packaged_models
from tables import TABLES

TABLE = re.compile(r"<!-- table: (\w+) -->.*?<!-- end -->", re.DOTALL)


def documents() -> list[Path]:
    """Those that may have tables."""
    rooms = ("guide", "reference", "results")
    return [ROOT / "README.md", *(page for room in rooms for page in sorted(ROOT.glob(f"docs/{room}/*.md")))]


def filled(text: str) -> str:
    """The text with every table written anew."""

    def write(match: re.Match) -> str:
        name = match[1]
        if name not in TABLES:
            raise ValueError(f"unknown table {name!r}; valid: {', '.join(TABLES)}")
        return f"<!-- table: {name} -->\n{TABLES[name]()}\n<!-- end -->"

    return TABLE.sub(write, text)


def stale_documents() -> Iterator[str]:
    """Documents whose tables are not what the json files say, and tables that no document has."""
    used = set()
    for document in documents():
        text = document.read_text()
        used |= set(TABLE.findall(text))
        if filled(text) != text:
            yield f"{document.relative_to(ROOT)} is not what the json files say: run python docs/fill_tables.py"
    yield from (f"no document uses the table {name!r}" for name in TABLES if name not in used)


def missing_models() -> Iterator[str]:
    """Packaged models that a table leaves out."""
    speed = {(row["env"].lower(), modern(row["model"])) for row in load("neural_speed")["rows"]}
    lines = {name: TABLES[name]().splitlines() for name in ("learned", "legged", "legged_models")}
    for packaged in packaged_models():
        robot, kind = packaged.evaluation["robot"], modern(packaged.facts["kind"])
        if packaged.free_base:
            start, labels = (
                f"| {robot} | {packaged.teacher} |",
                {"legged": "| `neural` |", "legged_models": f"| {kind}, "},
            )
        else:
            start, labels = f"| {robot} |", {"learned": f"| {kind} (packaged) |"}
        for name, label in labels.items():
            if not any(line.startswith(start) and label in line for line in lines[name]):
                yield f"{packaged.path.name} has no row in the table {name!r}"
        if packaged.teacher == "warp":
            env_id = f"nerd/{robot.replace('_', '')}-v0"
            if (env_id, f"{kind} (packaged)") not in speed:
                yield f"{packaged.path.name} has no row in neural_speed.json: python benchmarks/neural_speed.py"


def double_figures() -> Iterator[str]:
    """Speeds that were measured twice and differ."""
    facts = load("neural_speed")
    for row in facts["rows"]:
        by_size = row.get("by_batch_size")
        if by_size and by_size[str(facts["num_envs"])] != row["env_steps_per_s"]:
            yield f"{row['env']} has two speeds in neural_speed.json: python benchmarks/neural_speed.py"


def problems() -> list[str]:
    """All that `--check` finds wrong."""
    return [*missing_models(), *double_figures(), *stale_documents()]


def main(check: bool) -> None:
    """Fill the documents, or fail if they need it."""
    try:
        if not check:
            for document in documents():
                document.write_text(filled(document.read_text()))
        elif found := problems():
            sys.exit("\n".join(found))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main("--check" in sys.argv)
