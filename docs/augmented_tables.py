"""The tables of networks inside the engine, from benchmarks/results/augmented_*.json."""

from __future__ import annotations

from statistics import mean
from typing import Any

from collision_tables import markdown
from results_json import load

CLOSE_M = 0.01


def discovery() -> str:
    """What survives, the error that is left, and a feed-forward network's."""
    facts, rows = load("augmented_discovery"), []
    for row in facts["rows"]:
        wires = "; ".join(", ".join(f"`{name}`" for name in one) for one in row["surviving"])
        others = [f"{other['rmse']:.3f}" for other in row["feed_forward"]]
        rows.append([str(row["seed"]), wires, f"{row['rmse']:.4f}", f"{row['rmse_plain']:.2f}", *others])
    samples = [f"feed-forward, {other['samples']:,}" for other in facts["rows"][0]["feed_forward"]]
    count = f"{facts['rows'][0]['samples']:,} samples"
    return markdown(["seed", "signals that survive, by joint", count, "no damping", *samples], rows)


def link_lengths() -> str:
    """How often the lengths were found, and what it cost."""
    facts = load("augmented_link_lengths")
    chains = facts["chains"]
    names = {"single": "single descent", "basin_hopping": f"basin hopping, chains: {chains}", "cma_es": "CMA-ES"}
    rows = []
    for key, name in names.items():
        found, runs = facts["summary"][key], [row[key] for row in facts["rows"]]
        starts = facts["starts"] if key == "single" else 1
        evaluations = mean(run["evaluations"] for run in runs) / starts
        rows.append([name, f"{found['found']} of {found['of']}", f"{evaluations:,.0f}"])
    return markdown(["search", f"within {CLOSE_M} m", "evaluations, mean"], rows)


def speed() -> str:
    """Env-steps per second over `warp`."""
    rows = [
        [r["case"], f"{r['env_steps_per_s']:,.0f}", f"{r['over_warp']:.3f}"] for r in load("augmented_speed")["rows"]
    ]
    return markdown(["Ant, 512 robots, one thread", "env-steps per second", "over `warp`"], rows)


def cube() -> str:
    """Errors of windows by seed."""
    facts, rows = load("augmented_cube"), []
    for name in facts["seeds"][0]["rows"]:
        found: list[dict[str, Any]] = [seed["rows"][name] for seed in facts["seeds"]]
        cells = [_spread([row[unit][k] for row in found]) for k in (0, 1) for unit in ("mm", "degrees")]
        rows.append([name, *cells])
    return markdown(["", "mean, mm", "mean, degrees", "median, mm", "median, degrees"], rows)


def swimmer() -> str:
    """Errors over 900 frames, by case and seed."""
    rows = []
    for row in load("augmented_swimmer")["rows"]:
        other = row.get("lstm", {"rmse": float("nan")})
        cells = [f"{row[key]:.3f}" for key in ("rmse_plain", "rmse")]
        rows.append([f"{row['joints'] + 1} links, {row['medium']}", str(row["seed"]), *cells, f"{other['rmse']:.3f}"])
    return markdown(["swimmer", "seed", "no drag", "network on drag, 1,283 weights", "LSTM, 1,908 weights"], rows)


def _spread(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


AUGMENTED_TABLES = {
    "augmented_discovery": discovery,
    "augmented_link_lengths": link_lengths,
    "augmented_speed": speed,
    "augmented_cube": cube,
    "augmented_swimmer": swimmer,
}
