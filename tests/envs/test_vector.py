"""Gymnasium's semantics over every environment and backend."""

import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from nerd_gym.registration import PACKAGED
from tests.support.grid import GRID, ROOT
from tests.support.rollouts import digest, rollout
from tests.support.states import make_vec

each = pytest.mark.parametrize(("env_id", "backend"), GRID)


def test_same_seed_same_bits_in_another_process():
    """Two environments of one process are compared by Gymnasium's own checker."""
    here = [digest(*pair) for pair in GRID]
    code = "from tests.support.grid import GRID; from tests.support.rollouts import digest; "
    code += "print([digest(*pair) for pair in GRID])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip().splitlines()[-1] == str(here)
    found = dict(zip(GRID, here, strict=True))
    assert found["NeRD/Franka-v0", "hybrid"] == found["NeRD/Franka-v0", "mujoco"], "no contact: nothing to add"
    without_model = [env_id for env_id, backend in GRID if backend == "augmented"]
    assert all(found[env_id, "augmented"] == found[env_id, "warp"] for env_id in without_model)
    assert len(set(here)) == len(GRID) - 1 - len(without_model)


@each
def test_native_batch_equals_gymnasiums_own_vector_of_single_environments(env_id, backend):
    n = 4
    native = gymnasium.make_vec(env_id, num_envs=n, backend=backend, max_episode_steps=80)
    singles = SyncVectorEnv(
        [lambda: gymnasium.make(env_id, backend=backend, max_episode_steps=80)] * n,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    ours, _ = native.reset(seed=7)
    theirs, _ = singles.reset(seed=7)
    np.testing.assert_array_equal(ours, theirs)
    rng = np.random.default_rng(0)
    ended = 0
    exact = native.unwrapped.backend.rows_exact
    for step in range(30 if native.unwrapped.task.waits else 300):
        action = rng.uniform(-1, 1, native.action_space.shape).astype(np.float32)
        ours, theirs = native.step(action), singles.step(action)
        if not exact:
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-3, atol=1e-3)
            if step == 12:
                return
            continue
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
        np.testing.assert_array_equal(ours[2], theirs[2])
        np.testing.assert_array_equal(ours[3], theirs[3])
        done = ours[2] | ours[3]
        np.testing.assert_array_equal(ours[4]["_final_obs"], done)
        for row in np.flatnonzero(done):
            np.testing.assert_array_equal(ours[4]["final_obs"][row], theirs[4]["final_obs"][row])
        ended += done.sum()
    assert ended >= 3 * n


@each
def test_final_observation_and_time_limit(env_id, backend):
    env = make_vec(env_id, 3, backend=backend, max_episode_steps=5)
    env.reset(seed=0)
    start_steps = []
    for k in range(10):
        before = env.snapshot()
        obs, _, terminated, truncated, info = env.step(torch.zeros(env.action_space.shape))
        assert torch.equal(info["_final_obs"], terminated | truncated)
        assert torch.equal(info["final_info"]["steps"] >= 5, truncated)
        if (terminated | truncated).all():
            assert not torch.equal(obs, info["final_obs"])
            # The true final observation: the same step without autoreset.
            env.autoreset_mode = AutoresetMode.DISABLED
            env.restore(before)
            again, *_ = env.step(torch.zeros(env.action_space.shape))
            assert torch.equal(again, info["final_obs"])
            env.restore(before)
            env.autoreset_mode = AutoresetMode.SAME_STEP
            env.step(torch.zeros(env.action_space.shape))
            start_steps.append(k)
    assert start_steps


