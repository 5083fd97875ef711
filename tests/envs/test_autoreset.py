"""NextStep: the step after an episode's last one resets the row, as Gymnasium's own vector environments do."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.support.device import away_from_the_host
from tests.support.grid import GRID
from tests.support.states import make_vec

each = pytest.mark.parametrize(("env_id", "backend"), GRID)
N = 4


def staggered(env_id, backend, horizon=6, **options):
    """A batch whose rows end at different times."""
    env = make_vec(env_id, N, backend=backend, max_episode_steps=horizon, **options)
    env.reset(seed=7)
    env.episode_steps[:] = torch.arange(N)
    return env


def random_actions(env, steps, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(steps, *env.action_space.shape, generator=rng) - 1


@each
def test_equals_gymnasiums_own_vector_of_single_environments(env_id, backend):
    options = {"backend": backend, "max_episode_steps": 7}
    native = gymnasium.make_vec(env_id, num_envs=N, autoreset_mode="NextStep", **options)
    singles = SyncVectorEnv([lambda: gymnasium.make(env_id, **options)] * N, autoreset_mode=AutoresetMode.NEXT_STEP)
    tolerance = 0 if native.unwrapped.backend.rows_exact else 1e-3
    pairs = [(native.reset(seed=7)[0], singles.reset(seed=7)[0])]
    resets, done = 0, np.zeros(N, bool)
    for action in random_actions(native, 26).numpy():
        ours, theirs = native.step(action), singles.step(action)
        pairs += [(ours[0], theirs[0]), (ours[2], theirs[2]), (ours[3], theirs[3])]
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, atol=tolerance)
        np.testing.assert_array_equal(ours[1][done], 0.0)
        np.testing.assert_array_equal(ours[4]["reward_terms"][done], 0.0)
        assert not {"final_obs", "final_info"} & set(ours[4])
        resets += done.sum()
        done = ours[2] | ours[3]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    assert resets >= 3 * N
    assert native.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    singles.close()


@each
def test_episodes_have_the_bits_of_same_step(env_id, backend):
    """Rows end at different times; an action depends on the row and on its step of the episode alone."""
    table = random_actions(make_vec(env_id, N, backend=backend), 6)
    episodes = {}
    for mode in ("SameStep", "NextStep"):
        env = staggered(env_id, backend, autoreset_mode=mode)
        rows = [[] for _ in range(N)]
        ended = torch.zeros(N, dtype=torch.bool)
        for _ in range(40):
            now = env.episode_steps.clamp(max=5)
            action = table[now, torch.arange(N)]
            if mode == "NextStep":
                action[ended] = float("nan")  # nobody looks at it
            obs, reward, terminated, truncated, info = env.step(action)
            assert not info["diverged"].any()
            done = terminated | truncated
            last = info["final_obs"] if mode == "SameStep" else obs
            for row in range(N):
                if mode == "SameStep" or not ended[row]:
                    rows[row].append((last[row], reward[row], terminated[row], truncated[row]))
            ended = done
        episodes[mode] = rows
    for same, following in zip(episodes["SameStep"], episodes["NextStep"], strict=True):
        assert len(same) > len(following) >= 20  # Strike has episodes of one step
        for a, b in zip(same, following, strict=False):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("backend", [backend for env_id, backend in GRID if env_id == "NeRD/Cartpole-v0"])
def test_reset_forgets_and_a_snapshot_remembers_the_rows_to_be_reset(backend):
    env = staggered("NeRD/Cartpole-v0", backend, autoreset_mode=AutoresetMode.NEXT_STEP)
    action = torch.zeros(env.action_space.shape)
    while not (done := env.step(action)[3]).any():
        pass
    (row,) = done.nonzero().flatten().tolist()
    snapshot = env.snapshot()
    first = [env.step(action) for _ in range(12)]
    assert env.restore(snapshot).isfinite().all()
    second = [env.step(action) for _ in range(12)]
    for a, b in zip(first, second, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
    assert first[0][1][row] == 0 and first[0][1][~done].ne(0).all()

    for mask in (done, torch.ones_like(done)):  # of this row alone, and of all
        env.restore(snapshot)
        start, _ = env.reset(options={"reset_mask": mask})
        obs, reward, *_ = env.step(action)
        assert reward[row] != 0 and not torch.equal(obs[row], start[row])
        assert env.episode_steps[row] == 1
    env.restore(snapshot)
    env.reset(seed=3)
    assert env.step(action)[1].ne(0).all()


def test_a_row_that_diverged_is_reported_once_and_then_reset():
    env = staggered("NeRD/Ant-v0", "mujoco", horizon=None, autoreset_mode="NextStep")
    action = torch.zeros(env.action_space.shape)
    action[2] = float("nan")
    *_, truncated, info = env.step(action)
    assert truncated.tolist() == info["diverged"].tolist() == [False, False, True, False]
    obs, reward, terminated, truncated, info = env.step(action)
    assert not (terminated | truncated | info["diverged"]).any() and reward[2] == 0 and obs.isfinite().all()
    *_, truncated, info = env.step(action)
    assert truncated.tolist() == info["diverged"].tolist() == [False, False, True, False]


@pytest.mark.parametrize("env_id", [env_id for env_id, backend in GRID if backend == "warp"])
def test_numbers_are_the_same_on_an_accelerator_and_nothing_waits_for_the_host(env_id):
    here, away = (staggered(env_id, "warp", autoreset_mode="NextStep") for _ in range(2))
    away.backend.host_checks = False  # as on an accelerator
    actions = random_actions(here, 16)
    with away_from_the_host():
        out = [away.step(action) for action in actions]
    for action, there in zip(actions, out, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(here.step(action)[:4], there[:4], strict=True))
