import gymnasium
import numpy as np
import pytest

from tests.support.grid import GRID


@pytest.mark.parametrize(("env_id", "backend"), GRID)
def test_returns_plain_numbers_and_numpy(env_id, backend):
    env = gymnasium.make(env_id, backend=backend)
    obs, info = env.reset(seed=0)
    assert obs.dtype == np.float32 and env.observation_space.contains(obs)
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert type(reward) is float and type(terminated) is bool and type(truncated) is bool
    assert all(type(term) is float for term in info["reward_terms"].values())
    assert info["diverged"] is False
    snapshot = env.unwrapped.snapshot()
    ahead = [env.step(np.ones(env.action_space.shape, np.float32))[0] for _ in range(3)]
    env.unwrapped.restore(snapshot)
    again = [env.step(np.ones(env.action_space.shape, np.float32))[0] for _ in range(3)]
    np.testing.assert_array_equal(ahead, again)
    env.close()


def test_time_limit_and_wrong_action():
    env = gymnasium.make("NeRD/Cartpole-v0", backend="mujoco", max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(np.zeros(1, np.float32))[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(ValueError, match=r"action has shape \(2,\); it must have \(1,\)"):
        env.unwrapped.step(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"'array' is for gymnasium.make_vec"):
        gymnasium.make("NeRD/Cartpole-v0", array="torch")
