"""PPO of Ray's RLlib on an environment of the suite: register it under a name, and train.

    pip install 'nerd-gym[rllib]'
    python examples/rllib_ppo.py --backend mujoco --iterations 5

Everything runs in this process (`num_env_runners=0`); with more runners each makes environments of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import ray
import tyro
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune import register_env


@dataclass
class Args:
    """Options of the run."""

    env_id: str = "NeRD/Cartpole-v0"
    backend: str = "warp"
    iterations: int = 5
    steps: int = 1200  # in an iteration
    num_env_runners: int = 0  # processes that collect experience; 0: this one
    num_envs: int = 4  # of each of them
    seed: int = 0


def make_env(config: dict[str, Any]) -> gymnasium.Env:
    """One environment, in whatever process RLlib needs it."""
    import nerd_gym  # noqa: F401  makes the ids known, in a worker too

    options = dict(config)
    return gymnasium.make(options.pop("env_id"), **options)


def train(args: Args) -> list[dict[str, float]]:
    """Environment steps so far, episodes and mean return of each iteration."""
    register_env("nerd_gym", make_env)
    config = (
        PPOConfig()
        .environment("nerd_gym", env_config={"env_id": args.env_id, "backend": args.backend})
        .framework("torch")
        .env_runners(num_env_runners=args.num_env_runners, num_envs_per_env_runner=args.num_envs)
        .training(train_batch_size_per_learner=args.steps, minibatch_size=args.steps // 4, num_epochs=4, lr=1e-3)
        .debugging(seed=args.seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    seen = []
    for _ in range(args.iterations):
        result = algorithm.train()
        runners = result["env_runners"]
        seen.append(
            {
                "steps": float(runners["num_env_steps_sampled_lifetime"]),
                "episodes": float(runners["num_episodes_lifetime"]),
                "return": float(runners["episode_return_mean"]),
            }
        )
        print("  ".join(f"{name} {value:.6g}" for name, value in seen[-1].items()), flush=True)
    algorithm.stop()
    return seen


def main() -> None:
    """Ray itself gets one core, or one for each process that collects, and little memory."""
    args = tyro.cli(Args)
    cores = max(1, args.num_env_runners + 1 if args.num_env_runners else 1)
    ray.init(num_cpus=cores, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    train(args)
    ray.shutdown()


if __name__ == "__main__":
    main()
