"""Programs that know Gymnasium and nothing of this suite: vector wrappers, CleanRL's loop, TorchRL, RLlib, workers."""

import math
import os
import re
import sys
from tempfile import TemporaryDirectory

import gymnasium
import gymnasium.wrappers.vector as wrappers
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.support.examples import example
from tests.support.grid import BACKEND_NAMES, ROOT
from tests.support.processes import python, run

CARTPOLE = "NeRD/Cartpole-v0"
ALL = ("SameStep", "NextStep", "Disabled")
# The modes that Gymnasium's own wrappers take.
MODES = {
    "ClipAction": ((), ALL),
    "ClipReward": ((-1.0, 1.0), ALL),
    "DictInfoToList": ((), ALL),
    "DtypeObservation": ((np.float64,), ALL[1:]),
    "FlattenObservation": ((), ALL[1:]),
    "NormalizeObservation": ((), ("NextStep",)),
    "NormalizeReward": ((), ALL),
    "RecordEpisodeStatistics": ((), ALL),
    "RescaleAction": ((-2.0, 2.0), ALL),
    "ReshapeObservation": (((2, 2),), ALL[1:]),
    "TransformObservation": ((lambda obs: 2 * obs,), ALL[1:]),
    "TransformReward": ((lambda reward: 2 * reward,), ALL),
}


def cartpoles(mode, backend="mujoco", num_envs=3, horizon=5):
    return gymnasium.make_vec(
        CARTPOLE, num_envs=num_envs, backend=backend, max_episode_steps=horizon, autoreset_mode=mode
    )


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, (_, modes) in MODES.items() for mode in modes])
def test_a_vector_wrapper_of_gymnasium_gives_what_it_gives_over_gymnasiums_own_vector(name, mode):
    arguments, _ = MODES[name]
    options = {"backend": "mujoco", "max_episode_steps": 5}
    singles = SyncVectorEnv([lambda: gymnasium.make(CARTPOLE, **options)] * 3, autoreset_mode=AutoresetMode(mode))
    pair = [getattr(wrappers, name)(env, *arguments) for env in (cartpoles(mode), singles)]
    ours, theirs = (env.reset(seed=3)[0] for env in pair)
    assert ours.dtype == theirs.dtype and pair[0].observation_space == pair[1].observation_space
    np.testing.assert_array_equal(ours, theirs)
    steps = 5 if mode == "Disabled" else 14
    for action in np.random.default_rng(0).uniform(-3, 3, (steps, 3, 1)).astype(np.float32):
        ours, theirs = (env.step(action) for env in pair)
        for a, b in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        if name == "RecordEpisodeStatistics" and "episode" in theirs[4]:
            np.testing.assert_array_equal(ours[4]["episode"]["l"], theirs[4]["episode"]["l"])
            np.testing.assert_allclose(ours[4]["episode"]["r"], theirs[4]["episode"]["r"], rtol=1e-5)


def test_every_way_to_make_a_vector_gives_the_same_starts():
    kwargs = {"backend": "mujoco", "disable_env_checker": True}
    made = [
        cartpoles("NextStep", horizon=300),
        gymnasium.make_vec(CARTPOLE, num_envs=3, vectorization_mode="sync", **kwargs),
        gymnasium.make_vec(
            CARTPOLE,
            num_envs=3,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
            **kwargs,
        ),
        gymnasium.make_vec(CARTPOLE, num_envs=3, vectorization_mode="vector_entry_point", physics="mujoco"),
    ]
    starts = [env.reset(seed=4)[0] for env in made]
    for start in starts[1:]:
        np.testing.assert_array_equal(starts[0], start)
    modes = [env.metadata["autoreset_mode"] for env in made]
    next_step, same_step = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
    assert modes == [next_step, next_step, same_step, same_step]
    assert not isinstance(gymnasium.make(CARTPOLE, **kwargs).env.env, gymnasium.wrappers.PassiveEnvChecker)
    with pytest.raises(gymnasium.error.Error, match="only through kwargs"):
        gymnasium.make_vec(CARTPOLE, num_envs=3, vector_kwargs={"autoreset_mode": same_step})


