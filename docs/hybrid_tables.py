"""The tables of `hybrid` for articulated robots: evaluations of packaged models, and benchmarks/results/hybrid.json."""

from __future__ import annotations

import json
from typing import Any

from collision_tables import markdown
from results_json import ROOT, load

PRETRAINED = ROOT / "nerd_gym" / "collision" / "pretrained"
SHOWN = {"position": "position (m)", "orientation": "orientation (rad)", "hinges": "hinges (rad)"}


def evaluations() -> list[dict[str, Any]]:
    """Of the packaged models, as `nerd-gym evaluate --backend hybrid` wrote them."""
    return [json.loads(path.read_text()) for path in sorted(PRETRAINED.glob("contacts-*.json"))]


def errors() -> str:
    """Mean errors beside the teacher's with half its substeps; of many grounds the worst."""
    rows = []
    for facts in evaluations():
        about = facts["models"]["hybrid"]
        scenarios = facts["results"].items()
        kinds = {
            "passive": [r for s, r in scenarios if "passive" in s],
            "random": [r for s, r in scenarios if "random actions" in s],
        }
        for kind, results in kinds.items():
            for measure, unit in SHOWN.items():
                found = [r for r in results if measure in r["hybrid"]]
                if not found:
                    continue
                worst = max(found, key=lambda r: r["hybrid"][measure]["10"]["mean"])
                many = f", worst of {len(found)} grounds" if len(found) > 1 else ""
                cells = [
                    f"{worst[who][measure][at]['mean']:.1e}"
                    for at in ("10", "50")
                    for who in ("hybrid", "half the substeps")
                ]
                rows.append([facts["robot"], f"`{facts['teacher']}`", about["law"], kind + many, unit, *cells])
    heads = ["at 10 frames", "half the substeps", "at 50 frames", "half the substeps"]
    return markdown(["robot", "teacher", "law", "rollouts", "error", *heads], rows)


def speed() -> str:
    """Env-steps per second over `mujoco`."""
    rows = []
    for row in load("hybrid")["speed"]:
        name = row["backend"] if row["teacher"] is None else f"{row['backend']}, of `{row['teacher']}`"
        rows.append([row["env"].removeprefix("NeRD/").removesuffix("-v0"), name, f"{row['env_steps_per_s']:,.0f}"])
        rows[-1].append("" if row["teacher"] is None else f"{row['over mujoco']:.2f}")
    return markdown(["robot", "backend", "env-steps/s", "over `mujoco`"], rows)


def policies() -> str:
    """What shipped policies earn on a teacher and on `hybrid` taught by it."""
    rows = []
    for row in load("hybrid")["policies"]:
        gap = row["difference"]
        size = abs(row["on teacher"])
        interval = (
            f"{100 * gap['mean'] / size:+.2f} % ({100 * gap['low'] / size:+.2f} to {100 * gap['high'] / size:+.2f})"
        )
        means = [f"{row[name]:.1f}" for name in ("on teacher", "on hybrid")]
        verdict = row["verdict"]
        rows.append([row["policy"], f"`{row['teacher']}`", *means, interval, verdict["returns"], verdict["motion"]])
    return markdown(["policy", "teacher", "on teacher", "on `hybrid`", "difference (95 %)", "returns", "motion"], rows)


HYBRID_TABLES = {"hybrid_errors": errors, "hybrid_speed": speed, "hybrid_policies": policies}
