"""NeRD/Strike-v0: what a strike does, how long a step lasts, goals and rewards."""

from __future__ import annotations

import math

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

from nerd_gym.collision.scenes.robot import scene_of, shape_of_robot, strike_robot
from nerd_gym.collision.scenes.shapes import SHAPES
from nerd_gym.envs.strike import AT_REST
from nerd_gym.envs.strike_goals import RADIUS, SEGMENT, SPREAD, TURNS, Goal, yaw_error
from nerd_gym.robots.features import UnsupportedRobot
from nerd_gym.robots.rotations import angle_of
from nerd_gym.wrappers import RecordVideo
from tests.support.states import make_vec

STRIKE = "NeRD/Strike-v0"
each_shape = pytest.mark.parametrize("shape", SHAPES)


def strikes(num_envs, seed=0, **options):
    env = make_vec(STRIKE, num_envs, backend="mujoco", autoreset_mode="Disabled", **options)
    env.reset(seed=seed)
    return env


def random_actions(n, seed=0):
    return 2 * torch.rand(n, 3, generator=torch.Generator().manual_seed(seed)) - 1


@each_shape
def test_a_step_ends_with_every_block_at_rest_near_where_it_was_and_the_striker_away(shape):
    env = strikes(32, shape=shape)
    before = scene_of(env.backend.q.clone())
    env.step(random_actions(32))
    now, speeds = scene_of(env.backend.q), env.backend.qd[:, :6].abs()
    assert (speeds[:, :3] <= AT_REST).all() and (0.05 * speeds[:, 3:] <= AT_REST).all()
    moved = (now.block - before.block).norm(dim=-1)
    assert (moved > 1e-3).all() and (moved < 1.0).all()
    assert (env.task.shape.striker_gap(*now) > 0.05).all()
    assert (env.backend.q[:, 4:6].abs() < 1e-3).all()  # it lies flat


@each_shape
def test_a_block_is_pushed_along_the_direction_and_farther_by_a_faster_striker(shape):
    env = strikes(3, shape=shape)
    state = env.backend.q.clone()[:1].repeat(3, 1), torch.zeros(3, env.backend.qd.shape[1])
    env.reset(seed=0, options={"state": state})
    env.step(torch.tensor([[0.0, -0.5, 0.0], [0.0, 0.0, 0.0], [0.0, 0.5, 0.0]]))
    moved = env.backend.q[:, :2] - state[0][:, :2]
    yaw = scene_of(state[0]).yaw
    inward = -torch.stack([yaw.cos(), yaw.sin()], -1)  # of the face, or the middle of the arc
    along = (moved * inward).sum(-1)
    assert (along > 0.999 * moved.norm(dim=-1)).all() and (along.diff() > 0.005).all()
    turned = yaw_error(scene_of(env.backend.q).yaw, yaw, 1)
    assert turned.abs().max() < 1e-3


def test_rows_that_rest_wait_for_the_others_to_the_bit():
    """A batch lasts as long as its longest strike; a short one ends as it does alone."""
    action = torch.tensor([[0.1, 1.0, 0.0], [0.1, -1.0, 0.2], [0.3, 0.2, -0.3]])
    both, alone = strikes(3), strikes(3)
    moving, own = [], both.backend.step

    def step(force, rows=None, frames=1):
        moving.append(3 if rows is None else int(rows.sum()))
        own(force, rows, frames)

    both.backend.step = step
    both.step(action)
    assert moving[0] == 3 and moving[-1] == 1 and sorted(moving, reverse=True) == moving
    action[[0, 2]] = -1.0
    alone.step(action)
    assert torch.equal(both.backend.q[1], alone.backend.q[1])


def test_a_step_is_bounded_where_nothing_brakes_the_block():
    env = strikes(2, mu_table=0.0)
    *_, info = env.step(torch.tensor([[0.0, 1.0, 0.0]] * 2))
    assert (env.backend.qd[:, :2].norm(dim=-1) > 0.5).all() and not info["diverged"].any()
    assert (env.backend.q[:, :2].norm(dim=-1) < 2 * env.task.frames * env.task.frame_dt).all()


