"""Training runs: every library, from the command's words to a policy."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from nerd_gym.cli import main
from nerd_gym.dynamics.models.checkpoint import load_model, packaged_model, save_model
from nerd_gym.policies.policy import Policy
from nerd_gym.rl import train as run
from nerd_gym.rl.configs import load_config
from nerd_gym.rl.monitor import Monitor
from nerd_gym.rl.trainer import LIBRARIES, trainer_class
from nerd_gym.robots.model import RobotModel

LIBRARY = pytest.mark.parametrize("library", LIBRARIES)
WORDS = ["rl", "train", "NeRD/Cartpole-v0", "--backend", "neural", "--num-envs", "64", "--threads", "1"]


class Stopped(Exception):
    """As if the process had been killed."""


def train(out: Path, library: str, *words: str, steps: int = 4 * 32 * 64) -> Policy:
    batch = {"sb3": ["--set", "batch_size=512"]}.get(library, [])
    assert main([*WORDS, "--lib", library, "--steps", str(steps), "--out", str(out), *batch, *words]) == 0
    return Policy.load(out / "policy.safetensors")


def same(a: Policy, b: Policy) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@LIBRARY
def test_a_seed_gives_one_policy_and_a_stopped_run_goes_on_to_the_same(library, tmp_path, monkeypatch):
    pytest.importorskip(trainer_class(library).__module__)
    whole = train(tmp_path / "whole", library)
    assert not same(whole, train(tmp_path / "other", library, "--seed", "1"))

    # Checkpoints after every iteration; killed in the third, after the second was written.
    monkeypatch.setattr(run, "CHECKPOINT_SECONDS", -1.0)
    reads, read = [], Monitor.read

    def killed(self):
        reads.append(self)
        if len(reads) == 3:
            raise Stopped
        return read(self)

    monkeypatch.setattr(Monitor, "read", killed)
    with pytest.raises(Stopped):
        train(tmp_path / "stopped", library)
    assert not (tmp_path / "stopped" / "policy.safetensors").exists()
    monkeypatch.setattr(Monitor, "read", read)
    resumed = train(tmp_path / "stopped", library)
    assert same(whole, resumed)
    assert resumed.facts["steps"] == whole.facts["steps"] == 4 * 32 * 64

    rows = list(csv.DictReader((tmp_path / "stopped" / "curve.csv").open()))
    expected = list(csv.DictReader((tmp_path / "whole" / "curve.csv").open()))
    assert [row["steps"] for row in rows] == [str(k * 32 * 64) for k in (1, 2, 3, 4)]
    assert [row["return"] for row in rows] == [row["return"] for row in expected]
    assert list((tmp_path / "whole" / "log").rglob("events.out.tfevents.*")), "nothing for TensorBoard"
    assert not (tmp_path / "stopped" / "checkpoint.pt").exists()


def test_a_run_that_waits_goes_on_to_the_same_and_may_change_its_model(tmp_path):
    whole = train(tmp_path / "whole", "rl-games")
    until = ["--until", str(2 * 32 * 64)]
    for name, first, models in (("waiting", [], 1), ("refined", ["--option", f"model={other_model(tmp_path)}"], 2)):
        out = tmp_path / name
        assert main([*WORDS, "--steps", str(4 * 32 * 64), "--out", str(out), *first, *until]) == 0
        so_far = Policy.load(out / run.SO_FAR)
        assert so_far.facts["steps"] == 2 * 32 * 64
        assert main([*WORDS, "--steps", str(4 * 32 * 64), "--out", str(out), *first, *until]) == 0
        assert same(Policy.load(out / run.SO_FAR), so_far)
        assert not (out / run.FINISHED).exists()
        policy = train(out, "rl-games")
        assert policy.facts["steps"] == 4 * 32 * 64 and not (out / run.SO_FAR).exists()
        assert same(policy, whole) == (models == 1)
        assert len(policy.facts.get("models", [None])) == models
        assert policy.facts["dynamics"]["hash"] == whole.facts["dynamics"]["hash"]
    assert [model["from_step"] for model in policy.facts["models"]] == [0, 2 * 32 * 64]


def other_model(folder: Path) -> Path:
    """The packaged model of the cartpole with other inertias."""
    robot = RobotModel.named("cartpole")
    tensors, facts = load_model(packaged_model(robot, "warp"), robot)
    save_model(folder / "other.safetensors", tensors | {"parameters": 1.01 * tensors["parameters"]}, facts)
    return folder / "other.safetensors"


@LIBRARY
def test_facts_tell_where_a_policy_comes_from(library, tmp_path):
    facts = train(tmp_path / "run", library, steps=1).facts
    assert facts["env"] == "NeRD/Cartpole-v0" and facts["backend"] == "neural" and facts["seed"] == 0
    assert facts["library"] == library and facts["steps"] == 32 * 64 and len(facts["joint_names"]) == 2
    assert facts["command"].startswith(f"nerd-gym rl train NeRD/Cartpole-v0 --lib {library} --backend neural")
    assert str(tmp_path) not in str(facts)


def test_a_finished_run_is_left_alone_and_a_folder_belongs_to_one_plan(tmp_path, capsys):
    out = tmp_path / "run"
    train(out, "rl-games", steps=1)
    before = (out / "policy.safetensors").read_bytes()
    train(out, "rl-games", steps=1)
    assert (out / "policy.safetensors").read_bytes() == before
    assert main([*WORDS, "--steps", "1", "--out", str(out), "--seed", "7"]) == 2
    assert "another seed" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    assert main([*WORDS, "--out", str(tmp_path / "mine")]) == 2
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_damaged_checkpoint_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(Policy, "from_rl_games", None)  # so that the run ends before its policy is written
    with pytest.raises(TypeError):
        train(tmp_path / "run", "rl-games", steps=1)
    checkpoint = tmp_path / "run" / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    assert main([*WORDS, "--steps", "1", "--out", str(tmp_path / "run")]) == 2
    assert "checkpoint.pt is damaged; remove it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lib", "rllib"], "unknown library 'rllib'; valid: rl-games, sb3, rsl-rl, skrl"),
        (["--set", "params.config.gama=0.9"], "no params.config.gama in the config; valid: ppo"),
        (["--set", "run.robots=3"], "no run.robots"),
        (["--set", "gamma"], "'gamma' is not KEY=VALUE"),
        (["--option", "gravity=3"], "unknown option 'gravity'"),
        (["--config", "nowhere.yaml"], "no config at nowhere.yaml"),
        (["--backend", "bullet"], "bullet"),
        (["--steps", "9k", "--until", "9k"], "until is 9000; it must be from 1 to below the run's 9000 steps"),
    ],
)
def test_bad_words_are_named_and_nothing_is_written(words, message, tmp_path, capsys):
    assert main([*WORDS, "--out", str(tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "run.json").exists()


def test_sections_are_laid_over_the_default(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "default: {run: {num_envs: 2, steps: 9}, a: {b: 1, c: [1, 2]}}\n"
        "NeRD/Franka-v0: {a: {b: 2}}\n"
        "NeRD/Franka-v0 control=torque: {a: {c: [3]}, run: {steps: 7}}\n"
        "NeRD/Ant-v0: {a: {b: 5}}\n"
    )
    settings, config = load_config("sb3", "NeRD/Franka-v0", {"control": "torque"}, path, ("a.b=4", "+a.d.e=x"))
    assert (settings.num_envs, settings.steps) == (2, 7)
    assert config == {"a": {"b": 4, "c": [3], "d": {"e": "x"}}}
    settings, config = load_config("sb3", "NeRD/Franka-v0", {"control": "position"}, path)
    assert settings.steps == 9 and config == {"a": {"b": 2, "c": [1, 2]}}


@pytest.mark.parametrize("env_id", ["NeRD/PendulumContact-v0", "NeRD/Ant-v0", "NeRD/Anymal-v0", "NeRD/Franka-v0"])
@LIBRARY
def test_every_library_has_a_config_for_every_id(library, env_id):
    settings, config = load_config(library, env_id, {"task": "run", "control": "torque"})
    assert settings.steps >= 1_000_000 and settings.num_envs >= 64 and config
