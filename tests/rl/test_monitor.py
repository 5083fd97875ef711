"""The count of episodes under an adapter."""

from __future__ import annotations

import math

import pytest
import torch

from nerd_gym.rl.monitor import Monitor
from tests.support.device import away_from_the_host
from tests.support.states import make_vec


def actions(env, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(steps, *env.action_space.shape, generator=generator) - 1


def test_returns_are_those_of_finished_episodes():
    env = make_vec("NeRD/Cartpole-v0", 8, backend="warp", max_episode_steps=5)
    monitor = Monitor(env, random_ages=False)
    monitor.reset(seed=0)
    assert math.isnan(monitor.read()[0])
    rewards = [monitor.step(action)[1].clone() for action in actions(env, 13)]
    mean, length, episodes = monitor.read()
    # Two whole episodes of each row; what came after is under way.
    assert (length, episodes) == (5, 16)
    assert mean == pytest.approx(torch.stack(rewards[:10]).sum(0).mean().item() / 2, rel=1e-5)
    assert monitor.read() == (mean, length, episodes), "nothing new has finished"


def test_episodes_that_started_at_an_age_do_not_count():
    torch.manual_seed(0)
    env = make_vec("NeRD/Cartpole-v0", 64, backend="warp", max_episode_steps=20)
    monitor = Monitor(env, random_ages=True)
    monitor.reset(seed=0)
    ages = env.episode_steps.clone()
    assert len(ages.unique()) > 5
    for action in actions(env, 20):
        monitor.step(0 * action)
    episodes = monitor.read()[2]
    assert episodes == (ages == 0).sum()
    for action in actions(env, 20):
        monitor.step(0 * action)
    assert monitor.read()[2] >= 64


def test_a_state_goes_on_to_the_bit():
    env, other = (make_vec("NeRD/Ant-v0", 4, backend="warp", max_episode_steps=7) for _ in range(2))
    monitor = Monitor(env, random_ages=True)
    monitor.reset(seed=0)
    given = actions(env, 20)
    for action in given[:10]:
        monitor.step(action)
    resumed = Monitor(other, random_ages=True, state=monitor.state())
    resumed.reset(seed=99)
    for action in given[10:]:
        a, b = monitor.step(action), resumed.step(action)
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
    assert monitor.read() == resumed.read()


def test_a_step_never_waits_for_the_host():
    env = make_vec("NeRD/Cartpole-v0", 64, backend="neural", max_episode_steps=3)
    monitor = Monitor(env, random_ages=False)
    monitor.reset(seed=0)
    env.backend.host_checks = False
    given = actions(env, 5)

    with away_from_the_host():
        for action in given.unbind():
            monitor.step(action)
    assert monitor.read()[2] == 64
