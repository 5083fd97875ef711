"""Policies from RL libraries act as their library does; ONNX acts as torch does."""

import copy
import json
from functools import cache

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from nerd_gym.cli import main
from nerd_gym.policies.facts import environment_facts
from nerd_gym.policies.onnx import export_onnx
from nerd_gym.policies.play import play
from nerd_gym.policies.policy import ACTIVATIONS, Policy
from tests.support.libraries import LIBRARIES, rl_games_agent, rsl_rl_runner, skrl_trainer
from tests.support.policies import recurrent_policy, small_policy
from tests.support.states import make_vec

STEPS, ITERATIONS = 16, 3


def ant():
    return make_vec("NeRD/Ant-v0", 8, backend="mujoco", max_episode_steps=10)


def observations(policy, count=1000):
    """Random ones, wide enough to meet the normaliser's limits and those of the action."""
    generator = torch.Generator().manual_seed(1)
    return policy.mean + 4 * policy.std * torch.randn(count, policy.obs_size, generator=generator)


def check(policy, library_action):
    obs = observations(policy)
    expected = torch.as_tensor(library_action(obs)).detach().clamp(-1, 1)
    assert expected.abs().max() > 1e-3 and expected.std(0).min() > 1e-4
    torch.testing.assert_close(policy.act(obs), expected, rtol=0, atol=1e-6)


def need(library):
    pytest.importorskip(LIBRARIES[library].package)


# Trained for a few iterations, so that normalisers and weights are not what they started as.


@cache
def sb3_trained(normalise=True):
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecNormalize

    from nerd_gym.wrappers import Sb3VecEnv

    vec = VecNormalize(Sb3VecEnv(ant()), clip_obs=4.0) if normalise else Sb3VecEnv(ant())
    options = {"n_steps": STEPS, "batch_size": 64, "n_epochs": 2, "seed": 3, "device": "cpu"}
    kwargs = {"net_arch": [16, 8], "activation_fn": nn.ELU if normalise else nn.Tanh}
    return PPO("MlpPolicy", vec, learning_rate=1e-2, policy_kwargs=kwargs, **options).learn(ITERATIONS * STEPS * 8)


@pytest.mark.parametrize("normalise", [True, False])
def test_sb3(normalise):
    need("sb3")
    model = sb3_trained(normalise)
    vec = model.get_vec_normalize_env()
    policy = Policy.from_sb3(model, facts={"task": "run"})
    assert policy.activation == ("elu" if normalise else "tanh") and policy.clip == (4.0 if normalise else None)
    facts = {"library": "stable-baselines3", "steps": ITERATIONS * STEPS * 8, "seed": 3, "task": "run"}
    assert policy.facts == facts

    def act(obs):
        seen = vec.normalize_obs(obs.numpy()) if normalise else obs.numpy()
        return model.predict(seen, deterministic=True)[0]

    check(policy, act)


@pytest.mark.parametrize("normalise", [True, False])
def test_sac_of_sb3(normalise, tmp_path):
    """The mode of a squashed Gaussian: exact, in the policy, in its file and in its ONNX."""
    need("sb3")
    from stable_baselines3 import SAC
    from stable_baselines3.common.vec_env import VecNormalize

    from nerd_gym.policies.onnx import export_onnx
    from nerd_gym.wrappers import Sb3VecEnv

    vec = VecNormalize(Sb3VecEnv(ant()), clip_obs=4.0) if normalise else Sb3VecEnv(ant())
    options = {"buffer_size": 1000, "learning_starts": 16, "gradient_steps": 4, "seed": 3, "device": "cpu"}
    model = SAC("MlpPolicy", vec, learning_rate=1e-2, policy_kwargs={"net_arch": [16, 8]}, **options).learn(160)
    with torch.no_grad():
        model.actor.mu.weight *= 5  # so that actions reach both ends of tanh
    policy = Policy.from_sb3(model)
    assert policy.output == "tanh" and policy.activation == "relu" and policy.facts["steps"] == 160
    obs = observations(policy)
    seen = vec.normalize_obs(obs.numpy()) if normalise else obs.numpy()
    expected = torch.as_tensor(model.predict(seen, deterministic=True)[0])
    assert expected.abs().max() > 0.8 and expected.std(0).min() > 1e-3
    assert (policy.act(obs) - expected).abs().max() < 1e-6
    policy.save(tmp_path / "sac.safetensors")
    read = Policy.load(tmp_path / "sac.safetensors")
    assert torch.equal(read.act(obs), policy.act(obs)) and read.facts == policy.facts
    assert export_onnx(read, tmp_path / "sac.onnx") < 1e-6


