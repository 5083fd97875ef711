"""Adapters to RL libraries: they say what the native environment says, and the libraries conclude rightly from it."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import VectorWrapper

from nerd_gym import wrappers
from nerd_gym.wrappers.base import time_outs, torch_env
from tests.support.libraries import GAMMA, LAMBDA, LIBRARIES, rl_games_runner, skrl_returns
from tests.support.states import everyone, make_vec

each_library = pytest.mark.parametrize("library", LIBRARIES)


class Spy(VectorWrapper):
    """Keeps the observation before each step and what the native environment returned."""

    def __init__(self, env):
        super().__init__(env)
        self.log = []

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        self.obs = obs.clone()
        return obs, info

    def step(self, actions):
        result = self.env.step(actions)
        names = ("obs", "reward", "terminated", "truncated")
        kept = {name: x.clone() for name, x in zip(names, result)}
        self.log.append(kept | {"before": self.obs, "final_obs": result[4]["final_obs"].clone()})
        self.obs = kept["obs"]
        return result

    def __getitem__(self, name):
        return torch.stack([step[name] for step in self.log])


def cartpole(num_envs=3, horizon=3, backend="mujoco", **options):
    return make_vec("NeRD/Cartpole-v0", num_envs, backend=backend, max_episode_steps=horizon, **options)


def need(library):
    pytest.importorskip(LIBRARIES[library].package)


def connect(library, env, seed=0):
    """Reset the environment through its adapter; a function that steps it: obs, reward, done, time-outs, infos."""
    need(library)
    if library == "sb3":
        vec = wrappers.Sb3VecEnv(env)
        vec.seed(seed)
        vec.reset()

        def step(action):
            obs, reward, done, infos = vec.step(action.numpy())
            assert obs.dtype == reward.dtype == np.float32 and done.dtype == bool
            assert [bool(info) for info in infos] == done.tolist()
            return obs, reward, done, [info.get("TimeLimit.truncated", False) for info in infos], infos

    elif library == "rl_games":
        vec = wrappers.RlGamesVecEnv(env)
        vec.seed(seed)
        vec.reset()

        def step(action):
            obs, reward, done, infos = vec.step(action)
            return obs["obs"], reward, done, infos["time_outs"], infos

    elif library == "rsl_rl":
        vec = wrappers.RslRlVecEnv(env, seed=seed)

        def step(action):
            obs, reward, done, extras = vec.step(action)
            assert torch.equal(obs["policy"], vec.get_observations()["policy"])
            return obs["policy"], reward, done.bool(), extras["time_outs"], extras

    else:
        vec = wrappers.SkrlEnv(env, seed=seed)
        vec.reset()

        def step(action):
            obs, reward, terminated, truncated, infos = vec.step(action)
            assert vec.state() is None and vec.num_envs == env.num_envs
            return obs, reward.squeeze(1), (terminated | truncated).squeeze(1), truncated.squeeze(1), infos

    return step


# What an adapter says.


@each_library
def test_an_adapter_says_what_the_native_environment_says(library):
    env, native = Spy(cartpole()), cartpole()
    step = connect(library, env, seed=7)
    native.reset(seed=7)
    generator = torch.Generator().manual_seed(0)
    for k in range(1, 8):
        action = 2 * torch.rand(3, 1, generator=generator) - 1
        obs, reward, terminated, truncated, info = native.step(action)
        got_obs, got_reward, done, cut, infos = step(action)
        np.testing.assert_array_equal(got_obs, obs)
        np.testing.assert_array_equal(got_reward, reward)
        np.testing.assert_array_equal(done, terminated | truncated)
        np.testing.assert_array_equal(cut, truncated & ~terminated)
        assert np.all(np.asarray(cut) == (k % 3 == 0))
        if library == "sb3" and k % 3 == 0:
            final = np.stack([i["terminal_observation"] for i in infos])
            np.testing.assert_array_equal(final, info["final_obs"])
            assert not np.allclose(final, obs, atol=1e-3)
        elif library in ("rl_games", "skrl"):
            assert torch.equal(infos["final_obs"], info["final_obs"])


@each_library
@pytest.mark.parametrize("at_the_horizon", [False, True])
def test_a_cart_out_of_range_is_no_time_out(library, at_the_horizon):
    env = cartpole(num_envs=2, horizon=2)
    step = connect(library, env)
    action = torch.zeros(2, 1)
    if at_the_horizon:
        step(action)
    env.backend.reset(torch.tensor([True, False]), torch.tensor([[4.5, 0.0]] * 2), torch.zeros(2, 2))
    obs, _, done, cut, infos = step(action)
    assert np.asarray(done).tolist() == [True, at_the_horizon]
    assert np.asarray(cut).tolist() == [False, at_the_horizon]
    assert abs(obs[0][0]) <= 1  # the next episode
    if library == "sb3":
        assert infos[0]["terminal_observation"][0] > 4 and not infos[0]["diverged"]


@each_library
def test_a_diverged_row_is_a_time_out_and_reported(library):
    env = cartpole(num_envs=2, horizon=None)
    step = connect(library, env)
    _, reward, done, cut, infos = step(torch.tensor([[torch.nan], [0.0]]))
    assert np.asarray(done).tolist() == np.asarray(cut).tolist() == [True, False]
    assert reward[0] == 0
    assert infos[0]["diverged"] if library == "sb3" else infos["diverged"].tolist() == [True, False]


@pytest.mark.parametrize("library", ["rl_games", "rsl_rl", "skrl"])
def test_torch_libraries_get_the_tensors_themselves(library):
    env = cartpole()
    env_step, given = env.step, []

    def step(action):
        given.append(env_step(action))
        return given[-1]

    env.step = step
    obs, reward, *_ = connect(library, env)(torch.zeros(3, 1))
    assert obs.data_ptr() == given[0][0].data_ptr() and reward.data_ptr() == given[0][1].data_ptr()


def test_a_failure_on_the_last_step_is_no_time_out():
    terminated, truncated = torch.tensor([0, 1, 0, 1]).bool(), torch.tensor([0, 0, 1, 1]).bool()
    assert time_outs(terminated, truncated).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"array": "numpy"}, "array=.numpy.; RL libraries need"),
        ({"autoreset_mode": "Disabled"}, "DISABLED; this needs SAME_STEP"),
        ({"autoreset_mode": "NextStep"}, "NEXT_STEP; this needs SAME_STEP"),
    ],
)
def test_unfit_environments_are_refused(options, message):
    env = gymnasium.make_vec("NeRD/Cartpole-v0", num_envs=2, backend="mujoco", **{"array": "torch"} | options)
    with pytest.raises(ValueError, match=message):
        torch_env(env)
    with pytest.raises(TypeError, match="SyncVectorEnv is not a nerd_gym vector environment"):
        torch_env(gymnasium.make_vec("CartPole-v1", num_envs=1, vectorization_mode="sync"))


def test_adapters_are_imported_on_first_use():
    code = "import sys; from nerd_gym.wrappers import RecordVideo; print([m for m in {} if m in sys.modules])"
    packages = [library.package for library in LIBRARIES.values()]
    run = subprocess.run([sys.executable, "-c", code.format(packages)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match=r"no attribute 'Sb3'.*RecordVideo.*Sb3VecEnv"):
        wrappers.Sb3  # noqa: B018


# What a library concludes. With reward 1 and no end, the value is 1 / (1 - gamma); a critic that knows this must be
# told so again on every step that leads to a time-out or on, and nothing else where the episode fails.


def constant_task(horizon=3):
    """Row 0 fails on every second step, row 1 is cut on every third, row 2 fails on the step on which it is cut."""
    env = cartpole(num_envs=3, horizon=horizon)
    fails_after = torch.tensor([2, -1, 3])
    one = torch.ones(3)
    env.task.reward = lambda state, action, force: (one.clone(), {"alive": one})
    env.reward_terms = ("alive",)
    env.task.terminated = lambda state: env.episode_steps == fails_after
    return env


@each_library
def test_truncation_is_bootstrapped_and_termination_is_not(library, tmp_path):
    need(library)
    steps, value = 7, 1 / (1 - GAMMA)
    returns = LIBRARIES[library].returns(constant_task(), steps, 0.0, value, LAMBDA, tmp_path)
    # A failure k steps ahead takes away (gamma lambda)^k of what would have followed it.
    for row, ends in enumerate(([1, 3, 5], [], [2, 5])):
        for t in range(steps):
            ahead = [end - t for end in ends if end >= t]
            expected = value + (GAMMA * LAMBDA) ** ahead[0] * (1 - value) if ahead else value
            assert returns[t, row] == pytest.approx(expected, rel=1e-5), (row, t)


@pytest.mark.parametrize(
    ("library", "state"),
    [("sb3", "final_obs"), ("skrl", "final_obs"), ("rl_games", "before"), ("rsl_rl", "before")],
)
def test_which_state_a_time_out_is_bootstrapped_from(library, state, tmp_path):
    need(library)
    env = Spy(constant_task())
    returns = LIBRARIES[library].returns(env, 6, 1.0, 0.5, 0.0, tmp_path)
    seen = torch.where(env["truncated"][..., None], env[state], env["obs"])
    expected = 1 + GAMMA * (seen.sum(-1) + 0.5) * ~env["terminated"]
    assert env["terminated"].sum() == 5 and env["truncated"].sum() == 4
    torch.testing.assert_close(returns, expected, rtol=1e-5, atol=1e-5)


def test_skrl_alone_bootstraps_from_the_next_episode(tmp_path):
    need("skrl")
    env = Spy(constant_task())
    returns = skrl_returns(env, 6, 1.0, 0.5, 0.0, tmp_path, final=False)
    expected = 1 + GAMMA * (env["obs"].sum(-1) + 0.5) * ~env["terminated"]
    torch.testing.assert_close(returns, expected, rtol=1e-5, atol=1e-5)


# The libraries' own runners.


@each_library
@pytest.mark.parametrize("backend", ["mujoco", "neural"])
def test_ppo_of_the_library_trains(library, backend, tmp_path, monkeypatch):
    need(library)
    monkeypatch.chdir(tmp_path)
    env = Spy(cartpole(num_envs=8, horizon=10, backend=backend))
    before, after = LIBRARIES[library].train(env, 16, 3, tmp_path)
    assert len(env.log) == 3 * 16 and env["truncated"].sum() >= 8 * 3
    assert after.isfinite().all() and not torch.equal(before, after)
    # The environment is as good as new afterwards: rsl_rl steps it in inference mode.
    obs, _ = env.reset(seed=5)
    fresh, _ = cartpole(num_envs=8, horizon=10, backend=backend).reset(seed=5)
    assert torch.equal(obs, fresh)
    env.step(torch.zeros(8, 1))


def test_rl_games_makes_trains_and_plays_registered_environments(tmp_path, monkeypatch, capsys):
    need("rl_games")
    monkeypatch.chdir(tmp_path)
    wrappers.register_rl_games()
    config = {"env_config": {"env_id": "NeRD/Cartpole-v0", "backend": "mujoco", "max_episode_steps": 10}}
    runner = rl_games_runner(8, 4, tmp_path, iterations=2, **config)
    runner.run({"train": True})
    (checkpoint,) = tmp_path.glob("**/*.pth")
    player = {"games_num": 3, "env_config": dict(config["env_config"])}
    runner = rl_games_runner(8, 4, tmp_path, player=player, **config)
    runner.run({"train": False, "play": True, "checkpoint": str(checkpoint)})
    assert "steps: 10.0" in capsys.readouterr().out


def test_rsl_rl_reads_and_sets_the_age_of_episodes():
    need("rsl_rl")
    vec = wrappers.RslRlVecEnv(cartpole(num_envs=2, horizon=5), seed=0)
    assert vec.max_episode_length == 5 and vec.num_actions == 1 and vec.cfg["backend"] == "mujoco"
    vec.episode_length_buf = torch.tensor([4, 0])
    *_, extras = vec.step(torch.zeros(2, 1))
    assert extras["time_outs"].tolist() == [True, False] and vec.episode_length_buf.tolist() == [0, 1]
    assert extras["log"]["/reward/alive"] == 5


def test_sb3_wrappers_and_episode_statistics():
    need("sb3")
    from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

    env = Spy(cartpole(num_envs=4))
    monitored = VecMonitor(wrappers.Sb3VecEnv(env), info_keywords=("diverged",))
    vec = VecNormalize(monitored, gamma=GAMMA)
    vec.seed(2)
    vec.reset()
    for k in range(1, 7):
        _, _, done, infos = vec.step(np.zeros((4, 1), np.float32))
        np.testing.assert_array_equal(vec.get_original_obs(), env["obs"][-1])
        if k % 3 == 0:
            assert done.all()
            final = np.stack([info["terminal_observation"] for info in infos])
            np.testing.assert_allclose(final, vec.normalize_obs(env["final_obs"][-1].numpy()), rtol=1e-6)
            returns = env["reward"][-3:].sum(0).numpy()
            np.testing.assert_allclose([info["episode"]["r"] for info in infos], returns, rtol=1e-5)
            assert all(info["episode"]["l"] == 3 and info["TimeLimit.truncated"] for info in infos)
    assert vec.get_attr("horizon", [0, 1]) == [3, 3]
    assert vec.env_is_wrapped(Spy) == [True] * 4 and vec.env_is_wrapped(VecMonitor, 0) == [False]


def test_sb3_replay_buffer_holds_true_final_observations_and_time_outs():
    need("sb3")
    from stable_baselines3 import SAC

    env = Spy(constant_task())
    policy = {"net_arch": [4]}
    model = SAC("MlpPolicy", wrappers.Sb3VecEnv(env), buffer_size=60, learning_starts=100, policy_kwargs=policy)
    model.learn(6 * 3)
    buffer = model.replay_buffer
    np.testing.assert_array_equal(buffer.observations[:6], env["before"])
    np.testing.assert_array_equal(buffer.next_observations[:6], env["final_obs"])
    np.testing.assert_array_equal(buffer.dones[:6], env["terminated"] | env["truncated"])
    np.testing.assert_array_equal(buffer.timeouts[:6], env["truncated"] & ~env["terminated"])


def test_sb3_seed_is_used_once():
    need("sb3")
    vec = wrappers.Sb3VecEnv(cartpole())
    vec.seed(4)
    first, second = vec.reset(), vec.reset()
    native, _ = cartpole().reset(seed=4)
    np.testing.assert_array_equal(first, native)
    assert not np.allclose(first, second)
    vec.seed(4)
    np.testing.assert_array_equal(vec.reset(), first)


@pytest.mark.parametrize("backend", ["warp", "mujoco", "neural"])
def test_rsl_rl_leaves_no_inference_tensors_in_the_environment(backend):
    need("rsl_rl")
    env, twin = (cartpole(num_envs=2, backend=backend) for _ in range(2))
    vec, action = wrappers.RslRlVecEnv(env, seed=0), torch.full((2, 1), 0.3)
    twin.reset(seed=0)
    for _ in range(4):
        with torch.inference_mode():
            vec.step(action.clone())
        twin.step(action)
    for native in (env, twin):
        native.backend.reset(everyone(2), torch.zeros(2, 2), torch.zeros(2, 2))
    for _ in range(4):
        assert torch.equal(env.step(action)[0], twin.step(action)[0])
