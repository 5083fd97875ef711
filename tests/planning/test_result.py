"""What is kept of a plan, and what it comes to on other backends."""

from __future__ import annotations

import json

import pytest
import torch

from nerd_gym.backends import backend_class, backends_for
from nerd_gym.planning import plan
from nerd_gym.planning.execution import env_at_start, execute, executions_table
from tests.support.grid import robot
from tests.support.states import make_vec

SMALL = {"candidates": 16, "iterations": 4}


@pytest.fixture(scope="module")
def reach():
    """A plan of Franka with torques, which begins in the middle of an episode."""
    env = make_vec("NeRD/Franka-v0", 2, backend="warp", control="torque")
    env.reset(seed=0)
    for _ in range(4):
        env.step(0.2 * torch.ones(env.action_space.shape))
    return plan(env, horizon=8, row=1, **SMALL)


def test_json_tells_everything(reach, tmp_path):
    reach.save(tmp_path / "plan.json", {"mine": 1})
    told = json.loads((tmp_path / "plan.json").read_text())
    assert told["env"] == "NeRD/Franka-v0" and told["backend"] == "warp" and told["options"] == {"control": "torque"}
    assert told["value"] == reach.value and told["mine"] == 1 and told["machine"]["cores"] >= 1
    assert torch.equal(torch.tensor(told["actions"]), reach.actions)
    assert torch.equal(torch.tensor(told["start"]["goal"]), reach.start.goal) and told["start"]["steps"] == 4
    assert [len(row) for row in told["values"]] == [16] * 4 and told["env_steps"] == 16 * 4 * 8
    assert max(map(max, told["values"])) == pytest.approx(told["value"])
    assert told["config"] | {"knots": 5, "horizon": 8, "method": "cma"} == told["config"]
    last = told["history"][-1]
    assert last["best_so_far"] == told["value"] and last["mean"] < last["best"] and last["env_steps"] == 16 * 4 * 8


@pytest.mark.parametrize("knots", [1, 4])
def test_plots_are_pictures(knots, tmp_path):
    """Of few numbers, and of many."""
    from PIL import Image

    found = plan("NeRD/PendulumContact-v0", horizon=5, knots=knots, **SMALL)
    assert (found.tried is None) == (knots == 4)
    found.plot(tmp_path / "plan.png")
    with Image.open(tmp_path / "plan.png") as picture:
        assert picture.width > 700 and len(picture.convert("RGB").getcolors(2**20)) > 50


def test_a_film_shows_every_step(tmp_path):
    import imageio.v2 as imageio

    found = plan("NeRD/Cartpole-v0", horizon=5, **SMALL)
    found.film(tmp_path / "plan.mp4")
    with imageio.get_reader(tmp_path / "plan.mp4") as film:
        pictures = [picture.astype(float) for picture in film]
    assert len(pictures) == 5 + 12  # its start is shown four times, its end eight times more
    assert abs(pictures[0] - pictures[-1]).mean() > 10 * abs(pictures[0] - pictures[3]).mean()


def test_a_plan_is_carried_out_from_its_start_on_every_backend(reach):
    labels = (*backends_for(robot("franka")), "mujoco:substeps=1")
    found = {e.backend: e for e in execute(reach, labels)}
    assert tuple(found) == labels
    assert found["warp"].value == pytest.approx(reach.value, abs=1e-5)
    for label, e in found.items():
        env = env_at_start(reach, label)
        assert torch.equal(env.backend.q[0], reach.start.q) and torch.equal(env.goal[0], reach.start.goal)
        assert env.task.config.control == "torque" and int(env.episode_steps[0]) == 4
        assert e.steps == 8 and e.ended == "all actions" and e.value == pytest.approx(reach.value, abs=0.3)
        assert (e.trust is not None) == backend_class(label.partition(":")[0]).learned
        assert "distance to target (m)" in e.measures
    assert found["mujoco"].value != found["mujoco:substeps=1"].value
    lines = executions_table(reach, list(found.values())).splitlines()
    assert len(lines) == 2 + len(labels) and lines[1].startswith("warp (planned)")
