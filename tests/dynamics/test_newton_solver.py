"""SolverNeRD in plain Newton scenes moves robots as backend `neural` does, and refuses what it cannot move."""

from __future__ import annotations

import subprocess
import sys

import newton
import numpy as np
import pytest
import torch
import warp as wp

from nerd_gym import RobotModel, make_backend
from nerd_gym.dynamics import SolverNeRD
from nerd_gym.dynamics.models.base import kind_of
from nerd_gym.dynamics.models.checkpoint import PRETRAINED, save_model
from nerd_gym.physics.warp.newton_state import to_newton
from tests.support.examples import example
from tests.support.grid import robot
from tests.support.states import everyone, random_state

PACKAGED = sorted(path.stem for path in PRETRAINED.glob("*.safetensors"))
# Whose prior has springs for contacts: they throw a robot that starts deep in the ground out of the healthy range.
PENALTY = ("ant-warp", "anymal-warp", "anymal-warp-reference")
WORLDS = 5
SMALL = {
    "mlp": {"width": 16, "depth": 1},
    "transformer": {"layers": 1, "heads": 2, "width": 16, "window": 4},
}


def builder(model: RobotModel, gravity=None) -> newton.ModelBuilder:
    gravity = tuple(model.mj_model.opt.gravity) if gravity is None else gravity
    return newton.ModelBuilder(up_axis=newton.Axis.Z, gravity=gravity)


def one_robot(model: RobotModel, ground: bool = True) -> newton.ModelBuilder:
    one = builder(model)
    one.add_mjcf(str(model.path), collapse_fixed_joints=True, ignore_names=() if ground else ("ground",))
    return one


def scene(model: RobotModel, worlds: int = WORLDS, **options) -> newton.Model:
    whole = builder(model)
    whole.replicate(one_robot(model), worlds, **options)
    return whole.finalize()


def tilted(worlds: int, height: float = 1.2) -> tuple[torch.Tensor, torch.Tensor]:
    """A plane for each world, across the way of a falling pendulum."""
    across = torch.linspace(-0.3, 0.3, worlds)
    normal = torch.nn.functional.normalize(torch.stack([across, 0.5 * across, torch.ones(worlds)], -1), dim=-1)
    return torch.tensor([0.0, 0.0, height]).repeat(worlds, 1), normal


def tilted_scene(model: RobotModel, point: torch.Tensor, normal: torch.Tensor) -> newton.Model:
    whole, one = builder(model), one_robot(model, ground=False)
    for p, n in zip(point, normal, strict=True):
        whole.begin_world()
        whole.add_builder(one)
        whole.add_shape_plane((*n.tolist(), -float(n @ p)), width=0.0, length=0.0)
        whole.end_world()
    return whole.finalize()


def rows(array: wp.array, worlds: int = WORLDS) -> torch.Tensor:
    return wp.to_torch(array).view(worlds, -1)


def put(model: newton.Model, it: RobotModel, q: torch.Tensor, qd: torch.Tensor) -> newton.State:
    state = model.state()
    for array, value in zip((state.joint_q, state.joint_qd), to_newton(it, q, qd), strict=True):
        rows(array, len(q)).copy_(value)
    return state


