import gymnasium
import numpy as np
import pytest
import torch

from nerd_gym.registration import PACKAGED
from tests.support.grid import GRID
from tests.support.states import make_vec


@pytest.mark.parametrize("env_id", PACKAGED)
def test_frames_show_the_state_and_not_the_backend(env_id):
    names = [backend for name, backend in GRID if name == env_id]
    pair = names[0], names[-1]
    envs = [make_vec(env_id, 1, backend=b, render_mode="rgb_array") for b in pair]
    for env in envs:
        env.reset(seed=0)
    (first,), (second,) = (env.render() for env in envs)
    assert first.dtype == np.uint8 and first.shape == (480, 640, 3)
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 100  # a picture, not a blank
    for _ in range(15):
        envs[0].step(torch.ones(envs[0].action_space.shape))
    (moved,) = envs[0].render()
    assert (moved != first).any()
    ghost = envs[1].renderer.frame(envs[1], 0, ghost_q=envs[0].backend.q[0].numpy())
    assert (ghost != second).any()


def test_ground_is_drawn_where_it_is():
    frames = []
    for ground in (1, 6):
        env = make_vec("NeRD/PendulumContact-v0", 1, backend="mujoco", ground=ground, render_mode="rgb_array")
        env.reset(seed=0)
        frames.append(env.render()[0])
    assert (frames[0] != frames[1]).mean() > 0.1


def test_without_a_render_mode_there_is_a_warning():
    env = gymnasium.make_vec("NeRD/Cartpole-v0", num_envs=1)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="without a render_mode"):
        assert env.render() is None


def test_a_window_without_a_screen_is_an_error_not_the_end(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    env = gymnasium.make("NeRD/Cartpole-v0", backend="mujoco", render_mode="human")
    with pytest.raises(RuntimeError, match="no screen"):
        env.reset(seed=0)
