"""The policies that come with the project do what the project says of them."""

from __future__ import annotations

import csv
from pathlib import Path

import gymnasium
import pytest
import torch

from nerd_gym.policies.facts import environment_facts, trained_for
from nerd_gym.policies.policy import Policy
from nerd_gym.rl.evaluate import evaluate
from tests.support.grid import ROOT

FOLDER = ROOT / "policies"
FILES = sorted(FOLDER.glob("*/*.safetensors"))
ON_WARP = [path for path in FILES if path.parent.name != "strike"]
FIRST = list({path.parent / path.stem.rsplit("-", 1)[0]: path for path in reversed(ON_WARP)}.values())  # of the seeds
# Mean return on warp that no shipped policy is below, with 32 episodes.
LEAST = {
    "cartpole/swingup": 1100,
    "pendulum_contact/swingup": 260,
    "franka/position": 86,
    "franka/torque": 86,
    "ant/run": 2400,
    "ant/spin": 2300,
    "ant/spin_track": 1500,
    "anymal/forward": 1250,
    "anymal/side": 1280,
}
LEGGED = ("ant", "anymal")


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def task(path: Path) -> str:
    return name(path).split("-")[0]


def test_every_task_has_a_policy_and_every_learned_one_a_twin():
    learned = [p for p in FILES if "-neural-" in p.stem]
    assert {task(path) for path in FILES} == {*LEAST, "strike/route"}
    twins = [
        list(p.parent.glob(p.stem.rsplit("-", 1)[0].replace("-neural", "-warp-seed*.safetensors"))) for p in learned
    ]
    assert len(learned) == 19 and all(twins)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_facts_are_those_of_the_environment(path):
    facts = Policy.load(path).facts
    env_id, backend, options = trained_for(path)
    env = gymnasium.make_vec(env_id, num_envs=1, backend=backend, array="torch", **options)
    now = environment_facts(env)
    env.close()
    assert {key: facts.get(key) for key in now if key != "options"} == {k: v for k, v in now.items() if k != "options"}
    assert path.stem.endswith(f"-{backend}-seed{facts['seed']}")
    assert facts["command"].startswith(f"nerd-gym rl train {env_id} --lib ")
    curve = list(csv.DictReader(path.with_suffix(".csv").open()))
    assert int(curve[-1]["steps"]) == facts["steps"]


@pytest.mark.parametrize("path", FIRST, ids=name)
def test_it_moves_well(path):
    (row,) = evaluate([path], ["warp"], episodes=32, seed=2000)
    assert row["return"]["mean"] >= LEAST[task(path)]
    assert row["diverged"]["mean"] == 0
    if path.parent.name in LEGGED:
        assert row["full length"]["mean"] >= 0.9


@pytest.mark.parametrize("path", [p for p in FIRST if "-warp-" in p.stem], ids=name)
def test_onnx_gives_the_same_actions_on_observations_of_rollouts(path, tmp_path):
    pytest.importorskip("onnxruntime")
    from nerd_gym.policies.onnx import OnnxPolicy, export_onnx

    policy = Policy.load(path)
    export_onnx(policy, tmp_path / "policy.onnx")
    exported = OnnxPolicy.load(tmp_path / "policy.onnx")
    env_id, _, options = trained_for(path)
    env = gymnasium.make_vec(env_id, num_envs=8, backend="warp", array="torch", **options)
    obs, _ = env.reset(seed=0)
    for _ in range(125):  # 1,000 observations
        action = policy.act(obs)
        assert torch.allclose(exported.act(obs), action, rtol=0, atol=1e-5)
        obs, *_ = env.step(action)
    env.close()


@pytest.mark.parametrize("path", [p for p in FIRST if "-neural-" in p.stem], ids=name)
def test_it_does_as_well_in_the_learned_model_as_in_the_simulator(path):
    learned, simulated = (row["return"]["mean"] for row in evaluate([path], ["neural", "warp"], episodes=32, seed=2000))
    assert learned == pytest.approx(simulated, rel=0.1 if path.parent.name in LEGGED else 0.02)
