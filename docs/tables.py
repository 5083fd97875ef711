"""The tables of README and docs: each function writes one from json files that a command wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from augmented_tables import AUGMENTED_TABLES
from collision_tables import COLLISION_TABLES
from hybrid_tables import HYBRID_TABLES
from mpc_tables import MPC_TABLES
from planning_tables import PLANNING_TABLES
from results_json import RESULTS, ROOT, load, modern, packaged_models
from strike_tables import STRIKE_TABLES

GROUPS = ("linear", "angular", "joints")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# Policies.

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


def over_seeds(group: dict, backend: str) -> tuple[float, float, float] | None:
    """Mean of the seeds' mean returns, mean of their standard deviations, and the share of full-length episodes."""
    figures = [seed["figures"][backend] for seed in group["seeds"] if backend in seed["figures"]]
    if not figures:
        return None
    means, spreads = [f["return"]["mean"] for f in figures], [f["std"] for f in figures]
    full = [f["full length"]["mean"] for f in figures]
    return sum(means) / len(means), sum(spreads) / len(spreads), sum(full) / len(full)


def mean_return(group: dict, backend: str) -> float:
    """Mean over the seeds; every policy was played on the backend."""
    figures = over_seeds(group, backend)
    if figures is None:
        raise ValueError(f"{group['policy']} was not evaluated on {backend}: python benchmarks/policies.py")
    return figures[0]


def gap(group: dict) -> str:
    """How much the return in the learned model exceeds that in its teacher."""
    percent = 100 * (mean_return(group, "neural") / mean_return(group, "warp") - 1)
    return f"{round(percent, 2) + 0.0:+.2f} %"  # the sum turns -0.0 into 0.0


def returns() -> str:
    """Policies that were trained in the learned model alone: one row per task."""
    rows = []
    for group in load("policies")["groups"]:
        if group["trained in"] == "neural":
            on = {backend: f"{mean_return(group, backend):.1f}" for backend in ("neural", "warp", "mujoco")}
            rows.append([group["policy"], str(len(group["seeds"])), on["neural"], on["warp"], gap(group), on["mujoco"]])
    return markdown(["policy", "seeds", "on `neural`", "on `warp`", "`neural` over `warp`", "on `mujoco`"], rows)


def shipped() -> str:
    """The shipped policies on every backend, each cell the mean over seeds."""
    rows = []
    for group in load("policies")["groups"]:
        cells = []
        for backend in ("warp", "neural", "mujoco", "neural:teacher=mujoco"):
            figures = over_seeds(group, backend)
            cells.append("-" if figures is None else "{:.1f} ± {:.1f}, {:.0%}".format(*figures).replace("%", " %"))
        name, count = group["policy"], len(group["seeds"])
        row = [name, f"`{group['trained in']}`, {count} seed{'s' * (count > 1)}", *cells[:2], gap(group), *cells[2:]]
        rows.append([*row, PUBLISHED.get(name, "-")])
    head = ["policy", "trained in", "on `warp`", "on `neural`", "`neural` over `warp`", "on `mujoco`"]
    return markdown([*head, "on `neural` of `mujoco`", "published"], rows)


def twins() -> str:
    """Training in the learned model beside training in its teacher."""
    groups = load("policies")["groups"]

    def seconds(group: dict, clock: str) -> float:
        return sum(seed[f"{clock}_seconds"] for seed in group["seeds"]) / len(group["seeds"])

    rows = []
    for group in groups:
        twin = [g for g in groups if g["policy"] == group["policy"]]
        per_hour = {g["trained in"]: mean_return(g, "warp") / (seconds(g, "cpu") / 3600) for g in twin}
        trained = group["trained in"]
        ratio = f"{per_hour['neural'] / per_hour['warp']:.2f}" if trained == "neural" else ""
        cost = [f"{group['seeds'][0]['steps'] / 1e6:.1f} M", *(f"{seconds(group, k):.0f} s" for k in ("wall", "cpu"))]
        figures = [f"{mean_return(group, 'warp'):.1f}", f"{per_hour[trained]:,.0f}", ratio]
        rows.append([group["policy"], f"`{trained}`", *cost, *figures])
    head = ["policy", "trained in", "steps", "wall", "CPU", "return on `warp`", "return per CPU-hour"]
    return markdown([*head, "`neural` over `warp`"], rows)


