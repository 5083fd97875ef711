"""Returns of the published policies on each backend, through ReferenceObservation.

The checkpoints are not part of the project: --policies names the folder that holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

import nerd_gym  # noqa: F401  registers the ids
from nerd_gym.backends import backend_class
from nerd_gym.compare.episodes import Episodes, episode_env, first_episodes
from nerd_gym.dynamics.models.checkpoint import DEFAULT_TEACHER, has_packaged_model
from nerd_gym.policies.policy import Policy
from nerd_gym.registration import ENVS
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "published_policies.json"
# File, id, options, activation, environments, published mean return (in the published simulator).
POLICIES = (
    ("Cartpole_seed0", "NeRD/Cartpole-v0", {}, "tanh", 256, 1197),
    ("Ant_run_seed0", "NeRD/Ant-v0", {"task": "run"}, "relu", 64, 2754),
    ("Ant_spin_seed0", "NeRD/Ant-v0", {"task": "spin"}, "relu", 64, 2337),
    ("Ant_spin_track_seed0", "NeRD/Ant-v0", {"task": "spin_track"}, "relu", 64, 1672),
    ("Anymal_forward_walk_seed0", "NeRD/Anymal-v0", {"task": "forward"}, "relu", 64, 1321),
    ("Anymal_side_walk_seed0", "NeRD/Anymal-v0", {"task": "side"}, "relu", 64, 1371),
)
PHYSICS = {
    "warp, reference=True": {"backend": "warp", "reference": True},
    "warp": {"backend": "warp"},
    "mujoco": {"backend": "mujoco"},
    "neural": {"backend": "neural"},
    "neural, reference=True": {"backend": "neural", "reference": True},
}


def play(policy: Policy, env_id: str, num_envs: int, seed: int, backend: str, **options) -> Episodes:
    """Every environment's first episode in the published layout."""
    env = episode_env(env_id, num_envs, backend, "reference", **options)
    episodes = first_episodes(env, policy, seed)
    env.close()
    return episodes


def summary(episodes: Episodes) -> dict[str, float]:
    """Mean and standard deviation of the returns, mean length, and the part at full length."""
    return {
        "mean": round(episodes.returns.mean().item(), 1),
        "std": round(episodes.returns.std().item(), 1),
        "length": round(episodes.lengths.float().mean().item(), 1),
        "full_length": round(episodes.full_length.float().mean().item(), 3),
    }


@dataclass
class Args:
    """Play the published policies on every backend."""

    policies: Path
    """Folder with the published .pth files."""
    seed: int = 0
    """Seed of the starts."""
    out: Path = RESULT
    """Where to write the json."""


def main(args: Args) -> None:
    rows = []
    for name, env_id, options, activation, num_envs, published in progress(POLICIES, desc="policies"):
        policy = Policy.load(args.policies / f"{name}.pth", activation)
        row = {"policy": name, "env": env_id, "episodes": num_envs, "published": published}
        for label, physics in PHYSICS.items():
            reference, robot = physics.get("reference", False), ENVS[env_id].robot(options)
            learned = backend_class(physics["backend"]).learned
            if learned and not has_packaged_model(robot, DEFAULT_TEACHER, reference):
                continue
            row[label] = summary(play(policy, env_id, num_envs, args.seed, **physics, **options))
        rows.append(row)
    head = "".join(f"{label:>35s}" for label in PHYSICS)
    print(f"{'policy':28s}{'published':>10s}{head}")
    for row in rows:
        cells = ""
        for label in PHYSICS:
            if label not in row:
                cells += f"{'-':>35s}"
                continue
            figures = row[label]
            cells += f"{figures['mean']:14.0f} +- {figures['std']:4.0f} ({figures['length']:4.0f} steps)"
        print(f"{row['policy']:28s}{row['published']:10d}{cells}")
    what = "mean return of first episodes; `published` is in the published simulator: compare it with reference=True"
    save(args.out, {"what": what, "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
