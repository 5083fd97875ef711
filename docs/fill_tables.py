"""Write the tables of README.md and docs from the json files that commands of the project wrote.

python docs/fill_tables.py            rewrites the documents
python docs/fill_tables.py --check    fails if a table is not what the json says

A table stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
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
    physics = ["warp, reference=True", "neural, reference=True", "warp", "neural", "mujoco"]
    head = ["published policy", "published", *(", ".join(f"`{word}`" for word in p.split(", ")) for p in physics)]

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
    for _, facts in evaluations():
        results = facts["results"]
        if "position" in next(iter(next(iter(results.values())).values())):
            continue  # of a free base, in a table of its own
        for scenario, students in grouped(results).items():
            for measure, unit in facts["units"].items():
                for name, result in students.items():
                    if measure in result:
                        label = name.removeprefix(facts["robot"] + "-")
                        rows.append([facts["robot"], scenario, f"{measure} ({unit})", label, *figures(result[measure])])
    head = ["robot", "rollouts", "error", "model or yardstick", "mean over 100", "at 100", "at 1000"]
    return markdown(head, rows)


def evaluations() -> Iterator[tuple[str, dict]]:
    """Teacher and facts of the evaluation beside every packaged model."""
    for path in sorted(PRETRAINED.glob("*.json")):
        facts = json.loads(path.read_text())
        yield facts["teacher"] + ", `reference=True`" * (facts["physics"] == "reference"), facts


def legged_models() -> str:
    """What is known of the models of legged robots before any rollout, and rollouts that came apart."""
    rows = []
    for teacher, facts in evaluations():
        about = facts["models"].get("neural", {})
        if "r2" not in about:
            continue
        r2 = [f"{about['r2'][group]:.4f}" for group in ("linear", "angular", "joints")]
        diverged = sum(students["neural"]["diverged"] for students in facts["results"].values())
        network = f"{about['kind']}, {about['network']['depth']} x {about['network']['width']}"
        of = facts["rollouts"] * len(facts["results"])
        rows.append([facts["robot"], teacher, network, *r2, f"{diverged} of {of:,}"])
    return markdown(["robot", "teacher", "model", "linear", "angular", "joints", "diverged rollouts"], rows)


def legged() -> str:
    """Errors of the models of legged robots, from the evaluation beside each: mean / median."""
    rows = []
    for teacher, facts in evaluations():
        for scenario, students in facts["results"].items():
            for measure, unit in facts["units"].items():
                for name, result in students.items():
                    if measure not in result or "position" not in result:
                        continue
                    e = result[measure]
                    cells = [f"{e['mean over 100']:.2g}"]
                    cells += [f"{e[at]['mean']:.2g} / {e[at]['median']:.2g}" for at in ("10", "50", "100")]
                    rows.append([facts["robot"], teacher, scenario, f"{measure} ({unit})", name, *cells])
    head = ["robot", "teacher", "rollouts", "error", "model or yardstick", "mean over 100", "at 10", "at 50", "at 100"]
    return markdown(head, rows)


def legged_speed() -> str:
    """Speed of the models of legged robots: over their peers, and by batch size."""
    rows, sizes = [], []
    for row in load("neural_speed")["rows"]:
        if "by_batch_size" in row:
            sizes = list(row["by_batch_size"])
            over = [f"{row['over'][peer]:.2f}" for peer in ("warp", "mujoco", "transformer")]
            rows.append([row["env"], *over, *(f"{rate:,}" for rate in row["by_batch_size"].values())])
    head = ["environment", "over `warp`", "over `mujoco`", "over the paper's transformer"]
    return markdown([*head, *(f"N = {size}" for size in sizes)], rows)


def long_rollouts() -> str:
    """A thousand frames of the shipped policies in the learned models."""
    rows = []
    for row in load("long_rollouts")["rows"]:
        places = [f"{row[name]:.3f}" for name in ("deepest point (m)", "lowest base (m)")]
        rows.append([row["policy"], f"{row['diverged']}", *places, f"{100 * row['trust above 0.5']:.1f} %"])
    return markdown(["policy", "diverged", "deepest point (m)", "lowest base (m)", "frames with trust above 0.5"], rows)


def sensitivity() -> str:
    """What a state that is slightly off does to the teacher's next frame."""
    groups = ("linear", "angular", "joints")
    rows = [
        [row["robot"], row["off"], f"{row['by']:g}", *(f"{row[name]:.5f}" for name in groups)]
        for row in load("sensitivity")["rows"]
    ]
    return markdown(["robot", "what is off", "by", *groups], rows)


def cpu_hours() -> str:
    """What a policy costs in the learned model and in its teacher."""
    rows = []
    for row in load("cpu_hours")["rows"]:
        hours = [f"{60 * row[key]:.1f}" if row[key] else "-" for key in ("warp", "neural", "model")]
        ratios = [f"{row[f'warp over neural{more}']:.2f}" if row["neural"] else "-" for more in ("", " and model")]
        rows.append([row["policy"], f"{row['return']}", *hours, *ratios])
    head = ["policy", "return", "in `warp`", "in `neural`", "data and model", "`warp` over `neural`"]
    return markdown([*head, "data and model counted"], rows)


STUDIED = {"lr": "learning rate"}