def cpu_hours() -> str:
    """The cost of a policy in the learned model and in its teacher."""
    rows = []
    for row in load("cpu_hours")["rows"]:
        minutes = [f"{60 * row[key]:.1f}" if row[key] else "-" for key in ("warp", "neural", "model")]
        ratios = [f"{row[f'warp over neural{more}']:.2f}" if row["neural"] else "-" for more in ("", " and model")]
        rows.append([row["policy"], f"{row['return']}", *minutes, *ratios])
    head = ["policy", "return", "in `warp`", "in `neural`", "data and model", "`warp` over `neural`"]
    return markdown([*head, "data and model counted"], rows)


# Learned models.


def error_cells(result: dict) -> list[str]:
    """Errors of rollouts of a thousand frames."""
    cells = [f"{result['mean over 100']:.0e}"]
    for at in ("100", "1000"):
        e = result.get(at)
        cells.append(f"{e['mean']:.0e} / {e['median']:.0e}" if e else "")
    return cells


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


def learned() -> str:
    """Errors of the models of robots with a fixed base."""
    rows = []
    for packaged in packaged_models():
        if packaged.free_base:
            continue
        facts, own = packaged.evaluation, packaged.name

        def label(name: str, models: dict = facts["models"], own: str = own) -> str:
            return (modern(models[name]["kind"]) if name in models else name) + " (packaged)" * (name == own)

        for scenario, students in grouped(facts["results"]).items():
            for measure, unit in facts["units"].items():
                for name, result in students.items():
                    if measure in result:
                        cells = error_cells(result[measure])
                        rows.append([facts["robot"], scenario, f"{measure} ({unit})", label(name), *cells])
    head = ["robot", "rollouts", "error", "model or yardstick", "mean over 100", "at 100", "at 1000"]
    return markdown(head, rows)


def legged_models() -> str:
    """R2 of the models of legged robots, and how many of their rollouts diverged."""
    rows = []
    for packaged in packaged_models():
        if not packaged.free_base:
            continue
        facts, own = packaged.evaluation, packaged.name
        about = facts["models"][own]
        network = f"{modern(about['kind'])}, {about['network']['depth']} x {about['network']['width']}"
        r2 = [f"{about['r2'][group]:.4f}" for group in GROUPS]
        diverged = sum(students[own]["diverged"] for students in facts["results"].values())
        of = facts["rollouts"] * len(facts["results"])
        rows.append([facts["robot"], packaged.teacher, network, *r2, f"{diverged} of {of:,}"])
    return markdown(["robot", "teacher", "model", *GROUPS, "diverged rollouts"], rows)


def legged() -> str:
    """Errors of the models of legged robots: mean / median."""
    rows = []
    for packaged in packaged_models():
        facts, own = packaged.evaluation, packaged.name
        for scenario, students in facts["results"].items():
            for measure, unit in facts["units"].items():
                for name, result in students.items():
                    if measure not in result or not packaged.free_base:
                        continue
                    e = result[measure]
                    cells = [f"{e['mean over 100']:.2g}"]
                    cells += [f"{e[at]['mean']:.2g} / {e[at]['median']:.2g}" for at in ("10", "50", "100")]
                    label = "`neural`" if name == own else name
                    rows.append([facts["robot"], packaged.teacher, scenario, f"{measure} ({unit})", label, *cells])
    head = ["robot", "teacher", "rollouts", "error", "model or yardstick", "mean over 100", "at 10", "at 50", "at 100"]
    return markdown(head, rows)


def long_rollouts() -> str:
    """A thousand frames of the shipped policies in the learned models."""
    rows = []
    for row in load("long_rollouts")["rows"]:
        places = [f"{row[name]:.3f}" for name in ("deepest point (m)", "lowest base (m)")]
        rows.append([row["policy"], f"{row['diverged']}", *places, f"{100 * row['trust above 0.5']:.1f} %"])
    return markdown(["policy", "diverged", "deepest point (m)", "lowest base (m)", "frames with trust above 0.5"], rows)


