"""PPO in one file, in the manner of CleanRL, with Gymnasium's own vector wrappers around a batch.

    python examples/cleanrl_style.py --backend warp --iterations 60

NormalizeObservation takes NextStep autoreset alone. There an episode's last observation comes out of `step`, the next
step resets the row, and that step's action did nothing: the loss leaves such samples out.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
import tyro
from gymnasium.wrappers.vector import ClipAction, NormalizeObservation, NormalizeReward, RecordEpisodeStatistics
from torch import Tensor, nn

import nerd_gym  # noqa: F401  makes the ids known


@dataclass
class Args:
    """Options of the run."""

    env_id: str = "NeRD/Cartpole-v0"
    backend: str = "warp"
    num_envs: int = 64
    steps: int = 32  # of each row in an iteration
    iterations: int = 60
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    entropy: float = 0.0
    seed: int = 1


class Agent(nn.Module):
    """A Gaussian policy and a value, with hidden layers of their own."""

    def __init__(self, obs_size: int, action_size: int):
        super().__init__()

        def network(out: int, scale: float) -> nn.Sequential:
            layers = [nn.Linear(obs_size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out)]
            for layer, gain in zip(layers[::2], (2**0.5, 2**0.5, scale), strict=True):
                nn.init.orthogonal_(layer.weight, gain)
                nn.init.zeros_(layer.bias)
            return nn.Sequential(*layers)

        self.value, self.mean = network(1, 1.0), network(action_size, 0.01)
        self.log_std = nn.Parameter(torch.zeros(action_size))

    def distribution(self, obs: Tensor) -> torch.distributions.Independent:
        """Of actions [N, action_size]."""
        return torch.distributions.Independent(torch.distributions.Normal(self.mean(obs), self.log_std.exp()), 1)


def advantages(reward: Tensor, value: Tensor, terminated: Tensor, done: Tensor, gamma: float, lam: float) -> Tensor:
    """GAE [T, N] from value [T + 1, N]; one that was cut short goes on with the value of its last observation."""
    found, after = torch.zeros_like(reward), torch.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        delta = reward[t] + gamma * value[t + 1] * ~terminated[t] - value[t]
        found[t] = after = delta + gamma * lam * ~done[t] * after
    return found


def update(agent: Agent, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor], args: Args) -> float:
    """Some epochs over a batch of samples; returns the last loss."""
    loss = torch.zeros(())
    for _ in range(args.epochs):
        for rows in torch.randperm(len(batch["obs"])).chunk(args.minibatches):
            obs, action, log_prob, advantage, target = (batch[k][rows] for k in batch)
            distribution = agent.distribution(obs)
            ratio = (distribution.log_prob(action) - log_prob).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
            loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            loss = loss + 0.5 * (agent.value(obs)[:, 0] - target).square().mean()
            loss = loss - args.entropy * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    return float(loss.detach())


def train(args: Args) -> dict[str, list[float]]:
    """After each iteration: mean return of the last episodes, loss, episodes that ended and that were counted."""
    torch.manual_seed(args.seed)
    envs = gymnasium.make_vec(args.env_id, args.num_envs, backend=args.backend, autoreset_mode="NextStep")
    statistics = RecordEpisodeStatistics(envs, buffer_length=args.num_envs)  # of rewards as they are
    envs = NormalizeReward(NormalizeObservation(ClipAction(statistics)), gamma=args.gamma)
    agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.shape[0])
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    seen: dict[str, list[float]] = {"return": [], "loss": [], "ended": [], "counted": []}
    ended = 0
    obs = torch.as_tensor(envs.reset(seed=args.seed)[0])
    resets = torch.zeros(args.num_envs, dtype=torch.bool)  # rows that the next step resets
    for iteration in range(args.iterations):
        samples = []
        for _ in range(args.steps):
            with torch.no_grad():
                distribution = agent.distribution(obs)
                action = distribution.sample()
                value, log_prob = agent.value(obs)[:, 0], distribution.log_prob(action)
            after, reward, terminated, truncated, _ = envs.step(action.numpy())
            done = terminated | truncated
            flags = [torch.from_numpy(x) for x in (terminated, done)]
            samples.append((obs, action, log_prob, value, torch.as_tensor(reward, dtype=torch.float32), *flags, resets))
            obs, resets, ended = torch.as_tensor(after), flags[1], ended + int(done.sum())
        kept = [torch.stack(x) for x in zip(*samples, strict=True)]
        all_obs, actions, log_probs, values, rewards, failed, dones, ignored = kept
        with torch.no_grad():
            bootstrapped = torch.cat([values, agent.value(obs).T])
        found = advantages(rewards, bootstrapped, failed, dones, args.gamma, args.lam)
        columns = {"obs": all_obs, "action": actions, "log_prob": log_probs, "advantage": found}
        columns["target"] = found + values
        seen["loss"].append(update(agent, optimizer, {k: x[~ignored] for k, x in columns.items()}, args))
        seen["return"].append(float(np.mean(statistics.return_queue)) if statistics.return_queue else float("nan"))
        seen["ended"].append(ended)
        seen["counted"].append(int(statistics.episode_count))
        print(f"{(iteration + 1) * args.steps * args.num_envs:>8} steps  return {seen['return'][-1]:8.2f}", flush=True)
    envs.close()
    return seen


if __name__ == "__main__":
    train(tyro.cli(Args))