def test_sb3_without_its_environment_takes_statistics_that_are_given(tmp_path):
    need("sb3")
    from stable_baselines3 import PPO

    model = sb3_trained()
    model.save(tmp_path / "model")
    alone = PPO.load(tmp_path / "model", device="cpu")
    policy = Policy.from_sb3(alone, model.get_vec_normalize_env())
    obs = observations(policy)
    assert torch.equal(policy.act(obs), Policy.from_sb3(model).act(obs))
    assert not torch.equal(policy.act(obs), Policy.from_sb3(alone).act(obs))


@pytest.mark.parametrize("normalise", [True, False])
def test_rl_games(normalise, tmp_path, monkeypatch):
    need("rl_games")
    monkeypatch.chdir(tmp_path)
    agent = rl_games_agent(ant(), STEPS, tmp_path, iterations=ITERATIONS, normalize_input=normalise)
    agent.train()
    agent.set_train()
    before = {name: value.clone() for name, value in agent.model.state_dict().items()}
    random = torch.random.get_rng_state()
    policy = Policy.from_rl_games(agent)
    assert torch.equal(random, torch.random.get_rng_state())
    assert policy.activation == "elu" and policy.facts["library"] == "rl-games"
    assert policy.facts["steps"] == ITERATIONS * STEPS * 8
    assert all(torch.equal(value, before[name]) for name, value in agent.model.state_dict().items())
    assert all(m.training for m in agent.model.modules())
    agent.set_eval()
    check(policy, lambda obs: agent.model({"is_train": False, "obs": obs, "prev_actions": None})["mus"])
    agent.save(str(tmp_path / "agent"))
    read = Policy.load(tmp_path / "agent.pth", "elu")
    obs = observations(policy)
    assert torch.equal(read.act(obs), policy.act(obs))


@pytest.mark.parametrize(
    ("rnn", "separate"),
    [
        ({"name": "lstm", "layers": 2, "layer_norm": True, "concat_input": True}, False),  # the published Franka's
        ({"name": "gru", "layers": 1, "concat_output": True}, True),
    ],
)
def test_recurrent_rl_games(rnn, separate, tmp_path, monkeypatch):
    need("rl_games")
    monkeypatch.chdir(tmp_path)
    network = {"rnn": {"units": 12, "before_mlp": True, **rnn}, "separate": separate}
    options = {"iterations": ITERATIONS, "normalize_input": True, "seq_length": 4, "network": network}
    agent = rl_games_agent(ant(), STEPS, tmp_path, **options)
    agent.train()
    random = torch.random.get_rng_state()
    policy = Policy.from_rl_games(agent)
    assert torch.equal(random, torch.random.get_rng_state())
    assert type(policy.memory.rnn).__name__ == rnn["name"].upper() and agent.model.training
    agent.save(str(tmp_path / "agent"))
    policy.save(tmp_path / "p.safetensors")
    same = [Policy.load(tmp_path / "agent.pth", "elu"), Policy.load(tmp_path / "p.safetensors")]
    agent.set_eval()
    state = tuple(torch.zeros(len(s), 100, 12) for s in agent.model.get_default_rnn_state())
    for obs in observations(policy).view(10, 100, -1):
        out = agent.model({"is_train": False, "obs": obs, "prev_actions": None, "rnn_states": state})
        action, state = policy.act(obs), out["rnn_states"]
        torch.testing.assert_close(action, out["mus"].detach().clamp(-1, 1), rtol=0, atol=1e-6)
        assert all(torch.equal(p.act(obs), action) for p in same)


def test_recurrent_rl_games_refusals(tmp_path, monkeypatch):
    need("rl_games")
    monkeypatch.chdir(tmp_path)
    network = {"rnn": {"name": "lstm", "layers": 1, "units": 12}}
    agent = rl_games_agent(ant(), STEPS, tmp_path, seq_length=4, network=network)
    with pytest.raises(ValueError, match="do not follow one another from 12 or"):
        Policy.from_rl_games(agent)


@pytest.mark.parametrize("normalise", [True, False])
def test_rsl_rl(normalise):
    need("rsl_rl")
    runner = rsl_rl_runner(ant(), STEPS, obs_normalization=normalise)
    runner.learn(ITERATIONS)
    policy = Policy.from_rsl_rl(runner)
    assert policy.clip is None and policy.facts == {"library": "rsl_rl", "iteration": ITERATIONS - 1}
    obs = observations(policy)
    assert torch.equal(Policy.from_rsl_rl(runner.alg.actor).act(obs), policy.act(obs))
    act = runner.get_inference_policy("cpu")
    check(policy, lambda obs: act({"policy": obs}))


