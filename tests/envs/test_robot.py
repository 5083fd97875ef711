"""A robot of one's own: NeRD/Robot-v0, and nerd-gym train --mjcf from nothing to a learned environment."""

import warnings

import gymnasium
import numpy as np
import pytest
import torch

from nerd_gym.cli import main
from nerd_gym.dynamics.models.checkpoint import load_model
from nerd_gym.policies.facts import trained_for
from nerd_gym.policies.policy import Policy
from nerd_gym.registration import ENVS, PACKAGED
from tests.support.grid import CRITTER, OWN_VARIANTS, ROOT, robot
from tests.support.states import make_vec

ROBOT = "NeRD/Robot-v0"
ARM = ROOT / "examples" / "three_link_arm.xml"


def own(num_envs: int, backend: str = "mujoco", **options):
    return make_vec(ROBOT, num_envs, backend=backend, mjcf=CRITTER, **options)


def changed(tmp_path, *pairs):
    """The critter with parts of its text replaced."""
    text = CRITTER.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "changed.xml"
    path.write_text(text)
    return path


def test_ids_that_need_an_option_are_told_apart():
    assert ENVS[ROBOT].requires == ("mjcf",) and ENVS[ROBOT].robot_name is None
    assert set(ENVS) - set(PACKAGED) == {ROBOT}
    assert ENVS[ROBOT].robot({"mjcf": str(CRITTER), "threads": 1}).name == "critter"


def test_what_is_no_robot_for_it_is_told(tmp_path):
    no_ground = changed(
        tmp_path, ('type="plane" size="0 0 1" contype="0" conaffinity="1"', 'type="plane" size="0 0 1"')
    )
    no_ground.write_text(no_ground.read_text().replace('rgba="0 0 0 0"', 'rgba="0 0 0 0" contype="0" conaffinity="0"'))
    broken = tmp_path / "broken.xml"
    broken.write_text("<mujoco>")
    for options, error, message in (
        ({}, ValueError, r"mjcf is None; NeRD/Robot-v0 needs the path of your robot's MJCF"),
        ({"mjcf": 3}, ValueError, "mjcf is 3; NeRD/Robot-v0 needs the path"),
        ({"mjcf": "nowhere.xml"}, FileNotFoundError, r"no MJCF file at .*nowhere.xml"),
        ({"mjcf": broken}, ValueError, "broken.xml is not a valid MJCF"),
        ({"mjcf": ARM}, ValueError, r"three_link_arm.xml lacks .*a free base .*a ground"),
        ({"mjcf": no_ground}, ValueError, r"changed.xml lacks what NeRD/Robot-v0 needs: a ground"),
        ({"mjcf": CRITTER, "task": "run"}, ValueError, "unknown task 'run'; valid: 'stand', 'track'"),
        ({"mjcf": CRITTER, "control": "torque"}, ValueError, "unknown control 'torque'; valid: 'position', 'force'"),
        ({"mjcf": CRITTER, "speed": 0}, ValueError, "speed is 0; it must be a number above 0"),
        ({"mjcf": CRITTER, "stiffness": "much"}, ValueError, "stiffness is 'much'; it must be a number above 0"),
        ({"mjcf": CRITTER, "backend": "neural"}, ValueError, r"no packaged model of robot 'critter'.*train --mjcf"),
    ):
        with pytest.raises(error, match=message):
            gymnasium.make(ROBOT, **options)
        with pytest.raises(error, match=message):
            gymnasium.make_vec(ROBOT, num_envs=2, **options)


@pytest.mark.parametrize("options", OWN_VARIANTS)
@pytest.mark.parametrize("backend", ["warp", "mujoco"])
def test_checkers_of_rl_libraries_have_no_complaint(backend, options):
    sb3_checker = pytest.importorskip("stable_baselines3.common.env_checker")
    torchrl_envs = pytest.importorskip("torchrl.envs")
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        sb3_checker.check_env(gymnasium.make(ROBOT, backend=backend, **options), warn=True, skip_render_check=True)
    told = [str(w.message) for w in record]
    assert [text for text in told if "infinit" not in text and "Box obs" not in text] == []
    env = gymnasium.make_vec(ROBOT, num_envs=4, backend=backend, array="torch", **options)
    torchrl_envs.check_env_specs(torchrl_envs.GymWrapper(env, device="cpu", convert_actions_to_numpy=False))


@pytest.mark.parametrize("backend", ["warp", "mujoco"])
def test_the_start_pose_stands_upright_on_the_ground_and_is_held(backend):
    env = own(64, backend)
    obs, _ = env.reset(seed=0)
    assert env.backend.contacts.distance.amin(-1).abs().max() < 1e-5  # set down, not dropped
    key = torch.as_tensor(env.task.robot.mj_model.key_qpos[0], dtype=torch.float32)
    assert (env.backend.q[:, 7:] - key[7:]).abs().max() <= 0.1 + 1e-6
    assert (obs[:, 2] < -0.99).all()  # gravity points down in the base's frame
    for _ in range(120):
        obs, reward, terminated, *_ = env.step(torch.zeros(env.action_space.shape))
        assert not terminated.any()
    assert obs[:, 3:9].abs().max() < 0.05  # at rest
    (error,) = env.measures().values()
    assert error.max() < 0.2 * env.task.start_height
    assert reward.min() > 1.4


