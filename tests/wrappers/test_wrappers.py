import gymnasium
import numpy as np
import pytest
import torch

from nerd_gym.wrappers import RecordEpisodeStatistics, RecordVideo, ReferenceObservation, SingleReferenceObservation
from tests.support.states import make_vec


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@pytest.mark.parametrize("array", ["numpy", "torch"])
def test_statistics_are_the_sum_and_count_of_the_rewards(array, mode):
    env = RecordEpisodeStatistics(
        gymnasium.make_vec("NeRD/Cartpole-v0", num_envs=32, array=array, max_episode_steps=40, autoreset_mode=mode)
    )
    env.reset(seed=0)
    returns, lengths, finished, done = np.zeros(32), np.zeros(32), 0, np.zeros(32, bool)
    for _ in range(100):
        action = np.random.default_rng(0).uniform(-1, 1, (32, 1)).astype(np.float32)
        _, reward, terminated, truncated, info = env.step(action)
        returns += np.asarray(reward)
        lengths += 1 - done * (mode == "NextStep")  # the step that resets a row is none of an episode
        done = np.asarray(terminated | truncated)
        np.testing.assert_array_equal(np.asarray(info["_episode"]), done)
        np.testing.assert_allclose(np.asarray(info["episode"]["r"])[done], returns[done], rtol=1e-4)
        np.testing.assert_array_equal(np.asarray(info["episode"]["l"])[done], lengths[done])
        returns[done], lengths[done] = 0, 0
        finished += done.sum()
    assert finished > 64


def test_video_appears_when_whole_and_has_every_step(tmp_path):
    imageio = pytest.importorskip("imageio.v2")
    path = tmp_path / "film" / "cart.mp4"
    env = RecordVideo(make_vec("NeRD/Cartpole-v0", 2, backend="mujoco"), path, row=1)
    env.reset(seed=0)
    for _ in range(9):
        env.step(torch.zeros(2, 1))
    assert not path.exists()
    env.close()
    assert sum(1 for _ in imageio.get_reader(path)) == 10
    assert [p.name for p in path.parent.iterdir()] == ["cart.mp4"]
    with pytest.raises(ValueError, match=r"row is 2; this environment has rows 0 to 1"):
        RecordVideo(make_vec("NeRD/Cartpole-v0", 2, backend="mujoco"), path, row=2)
    with pytest.raises(ValueError, match=r"'cart.avi'; valid endings: .mp4, .gif"):
        RecordVideo(make_vec("NeRD/Cartpole-v0", 2, backend="mujoco"), tmp_path / "cart.avi")


@pytest.mark.parametrize("env_id", ["NeRD/Cartpole-v0", "NeRD/Ant-v0", "NeRD/Anymal-v0"])
def test_reference_layout_of_batch_and_single_agree(env_id):
    batch = ReferenceObservation(make_vec(env_id, 3, backend="mujoco", max_episode_steps=4))
    single = SingleReferenceObservation(gymnasium.make(env_id, backend="mujoco"))
    batch_obs, _ = batch.reset(seed=4)
    obs, _ = single.reset(seed=4)
    np.testing.assert_allclose(batch_obs[0], obs, atol=1e-6)
    action = np.linspace(-1, 1, batch.single_action_space.shape[0], dtype=np.float32)
    for k in range(4):
        batch_obs, *_, info = batch.step(torch.as_tensor(action).expand(3, -1))
        obs, *_ = single.step(action)
        last = info["final_obs"] if k == 3 else batch_obs
        np.testing.assert_allclose(last[0], obs, atol=1e-6)
    assert batch.observation_space.shape == tuple(batch_obs.shape)
    with pytest.raises(ValueError, match="no published layout for robot 'franka'"):
        ReferenceObservation(make_vec("NeRD/Franka-v0", 1, backend="mujoco"))