@pytest.mark.parametrize("normalise", [True, False])
def test_skrl(normalise):
    need("skrl")
    from skrl.resources.preprocessors.torch import RunningStandardScaler

    env = ant()
    scaler = {"size": env.single_observation_space, "device": "cpu", "clip_threshold": 3.0}
    cfg = {"observation_preprocessor": RunningStandardScaler, "observation_preprocessor_kwargs": scaler}
    trainer = skrl_trainer(env, STEPS, ITERATIONS, **cfg if normalise else {})
    trainer.train()
    agent = trainer.agents
    policy = Policy.from_skrl(agent, facts=environment_facts(env))
    assert policy.clip == (3.0 if normalise else None) and policy.facts["env"] == "NeRD/Ant-v0"
    check(policy, lambda obs: agent.act(obs, None, timestep=0, timesteps=1)[1]["mean_actions"])


# What is refused.


def test_sb3_refusals():
    need("sb3")
    from stable_baselines3 import PPO, SAC, TD3

    from nerd_gym.wrappers import Sb3VecEnv

    vec = Sb3VecEnv(ant())
    with pytest.raises(ValueError, match="cannot convert a TD3Policy; valid: ActorCriticPolicy, as PPO and A2C"):
        Policy.from_sb3(TD3("MlpPolicy", vec, buffer_size=10, policy_kwargs={"net_arch": [4]}))
    with pytest.raises(ValueError, match="layers Hardtanh; valid: Linear, Tanh, ReLU, ELU"):
        Policy.from_sb3(SAC("MlpPolicy", vec, buffer_size=10, use_sde=True, policy_kwargs={"net_arch": [4]}))
    squashed = PPO("MlpPolicy", vec, n_steps=2, batch_size=16, use_sde=True, policy_kwargs={"squash_output": True})
    with pytest.raises(ValueError, match="the last one's output unchanged"):
        Policy.from_sb3(squashed)
    with pytest.raises(ValueError, match=r"layers GELU; valid: Linear, Tanh, ReLU, ELU"):
        Policy.from_sb3(PPO("MlpPolicy", vec, n_steps=2, batch_size=16, policy_kwargs={"activation_fn": nn.GELU}))
    with pytest.raises(ValueError, match=r"actions Discrete\(2\); valid: a Box from -1 to 1"):
        Policy.from_sb3(PPO("MlpPolicy", "CartPole-v1"))


def test_rsl_rl_refusals():
    need("rsl_rl")
    runner = rsl_rl_runner(ant(), STEPS, distribution_cfg={"class_name": "BetaDistribution"})
    with pytest.raises(ValueError, match="cannot convert the layers"):
        Policy.from_rsl_rl(runner)


def test_skrl_refusals():
    need("skrl")
    from skrl.models.torch import GaussianMixin, Model

    class Own(GaussianMixin, Model):
        def __init__(self, squash, between):
            box = {"observation_space": spaces.Box(-1, 1, (5,)), "action_space": spaces.Box(-1, 1, (2,))}
            Model.__init__(self, **box, device="cpu")
            GaussianMixin.__init__(self)
            self.first, self.last, self.squash, self.between = nn.Linear(5, 4), nn.Linear(4, 2), squash, between

        def compute(self, inputs, role):
            mean = self.last(self.between(self.first(inputs["observations"])))
            return torch.tanh(mean) if self.squash else mean, {"log_std": torch.zeros(2)}

    class Agent:
        def __init__(self, *args):
            self.policy = Own(*args)

    assert Policy.from_skrl(Agent(False, nn.ReLU())).activation == "relu"
    for agent, reason in (
        (Agent(True, nn.ReLU()), r"the layers \(\); valid: linear layers"),
        (Agent(False, torch.tanh), r"does more than its layers \(Linear\) do"),
        (Agent(False, nn.ELU(alpha=0.5)), "give other actions"),
        (Agent(False, nn.LayerNorm(4)), "layers LayerNorm; valid: Linear"),
        (Agent(False, nn.Identity()), r"the layers \(Linear, Linear\); valid"),
    ):
        with pytest.raises(ValueError, match=reason):
            Policy.from_skrl(agent)


def test_rl_games_files_of_other_networks_are_refused(tmp_path):
    weights = {"a2c_network.mu.weight": torch.zeros(2, 3), "a2c_network.mu.bias": torch.zeros(2)}
    for more, reason in (
        ({"a2c_network.actor_cnn.0.weight": torch.zeros(3, 3, 2, 2)}, "it has a2c_network.actor_cnn.0.weight"),
        ({"a2c_network.actor_mlp.linears.0.weight": torch.zeros(3, 3)}, "it has a2c_network.actor_mlp.linears"),
        ({"a2c_network.actor_mlp.0.weight": torch.zeros(3, 3)}, "it has no a2c_network.actor_mlp.0.bias"),
        (
            {"a2c_network.actor_mlp.0.weight": torch.zeros(3), "a2c_network.actor_mlp.0.bias": torch.zeros(3)},
            "do not follow one another",
        ),
    ):
        torch.save({"model": weights | more}, tmp_path / "x.pth")
        with pytest.raises(ValueError, match=reason):
            Policy.load(tmp_path / "x.pth", "elu")


