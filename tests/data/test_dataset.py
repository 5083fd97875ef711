"""Datasets: what is in them, and that nothing is lost or changed by an interruption."""

import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import torch

from nerd_gym.backends import make_backend
from nerd_gym.cli import main
from nerd_gym.compare.demo import POLICIES
from nerd_gym.data import dataset
from nerd_gym.data.dataset import BLOCK, DatasetPlan, generate, is_task_block
from nerd_gym.data.excitation import KINDS, Sampler, ranges_for
from nerd_gym.data.reader import Data
from nerd_gym.data.task_rollouts import REFINING, STARTS, turns
from tests.support.grid import ROBOTS, robot
from tests.support.states import backend_at, everyone


def read(path):
    with h5py.File(path) as file:
        return {name: file[name][:] for name in file}, dict(file.attrs)


@pytest.mark.parametrize("name", ROBOTS)
def test_transitions_are_the_teachers(tmp_path, name):
    """A recorded start and its recorded forces lead through the recorded states."""
    path = tmp_path / "data.h5"
    counts = generate(DatasetPlan(robot(name), "warp", 1, frames=12), path)
    data, facts = read(path)
    assert facts["robot_hash"] == robot(name).hash and facts["backend"] == "warp"
    assert counts["trajectories"] + counts["dropped"] == BLOCK and counts["dropped"] < 0.02 * BLOCK
    tensors = {key: torch.as_tensor(value) for key, value in data.items()}
    n = counts["trajectories"]
    ground = None if robot(name).ground is None else (tensors["ground_point"], tensors["ground_normal"])
    teacher = backend_at("warp", robot(name), tensors["q"][:, 0], tensors["qd"][:, 0], ground)
    for frame in range(12):
        teacher.step(tensors["force"][:, frame])
        assert torch.equal(teacher.q, tensors["q"][:, frame + 1])
        assert torch.equal(teacher.qd, tensors["qd"][:, frame + 1])
    assert len(tensors["q"]) == n


def test_task_rollouts_are_the_teachers_and_of_all_kinds(tmp_path):
    """Rows that begin where the task begins: limp, at rest, random and driven, each as the backend really moved it."""
    policy = POLICIES / "ant" / "run-warp-seed0.safetensors"
    plan = DatasetPlan(robot("ant"), "warp", len(STARTS) * BLOCK * 10, frames=10, task_share=1.0, policies=(policy,))
    generate(plan, tmp_path / "a.h5")
    generate(plan, tmp_path / "b.h5")
    data, facts = read(tmp_path / "a.h5")
    for name, values in read(tmp_path / "b.h5")[0].items():
        np.testing.assert_array_equal(values, data[name])
    assert policy.name in facts["policies"] and facts["task_share"] == 1.0
    tensors = {key: torch.as_tensor(value) for key, value in data.items()}
    ground = tensors["ground_point"], tensors["ground_normal"]
    teacher = backend_at("warp", robot("ant"), tensors["q"][:, 0], tensors["qd"][:, 0], ground)
    for frame in range(10):
        teacher.step(tensors["force"][:, frame])
        assert torch.equal(teacher.q, tensors["q"][:, frame + 1])
    limp = (tensors["force"] == 0).all(-1).all(-1)
    assert 0.1 < limp[:-BLOCK].float().mean() < 0.3  # limp and at rest
    assert limp[-BLOCK:].all()  # the last kind of start
    speed = tensors["qd"][:, 0, 0]
    assert (speed.abs() < 0.2).any() and (speed > 2).any()  # at the start, and running after a while


def test_starts_can_be_chosen(tmp_path):
    """Passive ones alone: every row falls from the task's start, and nobody acts."""
    generate(
        DatasetPlan(robot("ant"), "warp", 2 * BLOCK * 3, frames=3, task_share=1.0, starts=("passive",)),
        tmp_path / "a.h5",
    )
    data, facts = read(tmp_path / "a.h5")
    assert len(data["q"]) == 2 * BLOCK and not data["force"].any() and facts["starts"] == "passive"
    assert np.abs(data["qd"][:, 0, :3]).max() < 1 and len(np.unique(data["q"][:, 0], axis=0)) == 2 * BLOCK


