"""Tasks on the differentiable engine: the returns of `warp`, and gradients that finite differences confirm."""

import pytest
import torch

from nerd_gym.augmented import AugmentedModel
from nerd_gym.augmented.training.task_gradient import task_rollout
from tests.support.grid import robot
from tests.support.states import make_vec

N, STEPS = 8, 4


def linear_policy(env, dtype=torch.float32):
    """Actions that depend on observations a little."""
    generator = torch.Generator().manual_seed(0)
    weight = 0.2 * torch.randn(env.task.obs_size, env.task.action_size, generator=generator).to(dtype)
    return weight.requires_grad_()


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("NeRD/Cartpole-v0", {}),
        ("NeRD/PendulumContact-v0", {"ground": "random"}),
        ("NeRD/Franka-v0", {"control": "position"}),
        ("NeRD/Ant-v0", {"task": "run"}),
        ("NeRD/Anymal-v0", {"task": "forward"}),
    ],
)
def test_returns_are_those_of_warp(env_id, options):
    env = make_vec(env_id, N, backend="warp", autoreset_mode="Disabled", **options)
    obs, _ = env.reset(seed=3)
    weight = linear_policy(env)
    found = task_rollout(env, lambda x: torch.tanh(x @ weight), STEPS)
    total = torch.zeros(N)
    for _ in range(STEPS):
        obs, reward, *_ = env.step(torch.tanh(obs @ weight).detach())
        total += reward
    torch.testing.assert_close(found.returns.detach(), total, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(found.q.detach(), env.backend.q, rtol=0, atol=2e-3)
    torch.testing.assert_close(found.observation.detach(), obs, rtol=2e-2, atol=2e-2)
    found.returns.mean().backward()
    assert weight.grad is not None and bool(weight.grad.isfinite().all()) and float(weight.grad.abs().max()) > 0


@pytest.mark.parametrize("env_id", ["NeRD/Cartpole-v0", "NeRD/Franka-v0"])
def test_gradients_are_finite_differences(env_id):
    env = make_vec(env_id, N, backend="warp")
    env.reset(seed=3)
    weight = linear_policy(env, torch.float64)

    def value(w):
        return task_rollout(env, lambda x: torch.tanh(x.double() @ w), STEPS, discount=0.9, dtype=torch.float64)

    value(weight).returns.mean().backward()
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        there, back = (value(weight + k * direction).returns.mean() for k in (1e-6, -1e-6))
    torch.testing.assert_close((weight.grad * direction).sum(), (there - back) / 2e-6, rtol=1e-5, atol=1e-8)


def test_the_environment_does_not_move_and_wrong_models_are_told():
    env = make_vec("NeRD/Cartpole-v0", N, backend="warp")
    env.reset(seed=3)
    before = env.backend.q.clone()
    task_rollout(env, lambda x: x[:, :1], 2)
    assert torch.equal(env.backend.q, before)
    with pytest.raises(ValueError, match="robot 'ant'"):
        task_rollout(env, lambda x: x[:, :1], 2, AugmentedModel(robot("ant")))
    with pytest.raises(ValueError, match="steps is 0"):
        task_rollout(env, lambda x: x[:, :1], 0)
    strike = make_vec("NeRD/Strike-v0", 2)
    strike.reset(seed=0)
    with pytest.raises(ValueError, match="no gradient"):
        task_rollout(strike, lambda x: x[:, :3], 1)