# Playing, facts and ONNX.


@pytest.mark.parametrize("layout", ["native", "reference"])
def test_a_recurrent_policy_is_played_and_forgets_at_the_end_of_an_episode(layout, tmp_path, monkeypatch):
    size = make_vec("NeRD/Cartpole-v0", 1, backend="mujoco").single_observation_space.shape[0]
    recurrent_policy(obs_size=size, action_size=1).save(tmp_path / "p.safetensors")
    forgotten, reset = [], Policy.reset
    probe = torch.ones(2, size)
    fresh = Policy.load(tmp_path / "p.safetensors").act(probe)

    def spy(self, rows=None):
        reset(self, rows)
        like_new = (copy.deepcopy(self).act(probe) - fresh).abs().amax(-1) < 1e-6
        forgotten.append((rows.tolist(), like_new.tolist()))

    monkeypatch.setattr(Policy, "reset", spy)
    options = {"max_episode_steps": 3}
    agent = str(tmp_path / "p.safetensors")
    play("NeRD/Cartpole-v0", backend="mujoco", agent=agent, steps=7, num_envs=2, layout=layout, options=options)
    assert [rows == [True, True] for rows, _ in forgotten] == [False, False, True] * 2 + [False]
    assert all(rows == like_new for rows, like_new in forgotten)


def test_facts_of_an_environment_are_kept(tmp_path):
    env = make_vec("NeRD/Ant-v0", 2, backend="warp", task="spin", reference=True)
    policy = small_policy()
    policy.save(tmp_path / "p.safetensors", environment_facts(env) | {"seed": 7, "command": "train it"})
    facts = Policy.load(tmp_path / "p.safetensors").facts
    assert facts["env"] == "NeRD/Ant-v0" and facts["options"] == {"task": "spin", "reference": True}
    assert facts["backend"] == "warp" and facts["robot_hash"] == env.task.robot.hash and facts["seed"] == 7
    assert facts["joint_names"] == list(env.task.robot.joint_names) and facts["frame_dt"] == env.task.frame_dt
    learned = environment_facts(make_vec("NeRD/Cartpole-v0", 1, backend="neural"))
    assert learned["dynamics"]["teacher"] == "warp" and json.dumps(learned)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("clip", [2.0, None])
def test_onnx_acts_as_torch_does(activation, clip, tmp_path, capsys):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    policy = small_policy(activation, clip)
    policy.save(tmp_path / "p.safetensors", {"env": "NeRD/Ant-v0", "frame_dt": 0.02, "joint_names": ["a", "b"]})
    out = tmp_path / "new" / "p.onnx"
    assert main(["export", str(tmp_path / "p.safetensors"), "--onnx", str(out)]) == 0
    assert f"written: {out}" in capsys.readouterr().out
    session = runtime.InferenceSession(out, providers=["CPUExecutionProvider"])
    obs = observations(policy)
    for batch in (obs, obs[:1]):
        (actions,) = session.run(["actions"], {"obs": batch.numpy()})
        np.testing.assert_allclose(actions, policy.act(batch), rtol=0, atol=1e-5)
    facts = session.get_modelmeta().custom_metadata_map
    assert facts["env"] == "NeRD/Ant-v0" and facts["activation"] == activation
    assert json.loads(facts["joint_names"]) == ["a", "b"] and json.loads(facts["frame_dt"]) == 0.02


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize(("norm", "concat", "depth"), [(True, False, 2), (False, True, 1)])
def test_onnx_remembers_as_torch_does(kind, norm, concat, depth, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    policy = recurrent_policy(kind, norm, concat, depth)
    export_onnx(policy, tmp_path / "p.onnx")
    session = runtime.InferenceSession(tmp_path / "p.onnx", providers=["CPUExecutionProvider"])
    names = ["h", "c"] if kind is nn.LSTM else ["h"]
    state = {name: np.zeros((depth, 100, 6), np.float32) for name in names}
    for obs in observations(policy).view(10, 100, -1):
        actions, *after = session.run(["actions", *(f"{n}_out" for n in names)], {"obs": obs.numpy(), **state})
        state = dict(zip(names, after))
        np.testing.assert_allclose(actions, policy.act(obs), rtol=0, atol=1e-5)


def test_onnx_that_acts_otherwise_is_not_written(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    policy = small_policy()
    policy.save(tmp_path / "p.safetensors")
    command = ["export", str(tmp_path / "p.safetensors"), "--onnx"]
    assert main([*command, str(tmp_path / "p.txt")]) == 2
    assert "cannot export to 'p.txt'; valid ending: .onnx" in capsys.readouterr().err
    monkeypatch.setattr(Policy, "act", lambda self, obs: self.network(obs))
    assert main([*command, str(tmp_path / "p.onnx")]) == 2
    assert "onnxruntime's actions are off by" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["p.safetensors"]