@each
def test_partial_reset_touches_the_mask_alone(env_id, backend):
    mask = torch.tensor([True, False, True, False, False, False])
    envs = [make_vec(env_id, 6, backend=backend, autoreset_mode="Disabled") for _ in range(2)]
    for env in envs:
        env.reset(seed=3)
    action = torch.rand(envs[0].action_space.shape)
    for k in range(12):
        results = [env.step(action) for env in envs]
        if k == 4:
            obs, _ = envs[1].reset(options={"reset_mask": mask.numpy() if k % 2 else mask})
            assert torch.equal(obs[~mask], results[1][0][~mask])
    for a, b in zip(results[0][:4], results[1][:4], strict=True):
        assert torch.equal(a[~mask], b[~mask])
    assert not torch.equal(results[0][0][mask], results[1][0][mask])
    with pytest.raises(ValueError, match=r"reset_mask is torch.int64 of shape"):
        envs[0].reset(options={"reset_mask": torch.ones(6, dtype=torch.long)})


@each
def test_a_nan_action_ends_one_row_and_no_other(env_id, backend):
    def poison(k, action):
        if k == 2:
            action[17] = float("nan")
        return action

    clean = rollout(make_vec(env_id, 64, backend=backend), 6)
    env = make_vec(env_id, 64, backend=backend)
    hurt = rollout(env, 6, change=poison)
    others = torch.arange(64) != 17
    for a, b in zip(clean, hurt, strict=True):
        assert torch.equal(a[others], b[others])
        assert b.isfinite().all()
    terminated, truncated = hurt[1 + 2 * 5 + 2], hurt[1 + 2 * 5 + 3]
    assert truncated[17] and not terminated[17]
    env.reset(seed=0)
    action = torch.zeros(env.action_space.shape)
    action[17] = float("nan")
    *_, info = env.step(action)
    assert info["diverged"].nonzero().flatten().tolist() == [17]
    assert info["final_info"]["diverged"][17]


@each
def test_snapshot_and_restore(env_id, backend):
    env = make_vec(env_id, 8, backend=backend, max_episode_steps=6)
    env.reset(seed=0)
    action = torch.rand(env.action_space.shape)
    env.step(action)
    snapshot = env.snapshot()
    first = [env.step(action) for _ in range(10)]
    obs = env.restore(snapshot)
    second = [env.step(action) for _ in range(10)]
    assert obs.shape == first[0][0].shape
    for a, b in zip(first, second, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))


@each
def test_numpy_and_torch_give_the_same_and_share_nothing(env_id, backend):
    out = {}
    for array in ("numpy", "torch"):
        env = gymnasium.make_vec(env_id, num_envs=4, backend=backend, array=array)
        env.reset(seed=5)
        out[array] = [env.step(np.full(env.action_space.shape, 0.3, np.float32)) for _ in range(5)]
    for a, b in zip(out["numpy"], out["torch"], strict=True):
        for x, y in zip(a[:4], b[:4], strict=True):
            assert isinstance(x, np.ndarray) and isinstance(y, torch.Tensor)
            np.testing.assert_array_equal(x, y.numpy())
        assert a[0].dtype == np.float32 and a[2].dtype == np.bool_
    first, second = (r[0] for r in out["torch"][:2])
    kept = first.clone()
    second.zero_()
    assert torch.equal(first, kept)


def test_seeding():
    env = make_vec("NeRD/Ant-v0", 4, backend="mujoco")
    a, _ = env.reset(seed=1)
    b, _ = env.reset()
    again, _ = env.reset(seed=1)
    assert torch.equal(a, again) and not torch.equal(a, b)
    by_list, _ = env.reset(seed=[1, 2, 3, 4])
    assert torch.equal(by_list, a)
    with pytest.raises(ValueError, match="2 seeds were given for 4"):
        env.reset(seed=[1, 2])
    unseeded = [make_vec("NeRD/Ant-v0", 1, backend="mujoco").reset()[0] for _ in range(2)]
    assert not torch.equal(*unseeded)


def test_pickle_makes_the_same_environment_again():
    env = make_vec("NeRD/Ant-v0", 2, backend="warp", task="spin")
    twin = pickle.loads(pickle.dumps(env))
    assert twin.task.config.task == "spin" and torch.equal(env.reset(seed=0)[0], twin.reset(seed=0)[0])


