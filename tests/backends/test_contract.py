"""What every backend promises, for every row of the table and every packaged robot that it simulates."""

import pytest
import torch

from nerd_gym.backends import BACKENDS, Entry, backend_class, make_backend
from nerd_gym.robots.state import FrameInput
from tests.support.grid import BACKEND_NAMES, LEARNED_PAIRS, PAIRS, robot
from tests.support.states import backend_at, everyone, ground, push, random_state

each_pair = pytest.mark.parametrize(("name", "robot_name"), PAIRS)
each_backend = pytest.mark.parametrize("name", BACKEND_NAMES)
CLEAR = 1.0  # metres over the start: nobody touches the ground, in which a learned model may give a row up
COUNTS = ("substeps", "threads")  # options that are at least one, where a backend has them


def some_robot(name):
    """The first robot that a backend simulates."""
    return robot(next(robot_name for backend, robot_name in PAIRS if backend == name))


def grounds(backend):
    return backend.ground_point, backend.ground_normal


@each_pair
def test_state_and_facts_have_the_stated_shapes(name, robot_name):
    model, n = robot(robot_name), 5
    backend = backend_at(name, model, *random_state(model, n, height=CLEAR))
    for _ in range(2):
        backend.step(push(model, n))
    assert backend.robot is model and backend.num_envs == n and backend.frame_dt == model.frame_dt
    assert backend.name == name and isinstance(backend.learned, bool) and isinstance(backend.on_device, bool)
    assert isinstance(backend.substeps, int) and backend.substeps >= 1
    assert backend.q.shape == (n, model.nq) and backend.qd.shape == (n, model.nv)
    assert backend.q.dtype == backend.qd.dtype == torch.float32 and backend.healthy.dtype == torch.bool
    assert backend.healthy.shape == (n,) and backend.healthy.all()
    points = len(model.candidates.radius)
    assert backend.contacts.distance.shape == (n, points)
    assert backend.contacts.point.shape == backend.contacts.normal.shape == (n, points, 3)
    assert isinstance(backend.facts, dict)
    assert all(isinstance(key, str) and value.shape == (n,) for key, value in backend.info().items())


@pytest.mark.parametrize(("name", "robot_name"), LEARNED_PAIRS)
def test_a_learned_backend_tells_where_it_comes_from(name, robot_name):
    facts = make_backend(name, robot(robot_name), 1).facts
    assert {"kind", "robot", "teacher", "hash"} <= facts.keys()
    assert facts["robot"] == robot_name and facts["teacher"] in BACKENDS and facts["teacher"] != name


@each_pair
def test_trust_and_ranges_are_told_per_row_of_any_frame(name, robot_name):
    model, n = robot(robot_name), 4
    backend = make_backend(name, model, n)
    frame = FrameInput(*random_state(model, n, height=CLEAR), push(model, n))
    trust, ratios = backend.trust_in(frame, grounds(backend)), backend.range_ratios(frame)
    assert trust is None or (trust.shape == (n,) and ((trust >= 0) & (trust <= 1)).all())
    assert all(isinstance(key, str) and ratio.shape == (n,) for key, ratio in ratios.items())
    assert all((ratio >= 0).all() for ratio in ratios.values())
    assert backend.learned or (trust is None and not ratios)


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
def test_rows_that_are_left_out_stay_and_several_frames_are_frames_in_a_row(name, robot_name):
    model, n = robot(robot_name), 6
    q, qd = random_state(model, n, height=CLEAR)
    once, thrice = (backend_at(name, model, q, qd) for _ in range(2))
    rows, force = torch.tensor([True, False, False, True, False, True]), push(model, n)
    thrice.step(force, rows, 3)
    assert torch.equal(thrice.q[~rows], q[~rows]) and torch.equal(thrice.qd[~rows], qd[~rows])
    for _ in range(3):
        once.step(force)
    close = {"rtol": 0, "atol": 0} if once.rows_exact else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(thrice.q[rows], once.q[rows], **close)
    thrice.step(force)
    assert not torch.equal(thrice.q[~rows], q[~rows]) and thrice.healthy.all()


def test_a_reset_takes_double_precision_and_rounds_it():
    model, n = robot("ant"), 4
    q, qd = random_state(model, n)
    backend = make_backend("warp", model, n)
    ground = torch.full((n, 3), 0.1, dtype=torch.float64), backend.ground_normal.double()
    backend.reset(everyone(n), q.double(), qd.double(), ground)
    assert torch.equal(backend.q, q) and torch.equal(backend.qd, qd)
    assert torch.equal(backend.ground_point, ground[0].float()) and backend.q.dtype == torch.float32


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