@each_shape
def test_the_gap_is_mujocos(shape):
    model, generator = strike_robot(shape).mj_model, torch.Generator().manual_seed(0)
    data, n = mujoco.MjData(model), 200
    block, yaw = torch.rand(n, 2, generator=generator) / 10, 6 * torch.rand(n, generator=generator) - 3
    angle, far = 6.3 * torch.rand(n, generator=generator), 0.08 + 0.1 * torch.rand(n, generator=generator)
    striker = block + far[:, None] * torch.stack([angle.cos(), angle.sin()], -1)
    ours = SHAPES[shape].striker_gap(block, yaw, striker)
    # The cylinder goes on behind the flat side of a semicylinder; its prism does not, and has facets.
    side = model.geom("prism" if shape == "semicylinder" else "side").id
    for k in range(n):
        data.qpos[:] = [*block[k], 0.02, math.cos(yaw[k] / 2), 0, 0, math.sin(yaw[k] / 2), *striker[k]]
        mujoco.mj_kinematics(model, data)
        theirs = mujoco.mj_geomDistance(model, data, model.geom("striker").id, side, 1.0, None)
        assert ours[k].item() == pytest.approx(theirs, abs=1e-4)


def test_a_start_with_the_striker_in_the_block_is_refused_and_one_beside_a_corner_is_not():
    env = strikes(2, shape="triangle")
    q, qd = env.backend.q.clone(), torch.zeros_like(env.backend.qd)
    q[:, 3:7] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    q[0, 7:9] = q[0, :2] + torch.tensor([-0.0577 - 0.0125, 0.0])  # its corner is at -0.0577
    q[1, 7:9] = q[1, :2] + torch.tensor([0.0289 + 0.0115, 0.0])
    with pytest.raises(ValueError, match="the state of row 1 is not a start: the striker is inside the block"):
        env.reset(options={"state": (q, qd)})
    env.reset(options={"state": (q, qd), "reset_mask": torch.tensor([True, False])})
    assert torch.equal(env.backend.q[0], q[0])


def test_a_route_is_followed_from_sub_goal_to_sub_goal():
    """Blocks are put just before a sub-goal and pushed softly onto it."""
    env = strikes(2, task="route", route=2, shape="square")
    push = torch.tensor([[0.0, -1.0, 0.0]] * 2)
    for number in range(2):
        goal = Goal.of(env.goal)
        target = goal.point()
        assert (goal.index == number).all() and (goal.count == 2).all()
        q, qd = env.backend.q.clone(), torch.zeros_like(env.backend.qd)
        yaw = target[:, 2]
        heading = -torch.stack([yaw.cos(), yaw.sin()], -1)
        q[:, :2] = target[:, :2] - torch.tensor([[RADIUS + 0.001], [0.2]]) * heading
        q[:, 3:7] = torch.stack([(yaw / 2).cos(), 0 * yaw, 0 * yaw, (yaw / 2).sin()], -1)
        q[:, 7:9] = q[:, :2] - 0.2 * heading
        env.backend.reset(torch.ones(2, dtype=torch.bool), q, qd)
        _, _, terminated, _, info = env.step(push)
        terms = dict(zip(env.reward_terms, info["reward_terms"].T, strict=True))
        assert terms["orientation"][0] == pytest.approx(1.0, abs=0.02) and terms["orientation"][1] == 0
        assert terms["efficiency"].tolist() == [2.0, 0.0] and (terms["zone"] == 0).all()
        assert terminated.tolist() == [number == 1, False]
        assert Goal.of(env.goal).index.tolist() == [number + 1, number] and Goal.of(env.goal).strikes.tolist() == [0, 1]
        env.restore(env.snapshot() | {"goal": env.goal[:1].repeat(2, 1)})