def sensitivity() -> str:
    """How much a small error of the state changes the teacher's next frame."""
    rows = [
        [row["robot"], row["off"], f"{row['by']:g}", *(f"{row[name]:.5f}" for name in GROUPS)]
        for row in load("sensitivity")["rows"]
    ]
    return markdown(["robot", "perturbed", "by", *GROUPS], rows)


STUDIED = ("transitions", "steps", "width", "lr", "pose_updates")


def study_rows(kind: str) -> list[dict[str, Any]]:
    """The trainings of a study; the first is the one that the others differ from."""
    rows = load(f"legged_study_{kind}")["rows"]
    return [{("pose_updates" if key == "looks" else key): value for key, value in row.items()} for row in rows]


def residual_study_rows() -> list[dict[str, Any]]:
    """Those of the default kind, whose json keeps its old name until the study is made anew."""
    return study_rows("residual" if (RESULTS / "legged_study_residual.json").exists() else "sketched")


def study(rows: list[dict[str, Any]]) -> str:
    """What data, steps, width, learning rate and network inputs do for a legged robot's model."""
    base = rows[0]
    varied = [key for key in STUDIED if base.get(key)]
    first = ", ".join(f"{modern(key)} {base[key]:,}" for key in varied)
    cells = []
    for row in rows:
        changed = [f"{modern(key)} {row[key]:,}" for key in varied if row[key] != base[key]]
        changed += [f"without {modern(row['without'])}"] if row["without"] else []
        unexplained = [f"{row[f'unexplained {group}']:.4f}" for group in GROUPS]
        errors = [f"{row[f'error over {frame}']:.3f}" for frame in (10, 50)]
        cells.append([", ".join(changed) or first, *unexplained, *errors, f"{row['cpu_seconds']:.0f}"])
    return markdown(["training", *GROUPS, "over 10", "over 50", "CPU-seconds"], cells)


def arm() -> str:
    """The worked example of docs/guide/learned-dynamics.md."""
    facts = json.loads((ROOT / "docs" / "results" / "three_link_arm.json").read_text())
    rows = [
        [
            scenario,
            modern(facts["models"][name]["kind"]) if name in facts["models"] else name,
            *error_cells(result["hinges"]),
        ]
        for scenario, students in facts["results"].items()
        for name, result in students.items()
        if name != "teacher"
    ]
    return markdown(["rollouts", "model or yardstick", "mean over 100", "at 100", "at 1000"], rows)


# Speed.


def learned_speed() -> str:
    """Env-steps per second of learned models."""
    rows = []
    for r in load("neural_speed")["rows"]:
        over = [f"{r['over'][peer]:.2f}" for peer in ("warp", "mujoco")]
        rows.append([r["env"], modern(r["model"]), f"{r['env_steps_per_s']:,}", *over])
    return markdown(["environment", "model", "env-steps/s", "over `warp`", "over `mujoco`"], rows)


def legged_speed() -> str:
    """Speed of the models of legged robots: over their peers, and by batch size."""
    facts = load("neural_speed")
    rows, sizes = [], []
    for row in facts["rows"]:
        if "by_batch_size" in row:
            # The batch size at which peers are timed too has one figure, here and in `learned_speed`.
            rates = row["by_batch_size"] | {str(facts.get("num_envs", 512)): row["env_steps_per_s"]}
            sizes = list(rates)
            over = [f"{row['over'][peer]:.2f}" for peer in ("warp", "mujoco", "transformer")]
            rows.append([row["env"], *over, *(f"{rate:,}" for rate in rates.values())])
    head = ["environment", "over `warp`", "over `mujoco`", "over the paper's transformer"]
    return markdown([*head, *(f"N = {size}" for size in sizes)], rows)


def throughput() -> str:
    """Env-steps per second of analytical backends by batch size."""
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
    """Speed ratios, each pair in one run."""
    return markdown(["ratio", "measured"], [[name, f"{value:.2f}"] for name, value in load("ratios")["ratios"].items()])


