"""Anymal stands and trots on both simulators."""

import pytest
import torch

from nerd_gym.control.forces import MpcForces
from nerd_gym.control.gait import TrotConfig, gait
from nerd_gym.control.srb_mpc import GRAVITY
from nerd_gym.control.trot import Trot
from nerd_gym.policies.agents import load_agent
from tests.support.states import make_vec

BACKENDS = ("warp", "mujoco")


def anymal(backend: str, num_envs: int = 2):
    return make_vec("NeRD/Anymal-v0", num_envs, backend=backend, autoreset_mode="Disabled")


def play(env, agent, steps: int, seed: int = 0) -> torch.Tensor:
    """The observations [T, N, 37], if nobody falls."""
    obs, _ = env.reset(seed=seed)
    seen = []
    for _ in range(steps):
        obs, _, terminated, _, _ = env.step(agent.act(obs))
        assert not terminated.any()
        seen.append(obs)
    return torch.stack(seen)


def test_a_foot_switches_when_the_gait_says():
    config = TrotConfig()
    time = torch.linspace(-0.3, 1.0, 200)
    now = gait(config, time)
    for late, switched in ((-1e-3, False), (1e-3, True)):
        then = torch.stack([gait(config, time + now.left[:, k] + late).stance[:, k] for k in range(4)], 1)
        assert ((then != now.stance) == switched).all()
    assert now.stance[time < 0].all() and (now.stance[time >= 0].sum(1) >= 2).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_standing_holds_the_weight(backend):
    env, config = anymal(backend), TrotConfig(settle=10.0)
    robot, actuation = env.task.robot, env.task.actuation
    forces, total = MpcForces(robot, actuation["pose"], config), []

    class Kept:
        reset = forces.reset

        def __call__(self, plan):
            found = forces(plan)
            total.append(found.sum(1))
            return found

    seen = play(env, Trot(robot, actuation, Kept(), torch.zeros(3), config), 90)
    weight = GRAVITY * float(robot.mj_model.body_mass.sum())
    mean = torch.stack(total[60:]).mean(0)
    torch.testing.assert_close(mean / weight, torch.tensor([[0.0, 0, 1]] * 2), atol=0.03, rtol=0)
    assert (seen[-1, :, 0] - config.height).abs().max() < 0.02 and seen[-1, :, 5:11].abs().max() < 0.05


@pytest.mark.parametrize("agent", ["mpc", "mpc-net"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_it_trots_as_told(backend, agent):
    env = anymal(backend)
    seen = play(env, load_agent(f"{agent}:speed=0.4,turn=0.2", env), 120, seed=123)
    _, speed, turn = seen[60:, :, 0], seen[60:, :, 5], seen[60:, :, 10]
    assert (speed.mean(0) - 0.4).abs().max() < 0.08 and (turn.mean(0) - 0.2).abs().max() < 0.04


def test_actions_yield_the_torques():
    env = anymal("mujoco", 4)
    one, two = (load_agent("mpc-net", env) for _ in range(2))
    obs, _ = env.reset(seed=0)
    for _ in range(40):
        action, torque = one.act(obs), two.torques(obs)
        given = env.task.joint_force(action, env.state)
        free = action.abs() < 1
        assert free.float().mean() > 0.25
        torch.testing.assert_close(given[free], torque[free], atol=1e-3, rtol=0)
        obs, *_ = env.step(action)


def test_rows_are_on_their_own_and_a_reset_forgets():
    env = anymal("mujoco", 3)
    together, alone = load_agent("mpc", env), load_agent("mpc", env)
    obs, _ = env.reset(seed=0)
    observations, actions = [], []
    for _ in range(30):
        observations.append(obs)
        actions.append(together.act(obs))
        obs, *_ = env.step(actions[-1])
    for seen, action in zip(observations, actions):
        torch.testing.assert_close(alone.act(seen[1:2]), action[1:2], atol=1e-4, rtol=0)
    together.reset(torch.tensor([False, True, False]))
    late = [together.act(torch.cat([obs[:1], seen[1:2], obs[2:]]))[1] for seen in observations]
    torch.testing.assert_close(torch.stack(late), torch.stack(actions)[:, 1], atol=1e-4, rtol=0)
    together.reset()
    assert all(torch.equal(together.act(seen), action) for seen, action in zip(observations, actions))
