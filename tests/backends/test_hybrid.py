"""`hybrid`: the network decides collisions, once each, where they are within its range, and MuJoCo everything else."""

from __future__ import annotations

import shutil
from itertools import product

import pytest
import torch

from nerd_gym.backends import make_backend
from nerd_gym.collision import CollisionModel
from nerd_gym.collision.models.model import PRETRAINED
from nerd_gym.collision.scenes.frames import from_world, outcome_to_world, to_world
from nerd_gym.collision.scenes.robot import flat_pose, parameters_of, rest_height, scene_of, strike_robot
from nerd_gym.collision.scenes.shapes import SHAPES
from nerd_gym.compare import compare
from nerd_gym.envs.strike_goals import yaw_error
from tests.support.grid import robot
from tests.support.states import backend_at, everyone, make_vec

STRIKE = "NeRD/Strike-v0"
FRAME = 0.004


def before_touch(shape, columns, gap=0.001, yaw=0.4, **parameters):
    """The scene and states [N] whose strikers touch after `gap` metres along their way."""
    model, n = strike_robot(shape, **parameters), len(columns)
    block, turn = torch.tensor([[0.3, -0.2]]).repeat(n, 1), torch.full((n,), yaw)
    touch = to_world(SHAPES[shape], block, turn, columns)
    heading = touch.velocity / touch.velocity.norm(dim=-1, keepdim=True)
    q = torch.cat([flat_pose(block, turn, rest_height(model)), touch.position - gap * heading], 1)
    return model, q, torch.cat([torch.zeros(n, 6), touch.velocity], 1)


def hybrid_at(shape, columns, gap=0.001, slide_step=FRAME, parameters=None, **options):
    scene, q, qd = before_touch(shape, columns, gap, **(parameters or {}))
    backend = make_backend("hybrid", scene, len(q), slide_step=slide_step, threads=1, **options)
    backend.reset(everyone(len(q)), q, qd)
    return backend