def test_blocks_of_a_task_are_spread_evenly():
    assert [is_task_block(0.4, block) for block in range(5)].count(True) == 2
    assert sum(is_task_block(0.4, block) for block in range(100)) == 40
    assert not any(is_task_block(0.0, block) for block in range(9)) and all(
        is_task_block(1.0, block) for block in range(9)
    )


def test_every_policy_is_given_every_kind_of_start():
    assert {turns(rollout, 3) for rollout in range(12)} == {(start, policy) for start in STARTS for policy in range(3)}
    assert [turns(rollout, 0)[0] for rollout in range(5)] == [*STARTS, STARTS[0]]
    assert {turns(rollout, 2, REFINING) for rollout in range(12)} == {(s, p) for s in REFINING for p in range(2)}


def test_task_rollouts_that_are_too_fast_are_left_out(tmp_path, monkeypatch):
    plan = DatasetPlan(robot("anymal"), "warp", 3 * BLOCK * 20, frames=20, task_share=1.0)
    monkeypatch.setattr(dataset, "WILD", 6.0)
    counts = generate(plan, tmp_path / "data.h5")
    rates = read(tmp_path / "data.h5")[0]["qd"][..., 6:]
    assert 0 < counts["dropped"] < 3 * BLOCK and np.abs(rates[:, 1:]).max() <= 6.0


def test_legged_data_has_the_published_ranges_too():
    wide = [ranges_for(robot("ant"), "wide", block) for block in range(10)]
    assert wide.count(ranges_for(robot("ant"), "reference")) == 2
    assert ranges_for(robot("franka"), "wide", 4) == ranges_for(robot("franka"), "wide")


