"""The tables of plans, from benchmarks/results/planning.json."""

from __future__ import annotations

from statistics import mean
from typing import Any

from collision_tables import markdown
from results_json import load

NAMES = {"cma": "CMA-ES", "cem": "CEM", "random": "random shooting"}


def _task(row: dict[str, Any]) -> tuple[str, str]:
    """Environment and number of actions."""
    return row["env"].removeprefix("NeRD/").removesuffix("-v0"), str(row["horizon"])


def searches() -> str:
    """Mean return, and the task's measure at the end."""
    table: dict[tuple[str, str], list[str]] = {}
    heads: dict[str, None] = {}
    for row in load("planning")["searches"]:
        heads[f"{NAMES[row['method']]}, {row['candidates']} x {row['iterations']}"] = None
        ((name, measure),) = row["measures"].items()
        unit = name.rpartition("(")[2].rstrip(")")
        shown = f"{measure:.2f} rad" if unit == "rad" else f"{100 * measure:.1f} cm"
        table.setdefault(_task(row), []).append(f"{mean(row['returns']):.2f} ({shown})")
    return markdown(["task", "actions", *heads], [[*task, *cells] for task, cells in table.items()])


def knots() -> str:
    """Mean return by the number of knots; the default in bold."""
    rows = load("planning")["knots"]
    few = sorted({row["knots"] for row in rows if not row["default"] and row["knots"] < row["horizon"]})
    table: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        cells = table.setdefault((*_task(row), NAMES[row["method"]]), {})
        value = f"{mean(row['returns']):.2f}"
        if row["default"]:
            cells["default"] = f"**{value}** ({row['knots']})"
        if row["knots"] in few:
            cells[str(row["knots"])] = value
        elif row["knots"] == row["horizon"]:
            cells["every action"] = value
    heads = ["default", *map(str, few), "every action"]
    lines = [[*task, *(cells.get(head, "") for head in heads)] for task, cells in table.items()]
    return markdown(["task", "actions", "search", *heads], lines)


def transfer() -> str:
    """Mean return where a plan was made and elsewhere."""
    lines = []
    for row in load("planning")["transfer"]:
        executed = [f"{mean(values):.2f}" for values in row["executed"].values()]
        lines.append([*_task(row), f"`{row['planned on']}`", f"{mean(row['planned']):.2f}", *executed])
    backends = [f"on `{name}`" for name in load("planning")["transfer"][0]["executed"]]
    return markdown(["task", "actions", "planned on", "planned", *backends], lines)


PLANNING_TABLES = {"planning_searches": searches, "planning_knots": knots, "planning_transfer": transfer}
