"""The checkers of Stable-Baselines3 and TorchRL."""

import warnings

import gymnasium
import pytest

from tests.support.grid import GRID, VARIANTS

sb3_checker = pytest.importorskip("stable_baselines3.common.env_checker")
torchrl_envs = pytest.importorskip("torchrl.envs")


@pytest.mark.parametrize(("env_id", "backend"), GRID)
def test_stable_baselines3_check_env(env_id, backend):
    for options in VARIANTS[env_id]:
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            sb3_checker.check_env(gymnasium.make(env_id, backend=backend, **options), warn=True, skip_render_check=True)
        complaints = [
            str(w.message) for w in record if "infinit" not in str(w.message) and "Box obs" not in str(w.message)
        ]
        assert complaints == []


@pytest.mark.parametrize("array", ["numpy", "torch"])
@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
@pytest.mark.parametrize(("env_id", "backend"), GRID)
def test_torchrl_check_env_specs(env_id, backend, mode, array):
    env = gymnasium.make_vec(env_id, num_envs=4, backend=backend, array=array, autoreset_mode=mode)
    wrapped = torchrl_envs.GymWrapper(env, device="cpu", convert_actions_to_numpy=False)
    torchrl_envs.check_env_specs(wrapped)