def test_a_killed_run_goes_on_and_makes_the_same_file(tmp_path):
    plan = DatasetPlan(robot("cartpole"), "mujoco", 40 * BLOCK * 20, frames=20)
    whole, cut = tmp_path / "whole.h5", tmp_path / "cut.h5"
    generate(plan, whole)
    code = (
        "from pathlib import Path; from nerd_gym import RobotModel; from nerd_gym.data.dataset import *; "
        f"plan = DatasetPlan(RobotModel.named('cartpole'), 'mujoco', {plan.transitions}, frames=20); "
        f"generate(plan, Path({str(cut)!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    parts = tmp_path / "cut.h5.parts"
    while len(list(parts.glob("0*.h5"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {p.name: p.stat().st_mtime_ns for p in parts.glob("0*.h5")}
    assert 3 <= len(done) < plan.blocks and not cut.exists()
    made = []
    original = dataset.make_block
    dataset.make_block = lambda *args: made.append(args[2]) or original(*args)
    try:
        generate(plan, cut)
    finally:
        dataset.make_block = original
    assert len(made) == plan.blocks - len(done)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.h5", "whole.h5"]
    for a, b in zip(read(whole)[0].items(), read(cut)[0].items(), strict=True):
        assert a[0] == b[0]
        np.testing.assert_array_equal(a[1], b[1])


def test_a_file_of_another_plan_is_not_touched(tmp_path):
    path = tmp_path / "data.h5"
    generate(DatasetPlan(robot("cartpole"), "mujoco", 1, frames=3), path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"seed = .*0.*, not 1"):
        generate(DatasetPlan(robot("cartpole"), "mujoco", 1, frames=3, seed=1), path)
    assert generate(DatasetPlan(robot("cartpole"), "mujoco", 1, frames=3), path)["trajectories"] == BLOCK
    assert path.read_bytes() == before


def test_trajectories_that_diverge_are_dropped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("nerd_gym.backends.base.QD_LIMIT", 14.0)
    counts = generate(DatasetPlan(robot("cartpole"), "mujoco", 1, frames=20), tmp_path / "data.h5")
    data, facts = read(tmp_path / "data.h5")
    assert 0 < counts["dropped"] < BLOCK and facts["dropped"] == counts["dropped"]
    assert len(data["q"]) == BLOCK - counts["dropped"] and np.abs(data["qd"][:, 1:]).max() <= 14


@pytest.mark.parametrize("name", ["pendulum_contact", "ant", "anymal"])
def test_contact_is_no_rarity(name):
    """At least a fifth of the wide data touches the ground, none starts deep inside it."""
    model = robot(name)
    backend = make_backend("warp", model, BLOCK)
    sampler = Sampler(backend, ranges_for(model, "wide"), 0, 0)
    sampler.start()
    start = backend.contacts.distance.amin(-1)
    assert start.min() > -1e-3 and (start < 0.061).float().mean() > 0.4
    forces, touching = sampler.forces(60), 0.0
    for frame in range(60):
        backend.step(forces.at(frame, backend.q, backend.qd))
        touching += (backend.contacts.distance.amin(-1) < 0).float().mean().item() / 60
    assert touching > 0.2


def test_kinds_and_scales_of_force():
    model = robot("franka")
    backend = make_backend("mujoco", model, 1024)
    backend.reset(everyone(1024), backend.q, backend.qd)
    forces = Sampler(backend, ranges_for(model, "wide"), 0, 0).forces(40)
    pushed = torch.stack([forces.at(frame, backend.q, backend.qd) for frame in range(40)])
    limit = torch.as_tensor(model.force_limit, dtype=torch.float32)
    assert (pushed.abs() <= limit * 1.0001).all() and (pushed.abs() > 0.9 * limit).any()
    passive = (pushed == 0).all(0).all(-1).float().mean().item()
    constant = ((pushed[1:] == pushed[:-1]).float().mean(0).mean(-1) > 0.4).float().mean().item()
    assert passive == pytest.approx(KINDS["passive"], abs=0.04)
    assert constant > 0.3  # held and passive ones
    plain = Sampler(backend, ranges_for(model, "reference"), 0, 0).forces(40)
    white = torch.stack([plain.at(frame, backend.q, backend.qd) for frame in range(40)])
    assert (white[1:] != white[:-1]).all()


def test_command_line_takes_a_users_mjcf_and_names_wrong_input(tmp_path, capsys):
    mjcf = tmp_path / "mine.xml"
    mjcf.write_text(robot("cartpole").path.read_text())
    out = tmp_path / "mine.h5"
    assert (
        main(
            ["generate", str(mjcf), "--backend", "mujoco", "--transitions", "0.5k", "--frames", "5", "--out", str(out)]
        )
        == 0
    )
    assert read(out)[1]["robot"] == "mine"
    for args, message in (
        (["dog"], "unknown robot 'dog'"),
        (["ant", "--transitions", "many"], "'many' is not a count"),
        (["ant", "--preset", "odd"], "unknown preset 'odd'; valid: wide, reference"),
        (["ant", "--transitions", "0"], "'0' is not a count from 1"),
        (["ant", "--task-share", "2"], "the share of the task is 2.0; it must be from 0 to 1"),
        (["ant", "--starts", "odd"], "unknown start 'odd'; valid: start, later, displaced, passive"),
        (["franka", "--starts", "passive"], "starts are those of a robot's task, whose share is 0"),
        (["ant", "--policies", str(POLICIES / "anymal/forward-warp-seed0.safetensors")], "is a policy of NeRD/Anymal"),
        (["franka", "--policies", str(POLICIES / "ant/run-warp-seed0.safetensors")], "whose share is 0"),
    ):
        assert main(["generate", *args, "--out", str(tmp_path / "x.h5")]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("x.h5*"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("policies", "[1]"),
        ("policies", '[["a"]]'),
        ("policies", '{"ab": 1}'),
        ("backend_options", "[]"),
        ("policies", "["),
    ],
)
def test_facts_that_make_no_command_are_refused_by_name(name, text, tmp_path):
    path = tmp_path / "odd.h5"
    generate(DatasetPlan(robot("cartpole"), "mujoco", 1, frames=2), path)
    with h5py.File(path, "a") as file:
        file.attrs[name] = text
    with pytest.raises(ValueError, match=rf"odd\.h5 has {name} = "):
        Data.load(path, robot("cartpole"))
