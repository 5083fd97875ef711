"""Agents from whatever the user has."""

import os

import pytest
import torch

from nerd_gym.cli import main
from nerd_gym.policies import UnsafePolicy
from nerd_gym.policies.agents import load_agent
from nerd_gym.policies.facts import environment_facts
from nerd_gym.policies.onnx import export_onnx
from tests.support.policies import linear_policy, recurrent_policy
from tests.support.states import make_vec


@pytest.fixture(scope="module")
def cartpole():
    return make_vec("NeRD/Cartpole-v0", 4, backend="mujoco")


def test_files_of_one_policy_act_alike(cartpole, tmp_path):
    policy = linear_policy(cartpole, environment_facts(cartpole))
    policy.save(tmp_path / "p.safetensors")
    export_onnx(policy, tmp_path / "p.onnx")
    obs = torch.randn(4, 4)
    for source in (policy, policy.act, tmp_path / "p.safetensors", str(tmp_path / "p.onnx")):
        torch.testing.assert_close(load_agent(source, cartpole).act(obs), policy.act(obs), atol=1e-5, rtol=0)


def test_onnx_forgets_the_rows_whose_episode_ended(cartpole, tmp_path):
    policy = recurrent_policy(obs_size=4, action_size=1)
    export_onnx(policy, tmp_path / "p.onnx")
    agent = load_agent(tmp_path / "p.onnx", cartpole)
    first, second = torch.randn(2, 4, 4)
    for done in (torch.tensor([True, False, True, False]), None):
        for each in (agent, policy):
            each.reset()
            each.act(first)
            each.reset(done)
        torch.testing.assert_close(agent.act(second), policy.act(second), atol=1e-5, rtol=0)


def test_functions_are_imported_by_name_and_by_file(cartpole, tmp_path):
    (tmp_path / "mine.py").write_text("import torch\n\n\ndef act(obs):\n    return 2 * obs[:, :1]\n")
    obs = torch.randn(4, 4)
    assert torch.equal(load_agent(f"{tmp_path}/mine.py:act", cartpole).act(obs), 2 * obs[:, :1])
    assert torch.equal(load_agent("torch:sin", cartpole).act(obs[:, :1]), torch.sin(obs[:, :1]))
    with pytest.raises(ValueError, match=r"sin gives actions of shape \(4, 4\); they must have \(4, 1\)"):
        load_agent("torch:sin", cartpole).act(obs)
    with pytest.raises(ValueError, match="torch has no function 'nothing'"):
        load_agent("torch:nothing", cartpole)
    with pytest.raises(FileNotFoundError, match=r"no python file at .*yours.py"):
        load_agent(f"{tmp_path}/yours.py:act", cartpole)
    played = ["play", "NeRD/Cartpole-v0", "--backend", "mujoco", "--agent", f"{tmp_path}/mine.py:act", "--steps", "2"]
    assert main(played) == 0


def test_random_actions_come_again_after_a_reset_of_everything(cartpole):
    agent = load_agent("random", cartpole, seed=3)
    obs = torch.zeros(4, 4)
    first = agent.act(obs)
    agent.reset(torch.ones(4, dtype=torch.bool))
    assert not torch.equal(agent.act(obs), first)
    agent.reset()
    assert torch.equal(agent.act(obs), first) and first.abs().max() <= 1


def test_a_functions_own_reset_is_called(cartpole):
    class Counter:
        rows_reset = ()

        def __call__(self, obs):
            return torch.zeros(len(obs), 1)

        def reset(self, rows=None):
            self.rows_reset = (*self.rows_reset, rows)

    counter = Counter()
    load_agent(counter, cartpole).reset("rows")
    assert counter.rows_reset == ("rows",)


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
def test_policies_of_something_else_are_refused(cartpole, ending, tmp_path):
    path = tmp_path / f"p.{ending}"

    def save(policy):
        policy.save(path) if ending == "safetensors" else export_onnx(policy, path)

    save(linear_policy(cartpole, {"env": "NeRD/Ant-v0"}))
    with pytest.raises(ValueError, match=rf"p.{ending} is a policy of NeRD/Ant-v0; this is NeRD/Cartpole-v0"):
        load_agent(path, cartpole)
    spin, run = (make_vec("NeRD/Ant-v0", 1, backend="mujoco", task=task) for task in ("spin", "run"))
    save(linear_policy(spin, environment_facts(spin)))
    assert load_agent(path, spin).act(torch.zeros(1, 28)).shape == (1, 8)
    with pytest.raises(ValueError, match="is a policy of task='spin'; this is task='run'"):
        load_agent(path, run)
    blind = make_vec("NeRD/Franka-v0", 1, backend="mujoco", velocity=False)
    save(linear_policy(blind, {"env": "NeRD/Franka-v0"}))
    with pytest.raises(ValueError, match="takes 13 observations and gives 7 actions; NeRD/Franka-v0 has 20 and 7"):
        load_agent(path, make_vec("NeRD/Franka-v0", 1, backend="mujoco"))


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
def test_cut_files_are_refused(cartpole, ending, tmp_path):
    path = tmp_path / f"p.{ending}"
    policy = linear_policy(cartpole)
    policy.save(path) if ending == "safetensors" else export_onnx(policy, path)
    data = path.read_bytes()
    for size in (0, 7, len(data) // 2):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=rf"p.{ending} is not .*damaged"):
            load_agent(path, cartpole)


def test_a_pickle_that_runs_code_is_refused_and_leaves_no_trace(cartpole, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"model": {}, "trap": Trap()}, tmp_path / "p.pth")
    with pytest.raises(UnsafePolicy, match="nothing of it was run"):
        load_agent(tmp_path / "p.pth", cartpole, "relu")
    assert not (tmp_path / "sprung").exists()


def test_what_is_no_agent_is_named(cartpole):
    with pytest.raises(ValueError, match=r"unknown agent 'genius'; valid: zero, random, .*\.onnx.*module:function"):
        load_agent("genius", cartpole)
    with pytest.raises(ValueError, match="a int is no agent"):
        load_agent(3, cartpole)
    with pytest.raises(FileNotFoundError, match=r"no policy at gone.onnx"):
        load_agent("gone.onnx", cartpole)
