"""Speed and base height of the trot: benchmarks/results/mpc_trot.json -> docs/pictures/trot.png.

python docs/plot_trot.py
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from results_json import ROOT, load

from nerd_gym.utils.files import atomic_write

STYLES = {"mpc": "-", "mpc-net": "--"}
COLOURS = {"warp": "tab:blue", "mujoco": "tab:green"}


def main() -> None:
    """Two panels, a line for each agent on each backend."""
    facts = load("mpc_trot")
    figure, axes = pyplot.subplots(2, 1, figsize=(8, 5), sharex=True)
    for axis, name, unit in zip(axes, ("speed", "height"), ("m/s", "m")):
        for row in facts["trots"]:
            course = row["course"]
            style = {"color": COLOURS[row["backend"]], "linestyle": STYLES[row["agent"]], "linewidth": 1.2}
            times = [(k + 1) * course["dt"] for k in range(len(course[name]))]
            axis.plot(times, course[name], label=f"{row['agent']} on {row['backend']}", **style)
        axis.set_ylabel(f"{name} ({unit})")
        axis.grid(alpha=0.3)
    axes[0].axhline(facts["command"], color="black", linewidth=0.8, linestyle=":")
    axes[0].legend(fontsize=8, ncols=2)
    axes[1].set_xlabel("time (s)")
    figure.tight_layout()
    with atomic_write(ROOT / "docs" / "pictures" / "trot.png") as part:
        figure.savefig(part, dpi=100, format="png")


if __name__ == "__main__":
    main()
