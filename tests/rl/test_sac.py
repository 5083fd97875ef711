"""SAC of Stable-Baselines3: what it is told, what its replay buffer holds, runs that are stopped, what is learned."""

from __future__ import annotations

import csv
import inspect

import pytest
import torch

from nerd_gym.cli import main
from nerd_gym.policies.policy import Policy
from nerd_gym.rl import train as run
from nerd_gym.rl.configs import load_config
from nerd_gym.rl.evaluate import evaluate
from nerd_gym.rl.monitor import Monitor
from nerd_gym.rl.trainer import trainer_class
from tests.support.states import make_vec

pytest.importorskip("stable_baselines3")
CARTPOLE = "NeRD/Cartpole-v0"
LEARNED = 900  # return on warp; an untrained policy has about -200, PPO reaches 1200 in 3 million steps
WORDS = ["rl", "train", CARTPOLE, "--lib", "sb3", "--algo", "sac", "--threads", "1"]
# Rows of the curve are 1024 steps apart; the first random actions end within the second.
SMALL = ["--num-envs", "64", "--steps", "3072", "--set", "policy_kwargs.net_arch=[16]", "learning_starts=1500"]
SMALL += ["gradient_steps=2", "batch_size=32", "buffer_size=2048"]


class Stopped(Exception):
    """As if the process had been killed."""


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_config_has_the_librarys_own_defaults():
    from stable_baselines3 import SAC

    settings, config = load_config("sb3", "NeRD/Ant-v0", {}, algo="sac")
    own = {name: p.default for name, p in inspect.signature(SAC.__init__).parameters.items()}
    changed = {name for name, value in config.items() if value != own[name]}
    assert changed == {"policy", "policy_kwargs", "gradient_steps"} and settings.steps == 200_000
    assert config["policy_kwargs"] == {"net_arch": [256, 256], "activation_fn": "relu"}  # as SACPolicy has them


def test_the_replay_buffer_knows_true_last_observations_and_which_episodes_failed(tmp_path):
    env = make_vec(CARTPOLE, 8, backend="warp", max_episode_steps=150)
    _, config = load_config("sb3", CARTPOLE, {}, algo="sac")
    config |= {"learning_starts": 10**6}
    trainer = trainer_class("sb3", "sac")(Monitor(env, random_ages=False), config, tmp_path, 0, 1000)
    trainer.learn(3, lambda: None)
    rows = trainer.state()["buffer"]["rows"]
    assert len(rows["dones"]) == 3 * trainer.batch // 8
    after, before = rows["next_observations"][:-1], rows["observations"][1:]
    done, cut = rows["dones"].bool(), rows["timeouts"].bool()
    failed = done & ~cut
    assert failed.any() and cut.any() and not (cut & ~done).any()
    assert torch.equal(after[~done[:-1]], before[~done[:-1]])
    assert not (after[done[:-1]] == before[done[:-1]]).all(1).any()  # there a new episode starts
    x, rates = rows["next_observations"][..., 0].abs(), rows["next_observations"][..., 2:].abs().amax(-1)
    assert torch.equal((x > 4) | (rates > 10), failed)


@pytest.mark.parametrize("normalise", [False, True])
def test_a_stopped_run_goes_on_to_the_same_policy(normalise, tmp_path, monkeypatch):
    def train(out, *words):
        given = [*SMALL, "+normalize.norm_reward=true", *words] if normalise else [*SMALL, *words]
        assert main([*WORDS, *given, "--out", str(tmp_path / out)]) == 0
        return Policy.load(tmp_path / out / "policy.safetensors")

    def same(a, b):
        return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))

    whole = train("whole")
    assert not same(whole, train("other", "--seed", "1"))
    assert whole.output == "tanh" and whole.facts["algorithm"] == "sac" and whole.facts["steps"] == 3072
    assert whole.facts["command"].startswith(f"nerd-gym rl train {CARTPOLE} --lib sb3 --algo sac")
    assert (whole.std != 1).all() == normalise

    # Checkpoints after every iteration; killed in the second (among random actions) and in the third.
    monkeypatch.setattr(run, "CHECKPOINT_SECONDS", -1.0)
    read = Monitor.read
    for stop in (2, 2):
        reads = []

        def killed(self, stop=stop, reads=reads):
            reads.append(self)
            if len(reads) == stop:
                raise Stopped
            return read(self)

        monkeypatch.setattr(Monitor, "read", killed)
        with pytest.raises(Stopped):
            train("stopped")
    monkeypatch.setattr(Monitor, "read", read)
    assert same(whole, train("stopped"))
    curves = [list(csv.DictReader((tmp_path / out / "curve.csv").open())) for out in ("whole", "stopped")]
    assert [row["steps"] for row in curves[1]] == ["1024", "2048", "3072"]
    assert [row["return"] for row in curves[0]] == [row["return"] for row in curves[1]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algo", "td3"], "unknown algorithm 'td3' of sb3; valid: rl-games: ppo; sb3: ppo, sac"),
        (["--lib", "skrl"], "unknown algorithm 'sac' of skrl; valid: "),
        (["--set", "train_freq=0"], "train_freq is 0; valid: a count of steps"),
        (["--set", "policy_kwargs.activation_fn=gelu"], "unknown activation_fn 'gelu'"),
    ],
)
def test_wrong_words_are_named(words, message, tmp_path, capsys):
    assert main([*WORDS, "--out", str(tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_run_of_ppo_from_before_algorithms_goes_on(tmp_path):
    plan = run.RunPlan(CARTPOLE, "sb3", "warp", {}, 0, *load_config("sb3", CARTPOLE, {}))
    assert "algo" not in plan.asked() and plan.algo == "ppo"
    other = run.RunPlan(CARTPOLE, "sb3", "warp", {}, 0, plan.run, plan.config, algo="sac")
    assert other.asked()["algo"] == "sac"


@pytest.mark.slow
def test_cartpole_swings_up(tmp_path):
    """Some minutes of one core."""
    assert main([*WORDS, "--backend", "warp", "--out", str(tmp_path / "run")]) == 0
    (row,) = evaluate([tmp_path / "run" / "policy.safetensors"], ["warp"], episodes=64)
    assert row["return"]["mean"] > LEARNED
