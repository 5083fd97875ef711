"""Returns of the shipped policies on every backend, and what their training cost, as results/policies.json."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import tyro
from train_policies import BACKENDS, ROOT, SHIPPED, Shipped

from nerd_gym.backends import backends_for
from nerd_gym.dynamics.models.checkpoint import has_packaged_model
from nerd_gym.policies.policy import Policy
from nerd_gym.registration import ENVS
from nerd_gym.rl.evaluate import evaluate, returns_table
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "policies.json"
SECOND = "neural:teacher=mujoco"
TOLD = ("return", "length (steps)", "full length", "falls", "std")
FACTS = ("library", "library_version", "steps", "seed", "wall_seconds", "cpu_seconds", "training_return", "command")


@dataclass
class Args:
    """Evaluate the shipped policies."""

    policies: Path = ROOT / "policies"
    """Folder of the policies."""
    episodes: int = 512
    """Episodes of each policy on each backend."""
    seed: int = 1000
    """Seed of the starts; training has others."""
    only: str = ""
    """Only policies with this text in their name, e.g. ant/spin-warp; the others stay as the json has them."""
    backends: tuple[str, ...] = ()
    """Only these, e.g. neural after a model has changed; figures on others stay as the json has them."""
    out: Path = RESULT
    """Where to write the json."""


def seeds_of(shipped: Shipped, trained: str, args: Args, before: dict[int, dict]) -> list[dict]:
    """Facts and figures of a policy's seeds; `before` are those of the last time."""
    names = [f"{shipped.name}-{trained}-seed{seed}" for seed in shipped.seeds_of(trained)]
    paths = [args.policies / shipped.folder / f"{name}.safetensors" for name in names]
    backends = args.backends or backends_for(ENVS[shipped.env_id].robot({}))
    if not args.backends and has_packaged_model(ENVS[shipped.env_id].robot({}), "mujoco"):
        backends += (SECOND,)
    rows = evaluate(paths, backends, args.episodes, args.seed)
    print(returns_table(rows))
    seeds = []
    for seed, path in zip(shipped.seeds_of(trained), paths, strict=True):
        facts = Policy.load(path).facts
        about = {name: facts[name] for name in FACTS}
        old = before.get(seed, {})
        kept = old.get("figures", {}) if args.backends else {}
        if kept and {name: old[name] for name in FACTS} != about:
            raise SystemExit(f"{path.stem} is another than that of {args.out.name}; evaluate it without --backends")
        own = {r["backend"]: {k: r[k] for k in TOLD} for r in rows if r["policy"] == path.stem}
        seeds.append(about | {"figures": kept | own})
    return seeds


def main(args: Args) -> None:
    groups, old = [], []
    if (args.only or args.backends) and args.out.exists():
        before = json.loads(args.out.read_text())
        if (before["episodes"], before["seed"]) != (args.episodes, args.seed):
            raise SystemExit(f"{args.out.name} has {before['episodes']} episodes from seed {before['seed']}")
        old = before["groups"]
    for shipped in SHIPPED:
        for trained in BACKENDS:
            policy = f"{shipped.folder}/{shipped.name}"
            same = [g for g in old if (g["policy"], g["trained in"]) == (policy, trained)]
            if args.only not in f"{policy}-{trained}":
                groups += same
                continue
            earlier = {seed["seed"]: seed for g in same for seed in g["seeds"]}
            group = {"env": shipped.env_id, "policy": policy, "trained in": trained, "options": list(shipped.options)}
            groups.append(group | {"seeds": seeds_of(shipped, trained, args, earlier)})
    what = "first episodes of the shipped policies, deterministic actions, default physics"
    save(args.out, {"what": what, "episodes": args.episodes, "seed": args.seed, "groups": groups})
    print(f"written: {os.path.relpath(args.out)}")


if __name__ == "__main__":
    main(tyro.cli(Args))