def no_force(backend):
    return torch.zeros(backend.num_envs, 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_outcome_is_the_models_in_the_world(shape):
    columns = torch.tensor([[0.4, 0.01, 0.1], [0.9, -0.02, -0.3], [0.3, 0.0, 0.0]])
    backend = hybrid_at(shape, columns)
    before = scene_of(backend.q.clone())
    backend.step(no_force(backend))
    model, full = CollisionModel.packaged(shape), list(parameters_of(backend.robot).values())
    outcome = model.predict(torch.cat([columns, torch.tensor(full).expand(3, -1)], 1))
    world = outcome_to_world(to_world(SHAPES[shape], before.block, before.yaw, columns).normal, outcome)
    now = scene_of(backend.q)
    torch.testing.assert_close(now.block - before.block, world.displacement, atol=2e-6, rtol=1e-3)
    torch.testing.assert_close(now.yaw - before.yaw, world.rotation, atol=2e-5, rtol=1e-3)
    torch.testing.assert_close(backend.qd[:, :2], world.velocity, atol=2e-5, rtol=1e-3)
    torch.testing.assert_close(backend.qd[:, 5], world.omega, atol=1e-3, rtol=1e-3)
    assert not backend.info()["out_of_range"].any()


def test_where_between_two_physics_steps_they_meet_does_not_matter():
    columns = torch.tensor([[0.5, 0.3, 0.2]])
    poses = []
    for gap in (0.0001, 0.0007, 0.0013, 0.0019):
        backend = hybrid_at("semicylinder", columns, gap)
        backend.step(no_force(backend))
        poses.append(torch.cat([scene_of(backend.q).yaw[:, None], backend.q[:, :2], backend.qd[:, [0, 1, 5]]], 1))
    late = 0.5 * FRAME  # m, what a collision that is only noticed after the step is off by
    assert max((pose - poses[0])[:, 1:3].abs().max() for pose in poses) < 1e-3 * late
    for pose in poses:
        torch.testing.assert_close(pose, poses[0], atol=1e-5, rtol=1e-3)


def test_a_collision_happens_once_until_the_surfaces_have_parted():
    """A heavy damping ratio: the block is hardly faster than the striker, which follows it for many frames."""
    columns = torch.tensor([[0.3, 0.0, 0.0]])
    backend = hybrid_at("square", columns, parameters={"zeta_striker": 1.0, "mu_table": 0.1})
    calls, predict = [], backend.collisions.model.predict

    def counted(pre):
        calls.append(len(pre))
        return predict(pre)

    backend.collisions.model.predict = counted
    for _ in range(3):
        backend.step(no_force(backend))
        assert (SHAPES["square"].striker_gap(*scene_of(backend.q)) > 0).all()
    assert calls == [1]
    at_touch = hybrid_at("square", columns, gap=0.0)
    at_touch.collisions.model.predict = lambda pre: torch.zeros(len(pre), 7)  # an outcome that parts nothing
    start = at_touch.q.clone()
    for _ in range(4):
        at_touch.step(no_force(at_touch))
    assert (SHAPES["square"].striker_gap(*scene_of(at_touch.q)) < -0.003).all()  # the striker goes through
    torch.testing.assert_close(at_touch.q[:, :2], start[:, :2], atol=1e-6, rtol=0)  # and there is no force


def test_collisions_out_of_range_are_told_and_left_to_mujoco_or_extrapolated():
    columns = torch.tensor([[1.6, 0.2, 0.1], [0.6, 1.3, 0.0], [0.6, 0.2, 0.1]])  # too fast, too far around, within
    hybrid, extrapolated = (hybrid_at("semicylinder", columns, slide_step=0.00025, fallback=x) for x in (True, False))
    native = backend_at("mujoco", *before_touch("semicylinder", columns))
    for backend in (hybrid, extrapolated, native):
        for _ in range(5):
            backend.step(no_force(backend))
    for backend in (hybrid, extrapolated):
        assert backend.info()["out_of_range"].tolist() == [True, True, False]
    off = (hybrid.q - native.q)[:, :2].norm(dim=-1)
    other = (extrapolated.q - native.q)[:, :2].norm(dim=-1)
    assert (off[:2] == 0).all() and (other[:2] > 1e-3).all()  # with the same steps the same bits
    assert off[2] > 1e-4 and off[2] == other[2]


@pytest.mark.parametrize(
    ("parameters", "change"),
    [({"mu_table": 1.5}, None), ({}, "moving"), ({}, "inside")],
    ids=["friction", "a moving block", "a striker in the block"],
)
def test_what_else_is_out_of_range(parameters, change):
    columns = torch.tensor([[0.5, 0.2, 0.1]])
    model, q, qd = before_touch("semicylinder", columns, 0.002 if change == "inside" else 0.001, **parameters)
    if change == "moving":
        qd[:, 0] = 0.05
    if change == "inside":
        q[:, 7:9] += 0.004 * qd[:, 6:8] / 0.5
    backend = backend_at("hybrid", model, q, qd)
    backend.step(no_force(backend))
    assert backend.info()["out_of_range"].tolist() == [True]
    assert backend.q.isfinite().all() and backend.healthy.all()


def test_a_snapshot_in_the_middle_of_collisions_goes_on_to_the_bit():
    columns = torch.tensor([[1.6, 0.2, 0.1], [0.6, 0.2, 0.1], [0.6, 0.9, 0.1]])
    backend = hybrid_at("semicylinder", columns, 0.001)
    for _ in range(2):
        backend.step(no_force(backend))
    snapshot = backend.snapshot()
    futures = []
    for _ in range(2):
        for _ in range(6):
            backend.step(no_force(backend))
        futures.append(torch.cat([backend.q, backend.qd, backend.info()["out_of_range"][:, None]], 1))
        fresh = hybrid_at("semicylinder", columns, 0.1)
        fresh.restore(snapshot)
        backend = fresh
    assert torch.equal(futures[0], futures[1])


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_end_where_mujocos_do_in_a_fraction_of_the_steps(shape):
    action = 2 * torch.rand(64, 3, generator=torch.Generator().manual_seed(0)) - 1
    ends = {}
    for name in ("mujoco", "hybrid"):
        env = make_vec(STRIKE, 64, backend=name, shape=shape, autoreset_mode="Disabled")
        env.reset(seed=0)
        start = scene_of(env.backend.q.clone())
        *_, info = env.step(action)
        ends[name] = scene_of(env.backend.q.clone())
    off = (ends["hybrid"].block - ends["mujoco"].block).norm(dim=-1)
    travelled = (ends["mujoco"].block - start.block).norm(dim=-1)
    turned = yaw_error(ends["hybrid"].yaw, ends["mujoco"].yaw, 1).abs()
    assert off.median() < 0.002 and off.mean() < 0.1 * travelled.mean() and turned.median() < 0.03
    assert info["out_of_range"].dtype == torch.bool and not info["out_of_range"].any()


def test_it_is_compared_with_mujoco_strike_by_strike():
    result = compare(STRIKE, "zero", episodes=16)
    assert list(result.verdicts) == ["hybrid"]
    errors = {run.label: run.errors for run in result.runs[1:]}
    assert errors["hybrid"]["position"].mean() < 0.01


def test_a_model_from_a_file_is_used_and_one_of_another_shape_refused(tmp_path):
    path = tmp_path / "mine.safetensors"
    shutil.copy(PRETRAINED / "semicylinder.safetensors", path)
    columns = torch.tensor([[0.5, 0.2, 0.1]])
    own, packaged = hybrid_at("semicylinder", columns, model=path), hybrid_at("semicylinder", columns)
    for backend in (own, packaged):
        backend.step(no_force(backend))
    assert torch.equal(own.q, packaged.q) and own.facts["hash"] == packaged.facts["hash"]
    with pytest.raises(ValueError, match=r"semicylinder.*square|square.*semicylinder"):
        make_backend("hybrid", strike_robot("square"), 1, model=path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"slide_step": 0.003}, r"slide_step is 0.003; it must divide a frame of 0.004 s, for example 0.004, 0.002"),
        ({"slide_step": 0}, "slide_step is 0; it must divide"),
        ({"slide_step": "short"}, "slide_step is 'short'; it must divide"),
        ({"fallback": 1}, "fallback is 1; valid: True, False"),
        ({"substeps": 3}, "substeps is 3; it must be a multiple of the 4 physics steps"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        make_backend("hybrid", strike_robot("square"), 1, **({"slide_step": 0.001} | options))


@pytest.mark.parametrize("shape", SHAPES)
def test_strikes_at_the_ends_of_the_actions_are_in_range(shape):
    """What they are read back as from the simulation is rounded."""
    actions = torch.tensor(list(product((-1.0, 0.0, 1.0), (-1.0, 1.0), (-1.0, 1.0))))
    envs = make_vec(STRIKE, len(actions), backend="hybrid", shape=shape)
    envs.reset(seed=0)
    assert not envs.step(actions)[4]["out_of_range"].any()


def test_options_of_the_other_kind_of_robot_are_refused():
    with pytest.raises(ValueError, match=r"slide_step is 0.002; .*Strike-v0, and this is 'ant'"):
        make_backend("hybrid", robot("ant"), 1, slide_step=0.002)
    with pytest.raises(ValueError, match=r"teacher is 'mujoco'; .*articulated robots, and this is 'strike_square'"):
        make_backend("hybrid", strike_robot("square"), 1, teacher="mujoco")
    with pytest.raises(ValueError, match=r"no packaged model of the contacts of robot 'critter'"):
        make_backend("hybrid", robot("critter"), 1)


def test_columns_are_read_back_from_the_world():
    """What the sensor's touch is turned into is what the strike was made from."""
    columns = torch.tensor([[0.5, 0.01, 0.2], [0.8, -0.03, -0.4]])
    _, q, qd = before_touch("triangle", columns, 0.0)
    scene = scene_of(q)
    found, face, _ = from_world(SHAPES["triangle"], scene.block, scene.yaw, scene.striker, qd[:, 6:8])
    torch.testing.assert_close(found, columns, atol=1e-6, rtol=1e-5)
    assert face.tolist() == [0, 0]