def test_wrong_input_is_named_with_what_is_valid():
    make = lambda **kw: gymnasium.make_vec("NeRD/Ant-v0", num_envs=2, **kw)  # noqa: E731
    cases = [
        ({"backend": "bullet"}, r"unknown backend 'bullet'; valid: warp, mujoco"),
        ({"task": "fly"}, r"unknown task 'fly'; valid: 'run', 'spin', 'spin_track'"),
        ({"colour": 1}, r"unknown option 'colour'; Ant takes task; backend 'warp' takes friction"),
        ({"backend": "mujoco", "reference": True}, r"'reference' \(it is an option of backend 'warp', 'neural'\)"),
        ({"array": "jax"}, r"unknown array 'jax'; valid: 'numpy', 'torch'"),
        ({"autoreset_mode": "never"}, r"unknown autoreset_mode 'never'; valid: SameStep, NextStep, Disabled"),
        ({"backend": "warp", "physics": "mujoco"}, r"backend is 'warp' and physics is 'mujoco': they mean the same"),
        ({"render_mode": "ascii"}, r"unknown render_mode 'ascii'"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            make(**options)
    with pytest.raises(ValueError, match=r"velocity is 1; valid: True, False"):
        gymnasium.make_vec("NeRD/Franka-v0", num_envs=2, velocity=1)
    env = make()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros((2, 8), np.float32))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions have shape \(2, 7\); they must have \(2, 8\)"):
        env.step(np.zeros((2, 7), np.float32))


def test_reward_terms_add_up():
    for env_id in PACKAGED:
        env = make_vec(env_id, 16, backend="mujoco")
        env.reset(seed=0)
        _, reward, *_, info = env.step(torch.rand(env.action_space.shape) - 0.5)
        assert info["reward_terms"].shape == (16, len(env.reward_terms))
        total = info["reward_terms"].sum(-1)
        if env_id == "NeRD/Anymal-v0":
            total = total.clamp(min=0)
        torch.testing.assert_close(reward, total)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["warp", "mujoco"])
def test_memory_does_not_grow(backend):
    """10,000 steps of 256 environments with many resets."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    env = make_vec("NeRD/Cartpole-v0", 256, backend=backend)
    env.reset(seed=0)
    actions = [2 * torch.rand(env.action_space.shape) - 1 for _ in range(8)]
    resets = 0
    for k in range(10_000):
        _, _, terminated, truncated, _ = env.step(actions[k % 8])
        resets += int((terminated | truncated).sum())
        if k == 1000:
            early = resident()
    assert resets > 1000
    assert resident() - early < 8e6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e9])
def test_a_start_that_is_no_state_is_refused_and_changes_nothing(bad):
    env = make_vec("NeRD/Ant-v0", 3, backend="mujoco")
    env.reset(seed=0)
    before = env.snapshot()
    q, qd = env.backend.q.clone(), env.backend.qd.clone()
    qd[1, 7] = bad
    with pytest.raises(ValueError, match="the state of row 1 is not a start"):
        env.reset(seed=1, options={"state": (q, qd)})
    qd[1, 7], q[2, 3:7] = 0.0, 0.0
    with pytest.raises(ValueError, match=r"the state of row 2 is not a start.*quaternion of length 1"):
        env.reset(seed=1, options={"state": (q, qd)})
    with pytest.raises(ValueError, match=r"q of the state has shape \(2, 15\)"):
        env.reset(options={"state": (q[:2], qd)})
    after = env.snapshot()
    assert all(torch.equal(before[name], after[name]) for name in ("steps", "episodes", "seeds"))
    assert torch.equal(before["backend"]["q"], after["backend"]["q"])
    mask = torch.tensor([True, True, False])  # the bad row stays where it is
    env.reset(options={"state": (q, qd), "reset_mask": mask})


@pytest.mark.parametrize("device", ["foo", "cuda:77", "meta"])
def test_a_device_that_is_not_there_is_named_with_those_that_are(device):
    with pytest.raises(ValueError, match=rf"'{device}'.*this machine has: cpu"):
        make_vec("NeRD/Cartpole-v0", 2, device=device)