def study(kind: str) -> str:
    """What data, steps, width, learning rate and features do for a legged robot's model."""
    rows = load(f"legged_study_{kind}")["rows"]
    base = rows[0]
    cells = []
    for row in rows:
        varied = [key for key in ("transitions", "steps", "width", "lr", "looks") if key in base]
        changed = [f"{STUDIED.get(key, key)} {row[key]:,}" for key in varied if row[key] != base[key]]
        changed += [f"without {row['without']}"] if row["without"] else []
        unexplained = [f"{row[f'unexplained {group}']:.4f}" for group in ("linear", "angular", "joints")]
        first = f"{base['transitions']:,} transitions, {base['steps']:,} steps, width {base['width']}, "
        first += f"{STUDIED['lr']} {base['lr']}" + (f", {base['looks']} looks" if base.get("looks") else "")
        errors = [f"{row[f'error over {frame}']:.3f}" for frame in (10, 50)]
        cells.append([", ".join(changed) or first, *unexplained, *errors, f"{row['cpu_seconds']:.0f}"])
    return markdown(["training", "linear", "angular", "joints", "over 10", "over 50", "CPU-seconds"], cells)


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


PUBLISHED = {  # means of the published policies, in the published simulator
    "cartpole/swingup": "1197, 1190, 1227",
    "franka/position": "89 to 91 (inside NeRD)",
    "franka/torque": "90 to 92 (inside NeRD)",
    "ant/run": "2754",
    "ant/spin": "2337",
    "ant/spin_track": "1672",
    "anymal/forward": "1321",
    "anymal/side": "1371",
}


def shipped() -> str:
    """The shipped policies on every backend, each cell the mean over seeds."""
    rows = []
    for group in load("policies")["groups"]:
        cells = {b: over_seeds(group, b) for b in ("warp", "neural", "mujoco", "neural:teacher=mujoco")}
        gap = "-"
        if cells["neural"]:
            gap = f"{100 * (cells['neural'][0] / cells['warp'][0] - 1):+.2f} %"
        name, count = group["policy"], len(group["seeds"])
        told = [
            f"{mean:.1f} ± {spread:.1f}, {100 * full:.0f} %" if c else "-"
            for c in cells.values()
            for mean, spread, full in [c or (0, 0, 0)]
        ]
        row = [name, f"`{group['trained in']}`, {count} seed{'s' * (count > 1)}", *told[:2], gap, *told[2:]]
        rows.append([*row, PUBLISHED.get(name, "-")])
    head = ["policy", "trained in", "on `warp`", "on `neural`", "`neural` over `warp`", "on `mujoco`"]
    head += ["on `neural` of `mujoco`", "published"]
    return markdown(head, rows)


def over_seeds(group: dict, backend: str) -> tuple[float, float, float] | None:
    """Mean of the seeds' mean returns, mean of their standard deviations, and the part of episodes at full length."""
    figures = [seed["figures"][backend] for seed in group["seeds"] if backend in seed["figures"]]
    if not figures:
        return None
    parts = ([f["return"]["mean"] for f in figures], [f["std"] for f in figures])
    return *(sum(x) / len(x) for x in parts), sum(f["full length"]["mean"] for f in figures) / len(figures)


def twins() -> str:
    """Training in the learned model beside training in its teacher."""
    groups = load("policies")["groups"]
    rows = []
    for group in groups:
        per_hour = {}
        twin = [g for g in groups if g["policy"] == group["policy"]]
        for g in twin:
            hours = sum(seed["cpu_seconds"] for seed in g["seeds"]) / len(g["seeds"]) / 3600
            per_hour[g["trained in"]] = over_seeds(g, "warp")[0] / hours
        mean = over_seeds(group, "warp")[0]
        wall, cpu = (sum(s[k] for s in group["seeds"]) / len(group["seeds"]) for k in ("wall_seconds", "cpu_seconds"))
        ratio = f"{per_hour['neural'] / per_hour['warp']:.2f}" if group["trained in"] == "neural" else ""
        steps = group["seeds"][0]["steps"]
        row = [group["policy"], f"`{group['trained in']}`", f"{steps / 1e6:.1f} M", f"{wall:.0f} s", f"{cpu:.0f} s"]
        rows.append([*row, f"{mean:.1f}", f"{per_hour[group['trained in']]:,.0f}", ratio])
    head = ["policy", "trained in", "steps", "wall", "CPU", "return on `warp`", "return per CPU-hour"]
    return markdown([*head, "`neural` over `warp`"], rows)


def adapters() -> str:
    """What adapters cost."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for row in load("adapter_overhead")["rows"]:
        rows.setdefault((row["env"], row["backend"]), {})[row["adapter"]] = row["ratio"]
    names = [name for name in next(iter(rows.values())) if name != "native"]
    body = [[env, f"`{backend}`", *(f"{ratio[n]:.3f}" for n in names)] for (env, backend), ratio in rows.items()]
    return markdown(["environment", "backend", *names], body)


TABLES = {
    "shipped": shipped,
    "twins": twins,
    "legged": legged,
    "legged_models": legged_models,
    "legged_speed": legged_speed,
    "long_rollouts": long_rollouts,
    "sensitivity": sensitivity,
    "cpu_hours": cpu_hours,
    "study": lambda: study("sketched"),
    "study_mlp": lambda: study("mlp"),
    "adapters": adapters,
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
