"""A thousand frames under policies in the learned models of legged robots, as results/long_rollouts.json.

Episodes never end here: a robot that has fallen lies there and goes on. A row that diverges, a point deep in the ground
or trust that is lost would show.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from train_policies import BACKENDS, ROOT, SHIPPED

from nerd_gym.data.task_rollouts import trained_for
from nerd_gym.envs.factory import endless_env
from nerd_gym.policies.agents import load_agent
from nerd_gym.registration import ENVS
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

RESULT = Path(__file__).parent / "results" / "long_rollouts.json"


@dataclass
class Args:
    """Play the shipped policies of legged robots for long."""

    policies: tuple[Path, ...] = ()
    """Others, as `nerd-gym rl train` writes them; by default the shipped ones of Ant and Anymal."""
    teacher: str = "warp"
    """Of the models."""
    frames: int = 1000
    """How long."""
    num_envs: int = 64
    """Robots of each policy."""
    seed: int = 0
    """Of the starts."""
    out: Path = RESULT
    """Where to write the json."""


def shipped_policies() -> list[Path]:
    """Of robots with a free base."""
    return [
        ROOT / "policies" / shipped.folder / f"{shipped.name}-{backend}-seed{seed}.safetensors"
        for shipped in SHIPPED
        for backend in BACKENDS
        for seed in shipped.seeds_of(backend)
        if RobotModel.named(ENVS[shipped.env_id].robot_name).free_base
    ]


@torch.inference_mode()
def rollout(path: Path, args: Args) -> dict[str, float | int | str]:
    """What happens to the robots of a policy."""
    env_id, options = trained_for(path)
    env = endless_env(env_id, args.num_envs, "neural", teacher=args.teacher, **options)
    agent = load_agent(path, env)
    obs, _ = env.reset(seed=args.seed)
    trusted, deepest, lowest, diverged = 0, torch.inf, torch.inf, 0
    for _ in range(args.frames):
        obs, _, _, _, info = env.step(agent.act(obs))
        trusted += int((info["model_trust"] > 0.5).sum())
        diverged += int(info["diverged"].sum())
        deepest = min(deepest, float(env.backend.contacts.distance.amin()))
        lowest = min(lowest, float(env.backend.q[:, 2].amin()))
    env.close()
    return {
        "policy": f"{path.parent.name}/{path.stem}",
        "diverged": diverged,
        "deepest point (m)": round(deepest, 4),
        "lowest base (m)": round(lowest, 4),
        "trust above 0.5": round(trusted / args.frames / args.num_envs, 4),
    }


def main(args: Args) -> None:
    rows = []
    for path in progress(args.policies or shipped_policies(), desc="policies"):
        rows.append(rollout(path, args))
        print(rows[-1], flush=True)
    about = {"frames": args.frames, "num_envs": args.num_envs, "seed": args.seed, "teacher": args.teacher}
    save(args.out, {"what": __doc__.splitlines()[0], "physics": "default", **about, "rows": rows})
    print(f"written: {args.out.name}")


if __name__ == "__main__":
    main(tyro.cli(Args))
