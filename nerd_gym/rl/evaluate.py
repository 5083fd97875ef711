"""How well policies do, in the environment that their files name, on any backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nerd_gym.backends import parse_backend
from nerd_gym.compare.episodes import episode_env, first_episodes
from nerd_gym.compare.metrics import estimate, quantities
from nerd_gym.policies.agents import load_agent
from nerd_gym.policies.facts import of_task, trained_for
from nerd_gym.utils.arguments import check_counts, check_seed
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

Rows = list[dict[str, Any]]


def evaluate(policies: Sequence[Path], backends: Sequence[str] = (), episodes: int = 256, seed: int = 1000) -> Rows:
    """Every policy on every backend (by default on that of its training): one row each, with means and intervals."""
    if episodes < 2:
        raise ValueError(f"episodes is {episodes}; it must be at least 2")
    check_counts(episodes=episodes)
    if not policies:
        raise ValueError("no policy was given; valid: one or more files, as `nerd-gym rl train` writes them")
    check_seed(seed)
    jobs = []
    for path in policies:
        env_id, trained_in, options = trained_for(path)
        for label in backends or (trained_in,):
            name, own = parse_backend(label)
            given = own | of_task(env_id, options) if backends else options
            jobs.append((path, label, env_id, name, given))
    rows = []
    with progress(total=len(jobs), unit="policy", desc="evaluate") as bar:
        for path, label, env_id, name, options in jobs:
            bar.set_postfix_str(f"{path.stem} on {label}")
            env = episode_env(env_id, episodes, name, **options)
            try:
                played = first_episodes(env, load_agent(path, env), seed)
            finally:
                env.close()
            figures = estimate(quantities(played), seed=seed)
            rows.append({"policy": path.stem, "env": env_id, "backend": label, "episodes": episodes, "seed": seed})
            rows[-1] |= {"std": played.returns.std().item()} | {n: asdict(figure) for n, figure in figures.items()}
            bar.update()
    return rows


def returns_table(rows: Rows) -> str:
    """Rows as text."""
    lines = [
        f"{'policy':30s}{'backend':24s}{'return':>10s}{'95 %':>22s}{'std':>9s}{'length':>9s}{'full':>7s}{'falls':>7s}"
    ]
    for row in rows:
        mean, low, high = (row["return"][name] for name in ("mean", "low", "high"))
        shares = "".join(f"{100 * row[name]['mean']:5.0f} %" for name in ("full length", "falls"))
        line = f"{row['policy']:30s}{row['backend']:24s}{mean:10.1f}{f'{low:.1f} to {high:.1f}':>22s}{row['std']:9.1f}"
        lines.append(line + f"{row['length (steps)']['mean']:9.1f}" + shares)
        told = [name for name in row if name.endswith(", at the end")]
        lines += [f"{'':4s}{name}: {row[name]['mean']:.3g}" for name in told]
    return "\n".join(lines)


def save_rows(path: Path, rows: Rows) -> None:
    """Write the figures as json."""
    save(path, {"what": "first episodes, deterministic actions; means with 95 % bootstrap intervals", "rows": rows})