def test_joint_forces_are_springs_to_the_pose_within_the_limits():
    env = own(8, stiffness=1.0)
    env.reset(seed=0)
    task, (q, qd) = env.task, (env.backend.q, env.backend.qd)
    pose = torch.as_tensor(task.robot.mj_model.key_qpos[0, 7:], dtype=torch.float32)
    action = torch.linspace(-1.5, 1.5, 8)[:, None].expand(8, 8)
    force = task.joint_force(action, env.state)
    expected = 3.0 * (pose + 0.5 * action.clamp(-1, 1) - q[:, 7:]) - 0.15 * qd[:, 6:]
    torch.testing.assert_close(force, expected.clamp(-3, 3))
    facts = task.actuation
    assert facts["kind"] == "position" and facts["unit"] == "rad" and facts["limit"] == [3.0] * 8
    direct = own(8, control="force", action_scale=0.5)
    direct.reset(seed=0)
    torch.testing.assert_close(direct.task.joint_force(action, direct.state), 1.5 * action.clamp(-1, 1))


def test_gains_of_a_joint_too_light_for_its_motor_are_smaller(tmp_path):
    light = changed(tmp_path, ('armature="0.006"', 'armature="0"'))
    env = make_vec(ROBOT, 16, backend="mujoco", mjcf=light)
    full = own(1).task.actuation["stiffness"]
    assert max(env.task.actuation["stiffness"]) < min(full) == 6.0
    env.reset(seed=0)
    for _ in range(60):
        obs, *_ = env.step(torch.zeros(16, 8))
    assert torch.isfinite(obs).all() and obs[:, -8:].abs().max() < 5.0


def test_a_turned_base_frame_changes_nothing_that_a_policy_sees(tmp_path):
    """The axes are those of the start pose, however the MJCF turns its base."""
    turned = changed(tmp_path, ("0 0 0.15 1 0 0 0 0 0.1", "0 0 0.15 0 0 0 1 0 0.1"))
    plain, half = own(4, task="track"), make_vec(ROBOT, 4, backend="mujoco", mjcf=turned, task="track")
    q, qd = (x.clone() for x in (plain.backend.q, plain.backend.qd))
    q[:, 2] = 0.4
    qd[:] = torch.randn(qd.shape, generator=torch.Generator().manual_seed(0))
    start = {"state": (q, qd)}
    obs, _ = plain.reset(seed=0, options=start)
    about = q.clone()
    about[:, 3:7] = torch.tensor([0.0, 0, 0, 1])
    flip = torch.tensor([-1.0, -1, 1])
    moved = torch.cat([qd[:, :3], qd[:, 3:6] * flip, qd[:, 6:]], -1)  # the same motion seen from the turned body
    same, _ = half.reset(seed=0, options={"state": (about, moved)})
    torch.testing.assert_close(same, obs, atol=1e-5, rtol=1e-5)


def test_commands_cover_the_stated_ranges_and_are_what_is_rewarded():
    env = own(4000, task="track", speed=0.8, turn=0.4)
    obs, _ = env.reset(seed=0)
    largest = torch.tensor([0.8, 0.4, 0.4])
    assert torch.equal(obs[:, -3:], env.goal)
    assert (env.goal.abs() <= largest).all() and (env.goal.abs().amax(0) > 0.98 * largest).all()
    q, qd = env.backend.q.clone(), torch.zeros_like(env.backend.qd)
    q[:, 3:7] = torch.tensor([1.0, 0, 0, 0])
    qd[:, :2], qd[:, 5] = env.goal[:, :2], env.goal[:, 2]
    env.backend.reset(torch.ones(4000, dtype=torch.bool), q, qd)
    nothing = torch.zeros(4000, 8)
    reward, terms = env.task.reward(env.state, nothing, nothing)
    torch.testing.assert_close(reward, torch.full((4000,), 1.5), atol=1e-4, rtol=0)
    assert set(terms) == {"velocity", "turn", "effort"} == set(env.reward_terms)


def test_a_fallen_robot_terminates():
    env = own(3)
    env.reset(seed=0)
    q, qd = env.backend.q.clone(), torch.zeros_like(env.backend.qd)
    q[:, 3:7] = torch.tensor([1.0, 0, 0, 0])
    q[1, 2] = 0.4 * env.task.start_height
    q[2, 3:7] = torch.tensor([0.8, 0.6, 0, 0])  # 74 degrees
    env.backend.reset(torch.ones(3, dtype=torch.bool), q, qd)
    assert env.task.terminated(env.state).tolist() == [False, True, True]


