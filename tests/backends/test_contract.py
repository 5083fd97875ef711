"""What every backend promises: masked resets, snapshots, health, threads, clear errors."""

import pytest
import torch

from nerd_gym.backends import BACKENDS, Entry, backend_class, make_backend
from tests.conftest import ANALYTICAL, LEARNED_ROBOTS, NETWORKS, ROBOTS, backend_at, everyone, random_state, robot

each_backend = pytest.mark.parametrize("name", ANALYTICAL)
each_pair = pytest.mark.parametrize(
    ("name", "robot_name"),
    [(b, r) for b in ANALYTICAL for r in ROBOTS] + [("neural", r) for r in LEARNED_ROBOTS],
)


def push(model, n, seed=0):
    return 5 * (2 * torch.rand(n, model.nj, generator=torch.Generator().manual_seed(seed)) - 1)


@each_pair
def test_masked_reset_leaves_the_rest_to_the_bit(name, robot_name):
    model, n = robot(robot_name), 6
    q, qd = random_state(model, n)
    free, touched = (backend_at(name, model, q, qd) for _ in range(2))
    mask = torch.tensor([True, False, False, True, False, False])
    for k in range(8):
        for backend in (free, touched):
            backend.step(push(model, n, k))
        if k == 3:
            touched.reset(mask, q, qd)
            assert torch.equal(touched.q[mask], q[mask]) and torch.equal(touched.qd[mask], qd[mask])
    assert torch.equal(free.q[~mask], touched.q[~mask]) and torch.equal(free.qd[~mask], touched.qd[~mask])
    assert not torch.equal(free.q[mask], touched.q[mask])


@each_pair
def test_restore_goes_back_to_the_bit(name, robot_name):
    model, n = robot(robot_name), 4
    backend = backend_at(name, model, *random_state(model, n))
    backend.step(push(model, n))
    snapshot = backend.snapshot()
    futures = []
    for _ in range(2):
        for k in range(10):
            backend.step(push(model, n, k))
        futures.append((backend.q.clone(), backend.qd.clone()))
        backend.restore(snapshot)
    assert torch.equal(futures[0][0], futures[1][0]) and torch.equal(futures[0][1], futures[1][1])


@pytest.mark.parametrize(("name", "robot_name"), [*((b, "ant") for b in ANALYTICAL), ("neural", "franka")])
@pytest.mark.parametrize("host_checks", [True, False])
def test_a_row_that_comes_apart_is_held_and_reported(name, robot_name, host_checks):
    model, n = robot(robot_name), 8
    q, qd = random_state(model, n)
    clean, hurt = (backend_at(name, model, q, qd) for _ in range(2))
    hurt.host_checks = host_checks
    force = push(model, n)
    bad = force.clone()
    bad[2, 3] = float("nan")
    bad[5, 0] = float("inf")
    clean.step(force)
    hurt.step(bad)
    others = torch.tensor([0, 1, 3, 4, 6, 7])
    assert hurt.healthy.tolist() == [True, True, False, True, True, False, True, True]
    assert torch.equal(hurt.q[2], q[2]) and torch.equal(hurt.qd[5], qd[5])
    assert torch.equal(hurt.q[others], clean.q[others])
    for backend in (clean, hurt):
        backend.step(force)
    assert hurt.healthy.all() and torch.equal(hurt.q[others], clean.q[others])


@pytest.mark.parametrize("name", [*ANALYTICAL, "neural"])
def test_a_state_outside_the_stated_range_is_unhealthy(name):
    model = robot("cartpole")
    backend = backend_at(name, model, torch.zeros(2, 2), torch.zeros(2, 2))
    backend.step(torch.tensor([[1e9, 0.0], [0.0, 0.0]]))
    assert backend.healthy.tolist() == [False, True]
    assert torch.equal(backend.q[0], torch.zeros(2))


@pytest.mark.parametrize(
    ("name", "robot_name"),
    [(b, r) for b in ANALYTICAL for r in ("ant", "franka")] + [("neural", r) for r in LEARNED_ROBOTS],
)
def test_threads_and_batch_size_do_not_change_the_bits(name, robot_name):
    model, n = robot(robot_name), 192
    q, qd = random_state(model, n)
    one, two = (backend_at(name, model, q, qd, threads=t) for t in (1, 2))
    part = backend_at(name, model, q[:3], qd[:3])
    for k in range(6):
        force = push(model, n, k)
        one.step(force)
        two.step(force)
        part.step(force[:3])
    assert torch.equal(one.q, two.q) and torch.equal(one.qd, two.qd)
    if (name, robot_name) in NETWORKS:
        torch.testing.assert_close(one.q[:3], part.q, rtol=1e-4, atol=1e-4)
    else:
        assert torch.equal(one.q[:3], part.q)


@each_backend
def test_wrong_shapes_and_options_are_named(name):
    model = robot("ant")
    backend = make_backend(name, model, 4)
    with pytest.raises(ValueError, match=r"joint_force has shape \(4, 7\).*\(4, 8\)"):
        backend.step(torch.zeros(4, 7))
    with pytest.raises(ValueError, match=r"mask has shape \(3,\)"):
        backend.reset(everyone(3), backend.q, backend.qd)
    with pytest.raises(ValueError, match=r"unknown option 'gravity'.*substeps"):
        make_backend(name, model, 4, gravity=0)
    for option in ("substeps", "threads"):
        with pytest.raises(ValueError, match=f"{option} is 0"):
            make_backend(name, model, 4, **{option: 0})
    with pytest.raises(ValueError, match="num_envs is 0"):
        make_backend(name, model, 0)


def test_unknown_and_missing_backends(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown backend 'bullet'; valid: warp, mujoco"):
        backend_class("bullet")
    with pytest.raises(ValueError, match=r"unknown friction 'sticky'; valid: coulomb, huber"):
        make_backend("warp", robot("ant"), 1, friction="sticky")
    monkeypatch.setitem(BACKENDS, "ghost", Entry("ghost", "Ghost", ("no_such_package",), ""))
    with pytest.raises(ImportError, match=r"'ghost'.*pip install no_such_package"):
        backend_class("ghost")
