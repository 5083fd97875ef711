"""The tables of learned collisions, from benchmarks/results/collisions.json."""

from __future__ import annotations

from statistics import mean

from results_json import load

SETTINGS = ("A1", "A2", "B1", "B2", "C1", "C2")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def accuracy() -> str:
    """Networks on unseen collisions."""
    rows = []
    for shape, found in load("collisions")["accuracy"].items():
        for name in ("packaged", "published recipe"):
            row = found[name]
            shares = [f"{row['within'][limit]:.3f}" for limit in ("0.05", "0.1", "0.2")]
            between = f"{row['within_if_touching_between_steps']['0.1']:.3f}"
            rows.append([shape, name, *shares, f"{row['median_error']:.3f}", between])
    heads = ["shape", "network", "within 5 %", "10 %", "20 %", "median error", "10 %, touching between two steps"]
    return markdown(heads, rows)


def adaptation(limit: str) -> str:
    """Shares within a limit in surrogate reality."""
    table = load("collisions")["adaptation"]["semicylinder"][f"within_{limit}"]
    settings = list(next(iter(table.values())))
    rows = []
    for name, row in table.items():
        rows.append([name, *(f"{row[s]:.2f}" for s in settings), f"{mean(row[s] for s in SETTINGS):.3f}"])
    return markdown(["", *settings, "mean of A1 to C2"], rows)


def shapes() -> str:
    """Means over settings for each shape."""
    found = load("collisions")["adaptation"]
    tables = {shape: (found[shape]["within_0.05"], found[shape]["within_0.1"]) for shape in found}
    rows = []
    for name in next(iter(tables.values()))[0]:
        cells = [f"{mean(table[name][s] for s in SETTINGS):.3f}" for both in tables.values() for table in both]
        rows.append([name, *cells])
    heads = [f"{shape}, {limit} %" for shape in tables for limit in (5, 10)]
    return markdown(["mean of A1 to C2", *heads], rows)


def paper() -> str:
    """The published shares."""
    table = load("collisions")["paper"]
    shapes = list(next(iter(table.values())))
    return markdown(["paper", *shapes], [[name, *(f"{row[s]:.2f}" for s in shapes)] for name, row in table.items()])


def generation() -> str:
    """Speed of generation."""
    found = load("collisions")["generation"]
    row = [f"{found['collisions']:,}", f"{1000 * found['timestep']:g} ms", str(found["threads"])]
    row += [f"{found['seconds']:.0f} s", f"{found['collisions_per_s']:,}"]
    return markdown(["collisions", "time step", "threads", "time", "per second"], [row])


COLLISION_TABLES = {
    "collision_accuracy": accuracy,
    "collision_adaptation": lambda: adaptation("0.1"),
    "collision_adaptation_strict": lambda: adaptation("0.05"),
    "collision_generation": generation,
    "collision_shapes": shapes,
    "collision_paper": paper,
}