@each_pair
def test_rows_of_a_snapshot_go_on_in_a_batch_of_another_size(name, robot_name):
    model, n = robot(robot_name), 4
    backend = backend_at(name, model, *random_state(model, n), ground=ground(model, n))
    for k in range(3):
        backend.step(push(model, n, k))
    rows = torch.tensor([2, 0, 2, 2, 3, 2])
    other = make_backend(name, model, len(rows))
    other.restore(backend.select_rows(backend.snapshot(), rows))
    assert torch.equal(other.q, backend.q[rows]) and torch.equal(other.qd, backend.qd[rows])
    for k in range(5):
        force = push(model, n, k)
        backend.step(force)
        other.step(force[rows])
    assert torch.equal(other.q[0], other.q[5]) and torch.equal(other.ground_normal, backend.ground_normal[rows])
    error = 0 if backend.rows_exact else 1e-4
    torch.testing.assert_close(other.q, backend.q[rows], atol=error, rtol=error)
    torch.testing.assert_close(other.qd, backend.qd[rows], atol=error, rtol=error)


@each_pair
@pytest.mark.parametrize("host_checks", [True, False])
def test_a_row_with_a_force_that_is_not_finite_is_held_and_reported(name, robot_name, host_checks):
    model, n = robot(robot_name), 8
    q, qd = random_state(model, n, height=CLEAR)
    clean, hurt = (backend_at(name, model, q, qd) for _ in range(2))
    hurt.host_checks = host_checks
    force = push(model, n)
    bad = force.clone()
    bad[2, -1] = float("nan")
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


@pytest.mark.parametrize("name", [name for name, robot_name in PAIRS if robot_name == "cartpole"])
def test_a_state_outside_the_stated_range_is_unhealthy(name):
    model = robot("cartpole")
    backend = backend_at(name, model, torch.zeros(2, 2), torch.zeros(2, 2))
    backend.step(torch.tensor([[1e9, 0.0], [0.0, 0.0]]))
    assert backend.healthy.tolist() == [False, True]
    assert torch.equal(backend.q[0], torch.zeros(2))


@each_pair
def test_threads_and_batch_size_do_not_change_the_bits(name, robot_name):
    model, n = robot(robot_name), 192
    q, qd = random_state(model, n)
    threads = [{"threads": count} for count in (1, 2)] if "threads" in backend_class(name).options else [{}, {}]
    one, two = (backend_at(name, model, q, qd, **options) for options in threads)
    part = backend_at(name, model, q[:3], qd[:3])
    for k in range(6):
        force = push(model, n, k)
        one.step(force)
        two.step(force)
        part.step(force[:3])
    assert torch.equal(one.q, two.q) and torch.equal(one.qd, two.qd)
    if one.rows_exact:
        assert torch.equal(one.q[:3], part.q)
    else:
        torch.testing.assert_close(one.q[:3], part.q, rtol=1e-4, atol=1e-4)


@each_backend
def test_wrong_shapes_and_options_are_named(name):
    model, options = some_robot(name), backend_class(name).options
    backend = make_backend(name, model, 4)
    with pytest.raises(ValueError, match=rf"joint_force has shape \(4, {model.nj + 1}\).*\(4, {model.nj}\)"):
        backend.step(torch.zeros(4, model.nj + 1))
    with pytest.raises(ValueError, match=r"mask has shape \(3,\)"):
        backend.reset(everyone(3), backend.q, backend.qd)
    with pytest.raises(ValueError, match=f"unknown option 'colour'.*valid: {', '.join(options)}"):
        make_backend(name, model, 4, colour=0)
    for option in (option for option in COUNTS if option in options):
        with pytest.raises(ValueError, match=f"{option} is 0"):
            make_backend(name, model, 4, **{option: 0})
    with pytest.raises(ValueError, match="num_envs is 0"):
        make_backend(name, model, 0)
    assert all(text and "\n" not in text for text in options.values())


def test_unknown_and_missing_backends(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown backend 'bullet'; valid: warp, mujoco"):
        backend_class("bullet")
    with pytest.raises(ValueError, match=r"unknown friction 'sticky'; valid: coulomb, huber"):
        make_backend("warp", robot("ant"), 1, friction="sticky")
    monkeypatch.setitem(BACKENDS, "ghost", Entry("ghost", "Ghost", ("no_such_package",), ""))
    with pytest.raises(ImportError, match=r"'ghost'.*pip install no_such_package"):
        backend_class("ghost")