def test_physics_is_another_word_for_backend():
    for make in (gymnasium.make, lambda *a, **k: gymnasium.make_vec(*a, num_envs=2, **k)):
        for options in ({"physics": "mujoco"}, {"physics": "mujoco", "backend": "mujoco"}):
            assert make(CARTPOLE, **options).unwrapped.backend.name == "mujoco"
        assert make(CARTPOLE).unwrapped.backend.name == "warp"
        with pytest.raises(ValueError, match="backend is 'warp' and physics is 'mujoco': they mean the same, give one"):
            make(CARTPOLE, backend="warp", physics="mujoco")
        with pytest.raises(ValueError, match="unknown backend 'bullet'; valid: warp"):
            make(CARTPOLE, physics="bullet")
        with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
            make(CARTPOLE, frameskip=2)


def test_a_loop_like_cleanrls_learns_and_counts_every_episode():
    module = example("cleanrl_style")
    seen = module.train(module.Args(backend="mujoco", iterations=30))
    assert seen["counted"] == seen["ended"] and seen["ended"][-1] > 200
    assert all(math.isfinite(loss) for loss in seen["loss"])
    assert seen["return"][-1] > seen["return"][9] + 50  # three seeds gained 139 to 268


def test_torchrl_makes_checks_and_collects():
    envs = pytest.importorskip("torchrl.envs")
    collectors = pytest.importorskip("torchrl.collectors")
    env = envs.GymEnv(CARTPOLE, physics="mujoco", max_episode_steps=20)
    assert env.unwrapped.backend.name == "mujoco"
    envs.check_env_specs(env)
    frames, dones = 0, 0
    collector = collectors.Collector(env, frames_per_batch=64, total_frames=256)
    for batch in collector:
        frames += batch.numel()
        dones += int(batch["next", "done"].sum())
        done, obs, following = batch["next", "done"][:-1, 0], batch["observation"][1:], batch["next", "observation"]
        # An episode goes on where it was, and starts anew elsewhere.
        assert torch.equal(obs[~done], following[:-1][~done]) and not torch.equal(obs[done], following[:-1][done])
    assert frames == 256 and dones >= 256 // 20
    collector.shutdown()


def test_rllib_trains():
    pytest.importorskip("ray.rllib")
    command = [sys.executable, ROOT / "examples" / "rllib_ppo.py", "--backend", "mujoco", "--iterations", "2"]
    # Ray writes a token into the home and sockets into its own folder, whose name must be short.
    with TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        places = {"HOME": folder, "RAY_TMPDIR": folder, "PYTHONPATH": str(ROOT)}
        output = run(*command, timeout=180, env={**os.environ, **places, "OMP_NUM_THREADS": "1"})
    rows = [re.findall(r"[-\d.e+]+(?=\s|$)", line) for line in output.splitlines() if line.startswith("steps ")]
    steps, episodes, returns = zip(*((float(x) for x in row) for row in rows), strict=True)
    assert steps == (1200, 2400) and 0 < episodes[0] < episodes[1] <= 2400
    assert all(math.isfinite(x) for x in returns)


# A worker that does not fork imports everything anew, which takes longest with Warp.
QUICK = {"sb3": ("fork:warp", "fork:neural", "forkserver:mujoco", "spawn:mujoco"), "gymnasium": ("fork:mujoco",)}
EVERY = tuple(f"{method}:{name}" for method in ("fork", "forkserver", "spawn") for name in BACKEND_NAMES)
CASES = [*QUICK.items(), *(pytest.param(name, EVERY, marks=pytest.mark.slow) for name in ("sb3", "gymnasium"))]


@pytest.mark.parametrize(("library", "cases"), CASES)
def test_workers_give_the_bits_of_the_native_batch(library, cases):
    if library == "sb3":
        pytest.importorskip("stable_baselines3")
    output = python("-m", "tests.support.workers", library, *cases, timeout=300)
    assert re.findall(r"^(\S+) 4 episodes$", output, re.M) == list(cases)