def test_leaving_the_safe_zone_ends_the_episode_with_a_penalty():
    env = strikes(2, task="route", route=1)
    q, qd = env.backend.q.clone(), torch.zeros_like(env.backend.qd)
    q[:, 1] = torch.tensor([0.16, 0.1])
    env.reset(options={"state": (q, qd)})
    action = torch.tensor([[0.0, -1.0, 0.0]] * 2)
    _, _, terminated, _, info = env.step(action)
    zone = info["reward_terms"][:, env.reward_terms.index("zone")]
    assert zone.tolist() == [-1.0, 0.0] and terminated.tolist() == [True, False]


@pytest.mark.parametrize("route", [1, 2, 3, "random"])
def test_segments_are_as_long_and_turned_as_stated(route):
    goal = Goal.of(strikes(256, task="route", route=route).goal)
    steps = goal.points[:, 1:, :2] - goal.points[:, :-1, :2]
    lengths, heading = steps.norm(dim=-1), angle_of(steps[..., 1], steps[..., 0])
    assert ((lengths - SEGMENT).abs() <= SPREAD + 1e-6).all() and lengths.std() > 0.5 * SPREAD
    back = yaw_error(heading.flatten() + torch.pi, goal.points[:, 1:, 2].flatten(), 1)
    assert back.abs().max() < 1e-5  # where the struck side looks
    if route == "random":
        assert set(goal.count.tolist()) == {1, 2, 3} and heading[:, 0].abs().max() < 1e-6
    else:
        given = torch.tensor(TURNS[route])
        assert (goal.count == len(given)).all()
        torch.testing.assert_close(heading[:, : len(given)], given.cumsum(0).expand(256, -1), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shape": "ball"}, "unknown shape 'ball'; valid: 'semicylinder', 'square', 'triangle'"),
        ({"route": 4}, "unknown route 4; valid: 'random', 1, 2, 3"),
        ({"mu_table": -0.1}, "mu_table is -0.1; it must be a number from 0 to 2"),
        ({"zeta_striker": "soft"}, "zeta_striker is 'soft'; it must be a number from 0.01 to 5"),
        ({"zeta_striker": float("nan")}, "zeta_striker is nan; it must be a number from 0.01 to 5"),
    ],
)
def test_wrong_options_are_named_with_the_valid_ones(options, words):
    with pytest.raises(ValueError, match=words):
        make_vec(STRIKE, 1, **options)


def test_it_runs_on_mujoco_unless_told_otherwise_and_not_on_warp():
    assert gymnasium.make(STRIKE).unwrapped.backend.name == "mujoco"
    with pytest.raises(UnsupportedRobot, match="a second moving tree beside the free base"):
        gymnasium.make(STRIKE, backend="warp")


def test_options_of_friction_change_the_motion_and_the_hash():
    plain, slippery = strikes(1), strikes(1, mu_table=0.15)
    for env in (plain, slippery):
        env.step(torch.tensor([[0.0, 0.0, 0.0]]))
    far = [env.backend.q[0, :2].norm().item() for env in (plain, slippery)]
    assert far[1] > 1.5 * far[0] and plain.backend.robot.hash != slippery.backend.robot.hash
    assert shape_of_robot(slippery.backend.robot).name == "semicylinder"


def test_a_film_shows_the_slide_and_not_only_how_it_ends(tmp_path):
    env = RecordVideo(strikes(1), tmp_path / "strike.gif")
    shown = []
    env.unwrapped.renderer.frame = lambda inner, row: (
        shown.append(inner.backend.q[row, :2].clone()) or np.zeros((8, 8, 3), np.uint8)
    )
    env.reset(seed=0)
    env.step(torch.tensor([[0.0, 0.5, 0.0]]))
    places = torch.stack(shown).norm(dim=-1)
    assert len(shown) >= 4 and (places.diff() >= 0).all() and places[2] < 0.98 * places[-1]
    env.close()
    assert (tmp_path / "strike.gif").stat().st_size > 0
