"""An environment in a forked child: the parent's threads are not there, and nothing may wait for them."""

from __future__ import annotations

import multiprocessing
import os
import select
import sys

import gymnasium
import numpy as np
import pytest
import torch

from tests.support.grid import GRID

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks as Linux has them")
N = 256  # enough rows for several threads
ENVS = {backend: env_id for env_id, backend in reversed(GRID)}  # the first that each backend has
BACKENDS = tuple(ENVS)


def made(backend: str) -> gymnasium.vector.VectorEnv:
    env = gymnasium.make_vec(ENVS[backend], num_envs=N, backend=backend, threads=2)
    env.reset(seed=0)
    return env


def steps(env: gymnasium.vector.VectorEnv, count: int = 3) -> np.ndarray:
    for _ in range(count):
        obs = env.step(np.full(env.action_space.shape, 0.3, np.float32))[0]
    torch.randn(1000, 1000).sin().sum()  # torch's own threads
    return np.asarray(obs)


def in_child(work) -> np.ndarray:
    """What `work` returns in a forked child, which must end by itself."""
    queue = multiprocessing.get_context("fork").SimpleQueue()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            queue.put(work())
            code = 0
        finally:
            os._exit(code)
    handle = os.pidfd_open(child)
    try:
        if not wait(handle):
            os.kill(child, 9)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        os.close(handle)
    return queue.get()


def wait(handle: int) -> bool:

    return bool(select.select([handle], [], [], 60)[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_steps_its_parents_environment(backend):
    env = made(backend)
    steps(env)
    found, expected = in_child(lambda: steps(env)), steps(env)
    assert np.array_equal(found, expected)
    env.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_makes_one_of_its_own(backend):
    first = made(backend)
    expected = steps(first)
    assert np.array_equal(in_child(lambda: steps(made(backend))), expected)
    first.close()


def leave(env: gymnasium.vector.VectorEnv, used: bool) -> None:
    if used:
        steps(env)
        env.close()


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_ends_by_itself(backend, used):
    env = made(backend)
    steps(env)
    child = multiprocessing.get_context("fork").Process(target=leave, args=(env, used))
    child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    assert not alive and child.exitcode == 0
    env.close()