def fresh_model(path, it: RobotModel, kind: str):
    """A small network as it is before training."""
    facts = {"kind": kind, "robot": it.name, "robot_hash": it.hash, "frame_dt": it.frame_dt}
    facts |= {"teacher": "warp", "network": SMALL[kind]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tensors = kind_of(kind)(it, {}, facts).tensors()
    last = [name for name in tensors if name.startswith("network.") and name.endswith("weight")][-1]
    tensors[last] *= 20 if kind == "transformer" else 1  # so that the past weighs something
    save_model(path, tensors, facts)
    return path


def compare(
    it: RobotModel, model: newton.Model, solver: SolverNeRD, backend, frames: int, tolerance: float, held: bool = False
) -> None:
    """The same start and the same forces, frame by frame; then the poses that a viewer draws.

    held: whether robots leave the healthy range, where both hold them.
    """
    n = model.world_count
    always = everyone(n)
    q, qd = random_state(it, n, speed=2.0)
    backend.reset(everyone(n), q, qd, solver.ground)
    now, after, control = put(model, it, q, qd), model.state(), model.control()
    limit = torch.as_tensor(it.force_limit, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    for frame in range(frames):
        force = 0.2 * limit * (2 * torch.rand(n, it.nj, generator=generator) - 1)
        rows(control.joint_f, n)[:, it.joint_qd] = force
        backend.step(force)
        out = now if frame >= frames // 2 else after  # half of the frames in place
        solver.step(now, out, control, None, it.frame_dt)
        now, after = out, now if out is not now else after
        expected = to_newton(it, backend.q, backend.qd)
        for array, value in zip((now.joint_q, now.joint_qd), expected, strict=True):
            torch.testing.assert_close(rows(array, n), value, rtol=tolerance, atol=tolerance)
            if it.free_base:  # on legs the rounding of the conversions would grow from frame to frame
                rows(array, n).copy_(value)
        torch.testing.assert_close(solver.model_trust, backend.info()["model_trust"], rtol=0, atol=1e-3)
        assert torch.equal(solver.healthy, backend.healthy)
        always &= backend.healthy
    assert bool(always.all()) != held and (backend.q - q).abs().amax() > 0.05
    last = it.mj_model.nbody - 1
    place = backend.poses[:, backend.kinematics.frame_of_body[last], :3, 3]
    bodies = wp.to_torch(now.body_q).view(n, -1, 7)
    torch.testing.assert_close(bodies[:, -1, :3], place, rtol=0, atol=1e-5)


@pytest.mark.parametrize("stem", PACKAGED)
def test_moves_as_the_neural_backend(stem):
    it, path = robot(stem.split("-")[0]), PRETRAINED / f"{stem}.safetensors"
    if it.ground is None:
        model = scene(it)
    else:
        point, normal = tilted(WORLDS, 0.3 if stem in PENALTY else 1.2)
        model = tilted_scene(it, point, normal)
    solver = SolverNeRD(model, it, path)
    if it.ground is not None:
        torch.testing.assert_close(solver.ground[1], normal, rtol=0, atol=1e-6)
        off = ((solver.ground[0] - point) * normal).sum(-1)
        torch.testing.assert_close(off, torch.zeros(WORLDS), rtol=0, atol=1e-6)
    frames, tolerance = (10, 3e-4) if it.free_base else (50, 1e-6)
    compare(it, model, solver, make_backend("neural", it, WORLDS, model=path), frames, tolerance)


def test_robots_outside_the_healthy_range_are_held_and_others_move():
    """Over ground at this height some of the robots start deep in it."""
    it, path = robot("anymal"), PRETRAINED / "anymal-warp-reference.safetensors"
    model = tilted_scene(it, *tilted(WORLDS, 0.8))
    backend = make_backend("neural", it, WORLDS, model=path)
    compare(it, model, SolverNeRD(model, it, path), backend, 10, 3e-4, held=True)


@pytest.mark.parametrize("name", ["anymal", "pendulum_contact"])
def test_free_bases_and_grounds_of_their_own(name, tmp_path):
    """ANYmal's base has its centre of mass off its origin, where the two conventions of velocity differ."""
    it = robot(name)
    path = fresh_model(tmp_path / "mlp.safetensors", it, "mlp")
    model = scene(it) if it.free_base else tilted_scene(it, *tilted(WORLDS))
    solver = SolverNeRD(model, it, path)
    # A network of features near the ground may part by rounding; conversions cost float32 rounding in every frame.
    compare(it, model, solver, make_backend("neural", it, WORLDS, model=path), 10, 2e-5)


def test_a_reset_forgets_the_past_of_its_worlds_alone(tmp_path):
    it = robot("cartpole")
    path = fresh_model(tmp_path / "transformer.safetensors", it, "transformer")
    model = scene(it)
    solver, backend = SolverNeRD(model, it, path), make_backend("neural", it, WORLDS, model=path)
    compare(it, model, solver, backend, 6, 1e-6)
    state, kept = put(model, it, backend.q, backend.qd), model.state()
    solver.step(state, kept, None, None, it.frame_dt)
    solver, backend = SolverNeRD(model, it, path), make_backend("neural", it, WORLDS, model=path)
    compare(it, model, solver, backend, 6, 1e-6)
    some = torch.tensor([False, True, False, True, False])
    solver.reset(state, wp.array([*some.tolist(), False], dtype=wp.bool))
    backend.reset(some, backend.q, backend.qd)
    anew = model.state()
    solver.step(state, anew, None, None, it.frame_dt)
    backend.step(torch.zeros(WORLDS, it.nj))
    torch.testing.assert_close(rows(anew.joint_q), backend.q, rtol=0, atol=1e-6)
    changed = (rows(anew.joint_qd) != rows(kept.joint_qd)).any(-1)
    assert changed.tolist() == some.tolist()


def test_places_of_the_robots_do_not_matter():
    it = robot("cartpole")
    ends = []
    for spacing in ((0.0, 0.0, 0.0), (2.0, 3.0, 0.0)):
        model = scene(it, spacing=spacing)
        state = put(model, it, *random_state(it, WORLDS))
        solver = SolverNeRD(model, it)
        for _ in range(5):
            solver.step(state, state, None, None, it.frame_dt)
        ends.append(rows(state.joint_q).clone())
    assert torch.equal(*ends)


def test_ground_is_found_from_each_robots_place(tmp_path):
    it = robot("pendulum_contact")
    path = fresh_model(tmp_path / "mlp.safetensors", it, "mlp")
    whole = builder(it)
    whole.replicate(
        one_robot(it, ground=False), 2, xforms=[wp.transform((0, 0, h), wp.quat_identity()) for h in (0, 1)]
    )
    whole.add_ground_plane(height=0.5)
    solver = SolverNeRD(whole.finalize(), it, path)
    point, normal = solver.ground
    assert (point * normal).sum(-1).tolist() == pytest.approx([0.5, -0.5])
    solver.model.gravity.zero_()
    with pytest.raises(ValueError, match="gravity"):
        solver.notify_model_changed(newton.ModelFlags.MODEL_PROPERTIES)


def test_another_dt_is_refused():
    it = robot("cartpole")
    model = scene(it, 1)
    solver, state = SolverNeRD(model, it), model.state()
    with pytest.raises(ValueError, match=r"0\.00333333 s.*0\.0166667 s"):
        solver.step(state, state, None, None, it.timestep)


def test_other_robots_are_refused(tmp_path):
    it = robot("cartpole")
    with pytest.raises(ValueError, match=r"14 joint coordinates.*have 4 and 4"):
        SolverNeRD(scene(robot("franka"), 2), it)
    text = it.path.read_text()
    for old, new, message in (
        ("cart_to_pole", "hinge", "'hinge' where robot 'cartpole' has 'cart_to_pole'"),
        ('<body name="pole">', '<body name="pole" pos="0 0 0.1">', "'pole' stands 0.1 off"),
        ('axis="0 1 0"', 'axis="1 0 0"', "'pole' stands"),
    ):
        path = tmp_path / "other.xml"
        path.write_text(text.replace(old, new))
        assert path.read_text() != text
        with pytest.raises(ValueError, match=message):
            SolverNeRD(scene(RobotModel.from_mjcf(path)), it)
    weightless = builder(it, gravity=(0.0, 0.0, 0.0))
    weightless.add_mjcf(str(it.path))
    with pytest.raises(ValueError, match="gravity is"):
        SolverNeRD(weightless.finalize(), it)


@pytest.mark.parametrize(("extra", "count"), [(1, 2), (-1, 0)])
def test_a_world_has_one_ground(extra, count, tmp_path):
    it = robot("pendulum_contact")
    path = fresh_model(tmp_path / "mlp.safetensors", it, "mlp")
    whole = builder(it)
    whole.replicate(one_robot(it, ground=extra > 0), 2)
    if extra > 0:
        whole.add_ground_plane()
    with pytest.raises(ValueError, match=f"world 0 has {count} ground planes"):
        SolverNeRD(whole.finalize(), it, path)


@pytest.mark.slow
def test_the_example_runs(capsys):
    example("newton_solver").main(["cartpole", "--worlds", "2", "--frames", "10"])
    printed = capsys.readouterr().out
    apart = [float(line.split("apart by ")[1].split()[0]) for line in printed.splitlines() if "apart" in line]
    assert len(apart) == 2 and np.max(apart) < 1e-5


def test_importing_the_package_does_not_start_newton():
    code = "import sys, nerd_gym.dynamics; assert not {'newton', 'warp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
