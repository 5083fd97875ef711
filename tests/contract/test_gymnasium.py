"""Gymnasium's own checkers; the only warnings allowed are those about infinite bounds."""

import pickle
import warnings

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.env_match import check_environments_match

from tests.support.grid import ALL_VARIANTS, GRID

ALLOWED = ("is -infinity", "is infinity", "Box observation space")


def complaints(record):
    return [str(w.message) for w in record if not any(text in str(w.message) for text in ALLOWED)]


@pytest.mark.parametrize(("env_id", "backend", "options"), ALL_VARIANTS)
def test_check_env(env_id, backend, options):
    env = gymnasium.make(env_id, backend=backend, render_mode="rgb_array", **options)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)
        env.reset(seed=0)
        assert env.render().shape == (480, 640, 3)
    assert complaints(record) == []
    env.close()


@pytest.mark.parametrize(("env_id", "backend"), GRID)
def test_passive_checker_is_silent(env_id, backend):
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        env = gymnasium.make(env_id, backend=backend)
        env.reset(seed=0)
        for _ in range(3):
            env.step(env.action_space.sample())
        vec = gymnasium.make_vec(env_id, num_envs=2, backend=backend)
        vec.reset(seed=0)
        vec.step(vec.action_space.sample())
    assert complaints(record) == []
    assert vec.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP


@pytest.mark.parametrize(("env_id", "backend"), GRID)
def test_two_of_a_kind_match(env_id, backend):
    pair = [gymnasium.make(env_id, backend=backend) for _ in range(2)]
    check_environments_match(*pair, num_steps=60, seed=0, info_comparison="equivalence")
    twin = pickle.loads(pickle.dumps(pair[0].unwrapped))
    check_environments_match(pair[1].unwrapped, twin, num_steps=5, seed=0, info_comparison="equivalence")
