"""The tables of strikes in surrogate reality: plans, their run times, policies."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

from collision_tables import markdown
from results_json import RESULTS, load

MUJOCO, ADAPTED, VELOCITIES = "mujoco", "hybrid, adapted", "hybrid, velocities"
PAPERS_OWN = {MUJOCO: "MuJoCo", ADAPTED: "hybrid"}
AGAIN = "again"
HYBRID_STEP_MS = 2.0


def _percent(found: dict[str, float]) -> str:
    mean, low, high = (f"{round(100 * found[name]):+d}" for name in ("mean", "low", "high"))
    return f"{mean} % ({low} to {high})"


def _published(what: str, shape: str) -> str:
    """Change of the paper's mean."""
    paper = load("strike_planning")["paper"]
    before, after = (paper[name][what][shape][0] for name in PAPERS_OWN.values())
    return f"{round(100 * (after / before - 1)):+d} %"


def plans() -> str:
    """Errors of planned strikes, ours and the paper's, and the reward that was planned beside that which came of it."""
    result, rows = load("strike_planning"), []
    for shape, found in result["summary"].items():
        for name, row in found["errors"].items():
            (x, dx), (yaw, dyaw) = row["position"], row["orientation"]
            cells = [shape, f"`{name}`" if name == MUJOCO else name, f"{1000 * x:.2f} ({1000 * dx:.2f})"]
            cells += [f"{yaw:.3f} ({dyaw:.3f})", _planned(result, shape, name), f"{-10 * x - 0.1 * yaw:.3f}"]
            if name in PAPERS_OWN:
                theirs = result["paper"][PAPERS_OWN[name]]
                (x, dx), (yaw, dyaw) = theirs["position"][shape], theirs["orientation"][shape]
                cells += [f"{1000 * x:.1f} ({1000 * dx:.1f})", f"{yaw:.2f} ({dyaw:.2f})"]
            else:
                cells += ["", ""]
            rows.append(cells)
    heads = ["shape", "planned on", "position, mm", "yaw, rad", "reward planned", "executed", "paper, mm", "paper, rad"]
    return markdown(heads, rows)


def _planned(result: dict[str, Any], shape: str, name: str) -> str:
    """Mean reward of the best candidates where they were searched."""
    runs = [of[shape]["runs"][name] for of in result["settings"].values() if shape in of]
    return f"{mean(v for run in runs for v in run['planned']):.3f}" if "planned" in runs[0] else ""


def changes() -> str:
    """Relative change of the mean errors from mujoco to hybrid."""
    result, rows = load("strike_planning"), []
    for name in (ADAPTED, VELOCITIES):
        for shape, found in result["summary"].items():
            cells = [name, shape]
            for what in ("position", "orientation"):
                cells += [_percent(found["change"][name][what]), _published(what, shape) if name == ADAPTED else ""]
            rows.append(cells)
    return markdown(["over `mujoco`", "shape", "position", "paper", "yaw", "paper"], rows)


def by_setting() -> str:
    """Mean errors in each setting, and what the simulators leave of the rests that they were fitted to."""
    result = load("strike_planning")
    names, rows = [MUJOCO, ADAPTED, VELOCITIES, AGAIN], []
    for setting, shapes in result["settings"].items():
        for shape, found in shapes.items():
            runs, left = found["runs"], {one["name"]: one["rest_error"] for one in found["simulators"]}
            cells = [f"{1000 * mean(runs[n]['position']):.1f}, {mean(runs[n]['orientation']):.3f}" for n in names]
            rows.append([setting, shape, *cells, *(f"{left[name]:.3f}" for name in PAPERS_OWN)])
    heads = [f"`{n}`" if n == MUJOCO else n for n in names]
    return markdown(["setting", "shape", *heads, "samples, `mujoco`", "samples, adapted"], rows)


def _ratio(shape: str, which: str) -> str:
    """Of candidate strikes of hybrid at its step, from strike.json."""
    rows = load("strike")["shapes"][shape]["rows"]
    (row,) = (r for r in rows if r["backend"] == "hybrid" and r["step_ms"] == HYBRID_STEP_MS)
    found = row["over_mujoco"]
    return f"{found[which]:.2f}" + (f" ({found['matched_step_ms']:g} ms)" if which == "at_matched_accuracy" else "")


def times() -> str:
    """Run time of a search, ours and the paper's."""
    result, rows = load("strike_planning"), []
    steps = result["physics_step_ms"]
    for shape, found in result["times"].items():
        ours = [f"{mean(found['seconds'][n]):.2f} ({_spread(found['seconds'][n]):.2f})" for n in PAPERS_OWN]
        theirs = [result["paper"][n]["seconds"][shape] for n in PAPERS_OWN.values()]
        cells = [shape, *ours, f"{found['ratio']:.2f}", _ratio(shape, "at_matched_accuracy")]
        cells += [_ratio(shape, "at_equal_step"), *(f"{m:.1f} ({s:.1f})" for m, s in theirs)]
        rows.append([*cells, f"{theirs[1][0] / theirs[0][0]:.2f}"])
    heads = ["shape", f"`mujoco`, {steps['mujoco']:g} ms: s", f"`hybrid`, {steps['hybrid']:g} ms: s", "ratio"]
    heads += ["at equal accuracy", "at equal step", "paper, MuJoCo: s", "paper, hybrid: s", "paper, ratio"]
    return markdown(heads, rows)


def _spread(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def policies() -> str:
    """Success of policies by where they were trained and where they strike."""
    result, rows = load("strike_policies"), []
    for row in result["rows"]:
        cells = [f"`{row['trained_on']}`", row["shape"], row["where"]]
        for found in row["routes"].values():
            cells.append(f"{found['successes']}/{found['runs']}, {found['reached']}/{found['sub_goals']}")
        rows.append(cells)
    for name, found in result["paper"].items():
        cells = [f"{name} (paper)", "", "a robot"]
        for route in next(iter(result["rows"]))["routes"]:
            reached = f", {found['reached'][route]}" if route in found["reached"] else ""
            cells.append(found["successes"][route] + reached)
        rows.append(cells)
    return markdown(["trained on", "shape", "strikes in", *(f"route {n}" for n in (1, 2, 3))], rows)


STRIKE_TABLES: dict[str, Any] = {
    "strike_planning": plans,
    "strike_planning_change": changes,
    "strike_planning_settings": by_setting,
    "strike_planning_times": times,
}
if (RESULTS / "strike_policies.json").exists():  # policies are trained apart from the other figures
    STRIKE_TABLES["strike_policies"] = policies
