"""Contact as impulses: the conditions that they must meet, and motion that everyone knows."""

import pytest
import torch

from nerd_gym.physics.torch.contact import hunt_crossley
from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.physics.torch.impulse import Impulses, tangents
from nerd_gym.robots.model import RobotModel
from tests.support.grid import robot
from tests.support.states import ground, wide_state

BOX = """<mujoco><option timestep="0.002"/><worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body name="box" pos="0 0 {height}"><freejoint/><geom name="box" type="box" size=".1 .1 .05" mass="2"/></body>
</worldbody></mujoco>"""


@pytest.fixture
def box(tmp_path):
    path = tmp_path / "box.xml"
    path.write_text(BOX.format(height=0.05))
    return RobotModel.from_mjcf(path)


def moved(model, law, qd, seconds, dt=2e-3, height=0.0):
    """Boxes from their start at speeds [B][6], over a level plane: q, qd and heights [steps, B]."""
    engine = Articulated(model)
    qd = torch.tensor(qd, dtype=torch.float64)
    n = len(qd)
    q = torch.as_tensor(model.mj_model.qpos0.copy()).repeat(n, 1)
    q[:, 2] += height
    plane = torch.zeros(n, 3).double(), torch.tensor([[0.0, 0.0, 1.0]]).double().repeat(n, 1)
    heights = []
    for _ in range(round(seconds / dt)):
        q, qd = engine.substep(q, qd, q.new_zeros(n, 0), dt, plane, law)
        heights.append(q[:, 2])
    return q, qd, torch.stack(heights)


def test_impulses_meet_the_complementarity_conditions():
    """Of Ant in random contact, after many sweeps: no pull, no approach, friction in its cone and against the slip."""
    model = robot("ant")
    q, qd = (x.double() for x in wide_state(model, 64))
    engine, plane, dt = Articulated(model), tuple(x.double() for x in ground(model, 64)), 2e-3
    pose = engine.pose(q)
    points = engine.contact_points(q, pose, qd, plane)
    touching = points.depth > 0
    assert touching.any(-1).float().mean() > 0.3 and (touching.sum(-1) > 1).any()
    law = Impulses(friction=0.7, restitution=0.0, correction=0.0, softness=0.0, sweeps=400)
    H, bias = engine.mass_and_bias(pose, qd)
    free = qd - dt * torch.linalg.solve(H, bias)
    axes = torch.cat([points.normal, *tangents(points.normal)], -1).unflatten(-1, (3, 3))
    rows = torch.einsum("bcjx,bckx->bckj", points.jacobian, axes.expand(64, touching.shape[1], 3, 3))
    flat = rows.flatten(1, 2)
    A, v = flat @ torch.linalg.solve(H, flat.mT), (flat @ free[..., None])[..., 0]
    impulse = law.solve(A, v, points, dt)
    after = (A @ impulse.flatten(1)[..., None])[..., 0] + v
    push, drag = impulse[..., 0], impulse[..., 1:]
    gap, slip = after.unflatten(1, (-1, 3)).split((1, 2), -1)
    gap = gap[..., 0]
    size = drag.norm(dim=-1)
    assert (push >= 0).all() and (impulse[~touching] == 0).all()
    assert gap[touching].min() > -1e-3  # m/s, of a few
    assert (push * gap)[touching].abs().max() < 1e-2
    assert (size <= 0.7 * push + 1e-9).all()
    sliding = touching & (slip.norm(dim=-1) > 0.05) & (push > 1e-3)
    assert sliding.any()
    against = -(drag * slip).sum(-1) / (size * slip.norm(dim=-1)).clamp(min=1e-12)
    assert against[sliding].min() > 0.99
    assert torch.allclose(size[sliding], 0.7 * push[sliding], rtol=1e-3)


def test_a_box_slides_as_far_as_coulomb_says(box):
    """v^2 / (2 mu g), and not beyond; it does not sink."""
    mu = torch.tensor([[0.3], [0.6]], dtype=torch.float64)
    q, qd, heights = moved(box, Impulses(friction=mu, sweeps=20), [[1.0, 0, 0, 0, 0, 0]] * 2, 0.5, dt=2.5e-3)
    assert torch.allclose(q[:, 0], 1 / (2 * mu[:, 0] * 9.81), rtol=0.02)
    assert qd.abs().max() < 1e-3 and heights.min() > 0.0495


def test_a_box_rebounds_by_its_restitution(box):
    """Dropped flat from 20 cm, to the square of the restitution."""
    restitution = torch.tensor([[0.0], [0.5], [0.9]], dtype=torch.float64)
    law = Impulses(friction=0.0, restitution=restitution, correction=0.0, sweeps=20)
    _, _, heights = moved(box, law, [[0.0] * 6] * 3, 0.45, dt=1e-3, height=0.2)
    for height, e in zip(heights.T, restitution[:, 0], strict=True):
        lowest = int((height < 0.051).nonzero()[0])
        assert height[lowest:].max() - 0.05 == pytest.approx(0.2 * float(e) ** 2, abs=0.004)


def test_hunt_crossley_carries_the_weight(box):
    """At rest the depth of four corners is the weight's, and the friction opposes a slide."""
    gains = torch.tensor([1e5, 1.5, 5.0, 0.4, 0.5, 0.05], dtype=torch.float64)
    q, qd, _ = moved(box, hunt_crossley(gains), [[0.6, 0, 0, 0, 0, 0]], 0.5, dt=1e-3)
    depth = (2 * 9.81 / 4 / 1e5) ** (1 / 1.5)
    assert 0.05 - q[0, 2].item() == pytest.approx(depth, rel=0.02)
    assert qd[0, :3].abs().max() < 5e-3 and q[0, 0].item() == pytest.approx(0.36 / (2 * 0.42 * 9.81), rel=0.15)


def test_a_damped_contact_never_pulls():
    """Hunt and Crossley's damping grows with the depth's rate; leaving faster than that makes no force."""
    law = hunt_crossley(torch.tensor([1e4, 1.5, 2.0, 0.5, 0.5, 0.1]))
    depth, along = torch.full((1, 3), 0.01), torch.tensor([[-1.0, 0.0, 1.0]])
    push, _ = law(depth, along, torch.ones(1, 3))
    assert push[0, 0] > push[0, 1] > 0 and push[0, 2] == 0