def engine_speed() -> str:
    """A substep of `warp` over one pass of Pinocchio's articulated-body algorithm."""
    head = ["robot", "warp substep (us)", "ABA (us)", "ratio"]
    return markdown(head, [[str(row[key]) for key in head] for row in load("engine_speed")["rows"]])


def two_checkouts() -> str:
    """A frame of `warp` before and after its kernel moved several robots per thread."""
    head = ["robot", "before (us)", "now (us)", "ratio"]
    return markdown(head, [[str(row[key]) for key in head] for row in load("two_checkouts")["rows"]])


def env_overhead() -> str:
    """What environments add to the steps of their backends."""
    rows = []
    for row in load("env_overhead")["rows"]:
        times = (f"{row[key]:.2f}" for key in ("backend step (us)", "env step (us)"))
        rows.append([row["env"], f"`{row['backend']}`", *times, f"{100 * row['added']:.0f} %"])
    return markdown(["environment", "backend", "backend's step (us)", "environment's step (us)", "added"], rows)


def first_use() -> str:
    """Compile and load times of the kernels of every robot's backends."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in load("first_use")["rows"]:
        rows.setdefault((row["robot"], row["backend"]), []).append(row)
    body = []
    for (robot, backend), kernels in rows.items():
        first = ", ".join(f"{row['kernel']} {row['first (s)']:.1f}" for row in kernels)
        body.append([robot, f"`{backend}`", first, f"{kernels[0]['second, all (s)']:.2f}"])
    return markdown(["robot", "backend", "first use, by kernel (s)", "second use, all (s)"], body)


def cuda_resources() -> str:
    """Registers, stack and spills of kernels on CUDA."""
    head = ["robot", "kernel", "architecture", "registers", "stack, B", "spilled, B", "resident threads"]
    keys = ("robot", "kernel", "arch", "registers", "stack", "spilled", "threads")
    return markdown(head, [[str(row[key]) for key in keys] for row in load("cuda_resources")["rows"]])


def adapters() -> str:
    """The cost of the adapters to RL libraries."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for row in load("adapter_overhead")["rows"]:
        rows.setdefault((row["env"], row["backend"]), {})[row["adapter"]] = row["ratio"]
    names = [name for name in next(iter(rows.values())) if name != "native"]
    body = [[env, f"`{backend}`", *(f"{ratio[n]:.3f}" for n in names)] for (env, backend), ratio in rows.items()]
    return markdown(["environment", "backend", *names], body)


# The published simulator, and how far backends differ.


def recorded() -> str:
    """Errors against the published simulator's recorded states."""
    rows = []
    for row in load("recorded_states")["rows"]:
        one_q, one_qd, far = (row[key] for key in ("q, 1 ahead", "qd, 1 ahead", "q, 20 ahead"))
        figures = [one_q["median"], one_q["max"], one_qd["median"], one_qd["p99"], one_qd["max"], far["median"]]
        rows.append([row["set"], row["rollout"], *(f"{x:.0e}" for x in figures)])
    head = ["recorded set", "rollout", "q median", "q max", "qd median", "qd 99 %", "qd max", "q median, 20 ahead"]
    return markdown(head, rows)


def published() -> str:
    """Returns of the published policies."""
    physics = ["warp, reference=True", "neural, reference=True", "warp", "neural", "mujoco"]
    head = ["published policy", "published", *(", ".join(f"`{word}`" for word in p.split(", ")) for p in physics)]

    def cell(figures: dict[str, Any] | None) -> str:
        if figures is None:
            return "-"
        return f"{figures['mean']:.0f} ± {figures['std']:.0f}, {100 * figures['full_length']:.0f} %"

    rows = [
        [r["policy"], str(r["published"]), *(cell(r.get(p)) for p in physics)]
        for r in load("published_policies")["rows"]
    ]
    return markdown(head, rows)


