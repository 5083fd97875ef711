"""`nerd-gym rl eval` and `rl play`: policies in the environment that their files name."""

from __future__ import annotations

import json

import gymnasium
import pytest
import torch

from nerd_gym.cli import main
from nerd_gym.policies.facts import environment_facts, trained_for
from nerd_gym.policies.policy import Policy
from nerd_gym.rl.evaluate import evaluate


@pytest.fixture
def policy(tmp_path):
    """A weak policy of Franka with torques, which was trained in neural."""
    env = gymnasium.make_vec("NeRD/Franka-v0", num_envs=1, backend="neural", array="torch", control="torque")
    weight = torch.full((7, 20), 0.01)
    made = Policy(torch.zeros(20), torch.ones(20), [(weight, torch.zeros(7))], "relu", facts=environment_facts(env))
    env.close()
    path = tmp_path / "weak.safetensors"
    made.save(path)
    return path


def test_a_policy_tells_where_it_belongs(policy):
    env_id, backend, options = trained_for(policy)
    assert (env_id, backend) == ("NeRD/Franka-v0", "neural")
    assert options["control"] == "torque" and "threads" not in options
    assert trained_for(policy, "mujoco")[1] == "mujoco"


def test_returns_are_those_of_first_episodes(policy):
    (row,) = evaluate([policy], ["warp"], episodes=4, seed=7)
    env = gymnasium.make_vec("NeRD/Franka-v0", num_envs=4, backend="warp", array="torch", control="torque")
    agent, total = Policy.load(policy), torch.zeros(4)
    obs, _ = env.reset(seed=7)
    for _ in range(128):
        obs, reward, *_ = env.step(agent.act(obs))
        total += reward
    env.close()
    assert row["return"]["mean"] == pytest.approx(total.mean().item(), rel=1e-5)
    assert row["return"]["low"] <= row["return"]["mean"] <= row["return"]["high"]
    assert row["full length"]["mean"] == 1 and row["length (steps)"]["mean"] == 128


def test_the_command_prints_a_table_and_writes_json(policy, tmp_path, capsys):
    out = tmp_path / "figures.json"
    words = ["rl", "eval", str(policy), "--backends", "warp", "neural", "--episodes", "4", "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "weak" in printed and "distance to target (m), at the end" in printed
    assert [row["backend"] for row in json.loads(out.read_text())["rows"]] == ["warp", "neural"]


def test_play_takes_environment_and_backend_from_the_file(policy, capsys):
    assert main(["rl", "play", str(policy), "--num-envs", "2"]) == 0
    assert "episodes 2" in capsys.readouterr().out


def test_a_policy_that_tells_nothing_is_refused(tmp_path, capsys):
    path = tmp_path / "bare.safetensors"
    Policy(torch.zeros(4), torch.ones(4), [(torch.zeros(1, 4), torch.zeros(1))], "relu").save(path)
    assert main(["rl", "eval", str(path)]) == 2
    assert "bare.safetensors does not tell its environment" in capsys.readouterr().err
