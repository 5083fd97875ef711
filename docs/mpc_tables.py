"""The tables of the model-predictive trot, from benchmarks/results/mpc_trot.json."""

from __future__ import annotations

from statistics import mean

from collision_tables import markdown
from results_json import load


def trots() -> str:
    """Falls, speed and deviations from random starts."""
    facts = load("mpc_trot")
    rows = []
    for row in facts["trots"]:
        speed, sideways = row["speed"], max(map(abs, row["sideways"]))
        rows.append(
            [
                f"`{row['agent']}`",
                f"`{row['backend']}`",
                f"{row['falls']} of {facts['runs']}",
                f"{mean(speed):.3f} ({min(speed):.3f} to {max(speed):.3f})",
                f"{row['speed_std']:.3f}",
                f"{100 * sideways:.0f} cm",
                f"{row['yaw']:.3f} rad",
                f"{row['height']:.3f} ± {row['height_std']:.4f}",
                f"{100 * row['actions_at_limit']:.0f} %",
            ]
        )
    heads = [
        "mean speed (m/s)",
        "its deviation within a run (m/s)",
        "sideways",
        "yaw",
        "base height (m)",
        "actions at their limit",
    ]
    return markdown(["agent", "on", "falls", *heads], rows)


def commands() -> str:
    """The largest commands together."""
    rows = [
        [f"`{row['agent']}`", f"`{row['backend']}`", f"{row['falls']} of {row['robots']}"]
        + [f"{row['errors'][name]:.2f}" for name in ("speed", "side", "turn")]
        for row in load("mpc_trot")["commands"]["rows"]
    ]
    return markdown(["agent", "on", "falls", "forwards (m/s)", "sideways (m/s)", "turn (rad/s)"], rows)


def times() -> str:
    """Microseconds of QP and network for one robot."""
    found = load("mpc_trot")["times"]
    taken = found["microseconds"]
    rows = [
        ["assembling and solving, or one evaluation", taken["QP"], taken["network"], found["ratio"]],
        ["with what only it needs", taken["QP step"], taken["network step"], found["step ratio"]],
    ]
    lines = [[what, f"{qp:.0f} µs", f"{network:.0f} µs", f"{ratio:.1f}"] for what, qp, network, ratio in rows]
    return markdown(["", "QP", "network", "ratio"], lines)


MPC_TABLES = {"mpc_trots": trots, "mpc_commands": commands, "mpc_times": times}
