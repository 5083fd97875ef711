"""Strikes of blocks anywhere on the table."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from nerd_gym.collision.scenes.columns import draw
from nerd_gym.collision.scenes.frames import from_world, outcome_to_world, rotate, to_world
from nerd_gym.collision.scenes.mjcf import scene_model
from nerd_gym.collision.scenes.shapes import SHAPES
from nerd_gym.collision.scenes.simulate import CollisionSimulator
from tests.support.device import away_from_the_host


@pytest.fixture(params=list(SHAPES))
def placed(request):
    """A shape, blocks somewhere, strikes and faces."""
    shape, generator = SHAPES[request.param], torch.Generator().manual_seed(0)
    count = 40
    low, high = torch.tensor([0.1, -shape.reach, -0.5]), torch.tensor([1.0, shape.reach, 0.5])
    strikes = low + (high - low) * torch.rand(count, 3, generator=generator)
    block, yaw = torch.randn(count, 2, generator=generator), 6 * torch.rand(count, generator=generator) - 3
    return shape, block, yaw, strikes, torch.randint(shape.faces, (count,), generator=generator).float()


def test_a_strike_is_found_again_in_the_world(placed):
    shape, block, yaw, strikes, face = placed
    world = to_world(shape, block, yaw, strikes, face)
    found, where, normal = from_world(shape, block, yaw, world.position, world.velocity)
    torch.testing.assert_close(found, strikes, atol=1e-5, rtol=1e-4)
    assert torch.equal(where, face)
    torch.testing.assert_close(normal, world.normal, atol=1e-5, rtol=1e-4)


def test_the_striker_touches_the_block_in_mujoco(placed):
    """MuJoCo's own distance of the geoms, at a gap of 1 mm."""
    shape, block, yaw, strikes, face = placed
    model = scene_model(shape)
    data = mujoco.MjData(model)
    world = to_world(shape, block, yaw, strikes, face, gap=0.001)
    for k in range(10):
        data.qpos[:2] = block[k]
        data.qpos[3:7] = [math.cos(yaw[k] / 2), 0, 0, math.sin(yaw[k] / 2)]
        data.qpos[7:9] = world.position[k]
        mujoco.mj_kinematics(model, data)
        geoms = model.geom("striker").id, model.geom("side").id
        assert mujoco.mj_geomDistance(model, data, *geoms, 1.0, None) == pytest.approx(0.001, abs=1e-5)


def test_outcomes_in_the_world_keep_their_size(placed):
    shape, block, yaw, strikes, face = placed
    outcome = torch.randn(len(strikes), 7, generator=torch.Generator().manual_seed(1))
    world = to_world(shape, block, yaw, strikes, face)
    found = outcome_to_world(world.normal, outcome)
    torch.testing.assert_close((found.velocity * world.normal).sum(-1), outcome[:, 0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.displacement.norm(dim=-1), outcome[:, 3:5].norm(dim=-1))
    assert torch.equal(found.omega, outcome[:, 2]) and torch.equal(found.duration, outcome[:, 6])


def test_a_collision_in_mujoco_moves_the_block_as_its_outcome_says(placed):
    """Seen from the block at rest, whose frame is the world's."""
    shape = placed[0]
    pre = draw(shape, 8, np.random.default_rng(0))
    outcome = torch.from_numpy(CollisionSimulator(shape, 8, 1)(pre))
    zero = torch.zeros(8, dtype=torch.float64)
    world = to_world(shape, torch.zeros(8, 2, dtype=torch.float64), zero, torch.from_numpy(pre[:, :3]))
    found = outcome_to_world(world.normal, outcome)
    forward = (found.velocity * world.velocity).sum(-1)
    assert (forward > 0).all() and (outcome[:, 3] > 0).all()


def test_nothing_is_brought_to_the_host(placed):
    shape, block, yaw, strikes, face = placed
    with away_from_the_host():
        world = to_world(shape, block, yaw, strikes, face)
        from_world(shape, block, yaw, world.position, world.velocity)
        rotate(block, yaw)