def test_warp_and_mujoco_move_it_alike():
    """In the air to a few hundredths over a quarter of a second; standing at nearly the same height."""
    envs = [own(32, backend) for backend in ("warp", "mujoco")]
    for env in envs:
        env.reset(seed=0)
        q = env.backend.q.clone()
        q[:, 2] += 1.0
        env.backend.reset(torch.ones(32, dtype=torch.bool), q, env.backend.qd.clone())
    actions = 0.5 * torch.rand(15, 32, 8, generator=torch.Generator().manual_seed(0)) - 0.25
    for action in actions:
        for env in envs:
            env.step(action)
    a, b = (env.backend.q for env in envs)
    assert (a[:, :3] - b[:, :3]).abs().max() < 5e-3 and (a[:, 7:] - b[:, 7:]).abs().max() < 5e-2
    heights = []
    for env in envs:
        env.reset(seed=0)
        for _ in range(90):
            env.step(torch.zeros(32, 8))
        heights.append(env.backend.q[:, 2])
    assert (heights[0] - heights[1]).abs().max() < 0.01


def test_from_an_mjcf_to_a_learned_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--size", "width=32", "depth=2", "--batch", "256", "--steps", "40"]
    command = ["train", "--mjcf", str(CRITTER), "--data-transitions", "20k", *small]
    assert main(command) == 0
    told = capsys.readouterr().out
    model = tmp_path / "out" / "models" / "critter-residual.safetensors"
    assert (tmp_path / "out" / "data" / "critter-warp.h5").exists()
    line = next(text for text in told.splitlines() if text.startswith("use it:"))
    env = eval(line.removeprefix("use it:"), {"gymnasium": gymnasium})
    obs, _ = env.reset(seed=0)
    for _ in range(20):
        obs, reward, *_, info = env.step(env.action_space.sample())
        assert np.isfinite(obs).all() and np.isfinite(reward) and 0 <= info["model_trust"] <= 1
    _, facts = load_model(model, robot("critter"))
    assert facts["kind"] == "residual" and facts["command"].startswith(f"nerd-gym train --mjcf {CRITTER}")
    # Data that are there are used again, unless another size of them is asked for.
    trained = []
    monkeypatch.setattr("nerd_gym.dynamics.training.train.train", lambda data, *_: trained.append(data) or {})
    monkeypatch.setattr("nerd_gym.data.dataset.make_backend", None)
    assert main(["train", "--mjcf", str(CRITTER)]) == 0 and len(trained) == 1
    assert main(["train", "--mjcf", str(CRITTER), "--data-transitions", "90k"]) == 2
    assert "was made with blocks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "neither ROBOT nor --mjcf was given; valid: nerd-gym train ROBOT, nerd-gym train --mjcf FILE"),
        (["ant", "--mjcf", "a.xml"], "both ant and --mjcf a.xml were given"),
        (["--mjcf", "a.xml"], "no MJCF file at"),
        (["ant", "--data-transitions", "1k"], "--data-transitions 1k goes with --mjcf only"),
        (["--mjcf", str(CRITTER), "--model", "magic"], "unknown kind of model 'magic'"),
    ],
)
def test_wrong_train_commands_are_told_before_any_work(args, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *args]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_commands_take_it_by_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    option = ["--option", f"mjcf={CRITTER}"]
    assert main(["play", ROBOT, "--backend", "mujoco", "--steps", "3", *option]) == 0
    assert main(["play", ROBOT, "--steps", "3"]) == 2
    assert "NeRD/Robot-v0 needs the path" in capsys.readouterr().err
    few = ["--policy", "zero", "--episodes", "8", "--no-video"]
    assert main(["compare", ROBOT, *few, *option]) == 0
    assert (tmp_path / "out" / "compare" / "critter-zero" / "compare.json").exists()


def test_a_policy_of_it_knows_its_robot(tmp_path, monkeypatch, capsys):
    pytest.importorskip("rl_games")
    monkeypatch.chdir(tmp_path)
    options = ["--option", f"mjcf={CRITTER}", "substeps=8", "--backend", "mujoco", "--steps", "512", "--num-envs", "16"]
    assert main(["rl", "train", ROBOT, "--task", "track", *options]) == 0
    path = tmp_path / "out" / "rl" / "critter-track-position-mujoco-rl-games-seed0" / "policy.safetensors"
    facts = Policy.load(path).facts
    assert facts["robot"] == "critter" and facts["options"]["mjcf"] == str(CRITTER)
    assert facts["options"]["substeps"] == trained_for(path)[2]["substeps"] == 8
    assert "substeps" not in trained_for(path, "warp")[2]
    assert main(["rl", "eval", str(path), "--episodes", "4"]) == 0
    assert "velocity error" in capsys.readouterr().out