def drift() -> str:
    """How far backends drift apart under the same actions."""
    rows = []
    for backend, by_env in load("drift")["drift"].items():
        for env_id, frames in by_env.items():
            for name in next(iter(frames.values())):
                rows.append([env_id, backend, name, *(f"{frames[k][name]:.1e}" for k in ("10", "50", "100"))])
    return markdown(["environment", "backend", "median drift of", "10 frames", "50 frames", "100 frames"], rows)


# Where an equation is written: quantity, language, file, function.
EQUATIONS = (
    ("forward kinematics", "Warp", "nerd_gym/physics/warp/links.py", "place"),
    ("forward kinematics", "torch", "nerd_gym/physics/torch/engine.py", "pose"),
    ("forward kinematics", "torch, whole batches of bodies", "nerd_gym/robots/kinematics.py", "poses"),
    ("velocity and acceleration", "Warp", "nerd_gym/physics/warp/links.py", "move"),
    ("velocity and acceleration", "torch", "nerd_gym/physics/torch/engine.py", "motion"),
    ("inertia and bias force", "Warp", "nerd_gym/physics/warp/links.py", "weigh"),
    ("inertia and bias force", "torch", "nerd_gym/physics/torch/engine.py", "mass_and_bias"),
    ("mass matrix", "Warp", "nerd_gym/physics/warp/links.py", "inertia"),
    ("mass matrix", "torch", "nerd_gym/physics/torch/engine.py", "mass_matrix"),
    ("contact law: springs and dampers", "Warp", "nerd_gym/physics/warp/contact.py", "penalty_force"),
    ("contact law: springs and dampers", "torch", "nerd_gym/physics/torch/contact.py", "penalty"),
    ("contact law: MuJoCo's constraints", "Warp", "nerd_gym/physics/warp/constraint_law.py", "constraint_substeps"),
    ("contact law: a network", "Warp", "nerd_gym/physics/warp/contact.py", "network_force"),
    ("contact law: a network", "torch", "nerd_gym/physics/torch/contact_net.py", "forward"),
    ("joint limits", "Warp", "nerd_gym/physics/warp/joints.py", "limit_torque"),
    ("joint limits", "torch", "nerd_gym/physics/torch/engine.py", "limit_force"),
    ("factorisation of the mass matrix", "Warp", "nerd_gym/physics/warp/factor.py", "factor"),
    ("articulated-body recursion", "torch", "nerd_gym/physics/torch/engine.py", "acceleration"),
    ("inertial regressor", "torch", "nerd_gym/physics/torch/regressor.py", "forces"),
)


def line_of(file: str, function: str) -> int:
    """Where a function begins."""
    for number, line in enumerate((ROOT / file).read_text().splitlines(), 1):
        if line.lstrip().startswith(f"def {function}("):
            return number
    raise ValueError(f"{file} has no function {function!r}")


def equations() -> str:
    """The places where the equations of motion are written."""
    rows = [
        [quantity, language, f"`{function}`", f"[{file}:{line}](../../{file}#L{line})"]
        for quantity, language, file, function in EQUATIONS
        for line in [line_of(file, function)]
    ]
    return markdown(["equation", "language", "function", "where"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "equations": equations,
    "returns": returns,
    "shipped": shipped,
    "twins": twins,
    "cpu_hours": cpu_hours,
    "learned": learned,
    "legged_models": legged_models,
    "legged": legged,
    "long_rollouts": long_rollouts,
    "sensitivity": sensitivity,
    "study": lambda: study(residual_study_rows()),
    "study_mlp": lambda: study(study_rows("mlp")),
    "arm": arm,
    "learned_speed": learned_speed,
    "legged_speed": legged_speed,
    "throughput": throughput,
    "ratios": ratios,
    "engine_speed": engine_speed,
    "two_checkouts": two_checkouts,
    "env_overhead": env_overhead,
    "first_use": first_use,
    "cuda_resources": cuda_resources,
    "adapters": adapters,
    "recorded": recorded,
    "published": published,
    "drift": drift,
    **AUGMENTED_TABLES,
    **COLLISION_TABLES,
    **PLANNING_TABLES,
    **HYBRID_TABLES,
    **MPC_TABLES,
    **STRIKE_TABLES,
}
