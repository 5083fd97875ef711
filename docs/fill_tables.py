"""Write the tables of README.md and docs from the json files that commands of the project wrote.

python docs/fill_tables.py            rewrites the documents
python docs/fill_tables.py --check    fails if a table is not what the json says

A table stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PRETRAINED = ROOT / "nerd_gym" / "dynamics" / "pretrained"


def load(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def policies() -> str:
    physics = ["warp, reference=True", "warp", "mujoco", "neural"]
    head = ["published policy", "published", "`warp`, `reference=True`", "`warp`", "`mujoco`", "`neural`"]

    def cell(figures: dict | None) -> str:
        if figures is None:
            return "-"
        return f"{figures['mean']:.0f} ± {figures['std']:.0f}, {100 * figures['full_length']:.0f} %"

    rows = [
        [r["policy"], str(r["published"]), *(cell(r.get(p)) for p in physics)]
        for r in load("published_policies")["rows"]
    ]
    return markdown(head, rows)


def drift() -> str:
    rows = []
    for backend, by_env in load("drift")["drift"].items():
        for env_id, frames in by_env.items():
            for name in next(iter(frames.values())):
                rows.append([env_id, backend, name, *(f"{frames[k][name]:.1e}" for k in ("10", "50", "100"))])
    return markdown(["environment", "backend", "median drift of", "10 frames", "50 frames", "100 frames"], rows)


def throughput() -> str:
    rows: dict[tuple[str, str], dict[int, float]] = {}
    for row in load("throughput")["rows"]:
        rows.setdefault((row["env"], row["engine"]), {})[row["num_envs"]] = row["env_steps_per_s"]
    sizes = sorted({n for rates in rows.values() for n in rates})
    body = [
        [env, engine, *(f"{rates[n]:,.0f}" if n in rates else "" for n in sizes)]
        for (env, engine), rates in rows.items()
    ]
    return markdown(["environment", "engine", *(f"N = {n}" for n in sizes)], body)


def ratios() -> str:
    return markdown(["ratio", "measured"], [[name, f"{value:.2f}"] for name, value in load("ratios")["ratios"].items()])


def recorded() -> str:
    rows = []
    for row in load("recorded_states")["rows"]:
        one_q, one_qd, far = (row[key] for key in ("q, 1 ahead", "qd, 1 ahead", "q, 20 ahead"))
        figures = [one_q["median"], one_q["max"], one_qd["median"], one_qd["p99"], one_qd["max"], far["median"]]
        rows.append([row["set"], row["rollout"], *(f"{x:.0e}" for x in figures)])
    head = ["recorded set", "rollout", "q median", "q max", "qd median", "qd 99 %", "qd max", "q median, 20 ahead"]
    return markdown(head, rows)


def learned() -> str:
    """Errors of learned models: from the evaluation beside each packaged model."""
    rows = []
    for path in sorted(PRETRAINED.glob("*.json")):
        facts = json.loads(path.read_text())
        results = facts["results"]
        for scenario, students in grouped(results).items():
            for measure, unit in facts["units"].items():
                for name, result in students.items():
                    if measure in result:
                        label = name.removeprefix(facts["robot"] + "-")
                        rows.append([facts["robot"], scenario, f"{measure} ({unit})", label, *figures(result[measure])])
    head = ["robot", "rollouts", "error", "model or yardstick", "mean over 100", "at 100", "at 1000"]
    return markdown(head, rows)


def arm() -> str:
    """The worked example of docs/learned-dynamics.md."""
    facts = json.loads((ROOT / "docs" / "three_link_arm.json").read_text())
    rows = [
        [scenario, name, *figures(result["hinges"])]
        for scenario, students in facts["results"].items()
        for name, result in students.items()
        if name != "teacher"
    ]
    return markdown(["rollouts", "model or yardstick", "mean over 100", "at 100", "at 1000"], rows)


def grouped(results: dict) -> dict:
    """Scenarios by name; the many random grounds as one, the worst of them."""
    out = {k: v for k, v in results.items() if "random ground" not in k}
    several = [v for k, v in results.items() if "random ground" in k]
    if several:
        measure = next(m for m in next(iter(several[0].values())) if m != "diverged")
        worst = {
            name: max((s[name] for s in several), key=lambda r: r[measure]["mean over 100"])
            for name in several[0]
            if name != "teacher"
        }
        out = {f"passive, worst of {len(several)} random grounds": worst} | out
    return dict(sorted(out.items()))


def figures(result: dict) -> list[str]:
    cells = [f"{result['mean over 100']:.0e}"]
    for at in ("100", "1000"):
        e = result.get(at)
        cells.append(f"{e['mean']:.0e} / {e['median']:.0e}" if e else "")
    return cells


def learned_speed() -> str:
    rows = [
        [r["env"], r["model"], f"{r['env_steps_per_s']:,}", f"{r['over']['warp']:.2f}", f"{r['over']['mujoco']:.2f}"]
        for r in load("neural_speed")["rows"]
    ]
    return markdown(["environment", "model", "env-steps/s", "over `warp`", "over `mujoco`"], rows)


TABLES = {
    "recorded": recorded,
    "policies": policies,
    "drift": drift,
    "throughput": throughput,
    "ratios": ratios,
    "learned": learned,
    "arm": arm,
    "learned_speed": learned_speed,
}


def filled(text: str) -> str:
    """The text with every table written anew."""

    def write(match: re.Match) -> str:
        name = match[1]
        if name not in TABLES:
            raise ValueError(f"unknown table {name!r}; valid: {', '.join(TABLES)}")
        return f"<!-- table: {name} -->\n{TABLES[name]()}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", write, text, flags=re.DOTALL)


if __name__ == "__main__":
    for document in (ROOT / "README.md", ROOT / "docs" / "learned-dynamics.md"):
        new = filled(document.read_text())
        if "--check" in sys.argv and new != document.read_text():
            sys.exit(f"{document.name} is not what the json files say: run python docs/fill_tables.py")
        document.write_text(new)
