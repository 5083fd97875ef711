"""Tasks against what the published code recorded: observations, rewards, terminations, forces."""

import numpy as np
import pytest
import torch

from nerd_gym.backends import make_backend
from nerd_gym.envs.pendulum_contact import GROUNDS
from nerd_gym.envs.random import EnvRandom
from nerd_gym.registration import PACKAGED
from nerd_gym.wrappers.reference_observation import ReferenceLayout
from tests.support.recorded import excerpt
from tests.support.states import everyone, make_vec

SETS = {
    "Cartpole": ("NeRD/Cartpole-v0", {}),
    "Ant_run": ("NeRD/Ant-v0", {"task": "run"}),
    "Ant_spin": ("NeRD/Ant-v0", {"task": "spin"}),
    "Ant_spin_track": ("NeRD/Ant-v0", {"task": "spin_track"}),
    "AnymalPD_forward": ("NeRD/Anymal-v0", {"task": "forward"}),
    "AnymalPD_side": ("NeRD/Anymal-v0", {"task": "side"}),
    "AnymalTorque_forward": ("NeRD/Anymal-v0", {"task": "forward", "control": "torque"}),
    "FrankaReach_jpc": ("NeRD/Franka-v0", {"control": "position", "velocity": False}),
    "FrankaReach_torque": ("NeRD/Franka-v0", {"control": "torque", "velocity": False}),
}


@pytest.fixture(params=SETS)
def replayed(request):
    """The task placed at every recorded state of the random rollout."""
    env_id, options = SETS[request.param]
    rec = excerpt(request.param)
    q, qd = rec.q("random").flatten(0, 1), rec.qd("random").flatten(0, 1)
    env = make_vec(env_id, len(q), backend="mujoco", **options)
    env.reset(seed=0)
    env.backend.reset(everyone(len(q)), q, qd)
    if "random_targets" in rec.data:
        targets = torch.as_tensor(rec.data["random_targets"], dtype=torch.float32)
        env.state.goal = targets.expand(*rec.q("random").shape[:2], 3).reshape(-1, 3)
    return env, rec


def test_observations_are_the_recorded_ones(replayed):
    env, rec = replayed
    obs = env.task.observe(env.state).numpy()
    if env.task.robot.name != "franka":
        obs = ReferenceLayout(env).observation(obs)
    theirs = rec.data["random_obs"].reshape(-1, obs.shape[-1])
    quat = slice(1, 5) if env.task.robot.free_base else slice(0, 0)
    sign = np.sign((obs[:, quat] * theirs[:, quat]).sum(-1, keepdims=True))
    obs[:, quat] *= np.where(sign == 0, 1, sign)
    off = obs - theirs
    if env.task.robot.name == "franka":  # the recorded q is wrapped, the recorded observation is not
        off[:, :7] = (off[:, :7] + np.pi) % (2 * np.pi) - np.pi
    assert (np.abs(off) / np.maximum(1, np.abs(theirs))).max() < 2e-5


def test_rewards_and_terminations_are_the_recorded_ones(replayed):
    env, rec = replayed
    steps, n = rec.data["random_reward"].shape
    force = torch.cat([torch.zeros(n, env.task.robot.nj), rec.force("random").flatten(0, 1)])
    actions = torch.zeros(len(force), env.task.action_size)
    reward, terms = env.task.reward(env.state, actions, force)
    theirs = rec.data["random_reward"].reshape(-1)
    np.testing.assert_allclose(reward[n:].numpy(), theirs, rtol=2e-4, atol=2e-4)
    assert all(term.shape == reward.shape for term in terms.values())
    ours = env.task.terminated(env.state).view(steps + 1, n)
    recorded = torch.as_tensor(rec.data["random_terminated"]).bool()
    if env.task.robot.name == "anymal":
        # Theirs tests contacts one frame late and the height on time. Ours tests both on time.
        low = (env.backend.q[:, 2] < 0.4).view(steps + 1, n)
        recorded_late = (ours[:-1] | low[1:]) == recorded
        assert recorded_late.float().mean() > 0.999
    else:
        assert torch.equal(ours[1:], recorded)


def test_joint_forces_are_the_recorded_ones(replayed):
    env, rec = replayed
    steps, n = rec.data["random_reward"].shape
    actions = torch.cat([rec.actions("random").flatten(0, 1), torch.zeros(n, env.task.action_size)])
    force = env.task.joint_force(actions, env.state)[: steps * n]
    if env.task.frames == 2:  # only the second frame's torque is recorded, so bring the arm there first
        backend = make_backend("warp", env.task.robot, len(force), reference=True)
        q, qd = (x("random")[:-1].flatten(0, 1) for x in (rec.q, rec.qd))
        backend.reset(everyone(len(force)), q, qd)
        backend.step(force)
        force = env.task.joint_force(actions[: steps * n], backend)
    torch.testing.assert_close(force, rec.force("random").flatten(0, 1), rtol=1e-5, atol=2e-3)


def test_starts_cover_the_stated_ranges():
    def draw(env_id, **options):
        env = make_vec(env_id, 4000, backend="mujoco", **options)
        env.reset(seed=0)
        return env

    def spans(values, low, high):
        values = values.double()
        width = torch.as_tensor(high).double() - torch.as_tensor(low).double()
        assert (values >= torch.as_tensor(low) - 1e-5).all() and (values <= torch.as_tensor(high) + 1e-5).all()
        assert (values.amax(0) - values.amin(0) > 0.98 * width).all()
        middle = (torch.as_tensor(low).double() + torch.as_tensor(high).double()) / 2
        assert ((values.mean(0) - middle).abs() < 0.03 * width).all()

    b = draw("NeRD/Cartpole-v0").backend
    spans(b.q, [-1, -np.pi], [1, np.pi])
    spans(b.qd, -1.0, 1.0)
    b = draw("NeRD/Ant-v0").backend
    spans(b.q[:, :3], [-0.2, -0.2, 0.9], [0.2, 0.2, 1.1])
    spans(b.q[:, 7:], np.array([0, 1, 0, -1, 0, -1, 0, 1]) - 0.2, np.array([0, 1, 0, -1, 0, -1, 0, 1]) + 0.2)
    spans(b.qd[:, 6:], -0.25, 0.25)
    spans(2 * torch.acos(b.q[:, 3:4]), 0.0, np.pi / 6)
    b = draw("NeRD/Anymal-v0").backend
    spans(b.q[:, 9:10], 0.4, 1.2)  # LF_KFE: 0.8 times 0.5 to 1.5
    spans(b.qd[:, 6:], -0.1, 0.1)
    assert (b.q[:, 2] == 0.7).all() and (b.qd[:, :6] == 0).all()
    env = draw("NeRD/Franka-v0")
    spans(env.state.goal, [0.3, -0.35, 0.05], [0.7, 0.35, 0.45])
    q = draw("NeRD/PendulumContact-v0").backend.q
    assert (torch.sin(q.sum(-1)) > -1e-5).all()  # the second link points upwards


@pytest.mark.parametrize("backend", ["warp", "mujoco"])
def test_random_grounds_start_clear_and_are_within_reach(backend):
    env = make_vec("NeRD/PendulumContact-v0", 512, backend=backend, ground="random")
    env.reset(seed=0)
    assert (env.backend.contacts.distance > -1e-4).all()
    assert env.backend.ground_normal.norm(dim=-1).sub(1).abs().max() < 1e-6
    assert env.backend.ground_normal.std(0).min() > 0.4
    first = env.backend.ground_normal.clone()
    env.reset(options={"reset_mask": torch.arange(512) < 256})
    changed = (env.backend.ground_normal != first).any(-1)
    assert changed[:256].all() and not changed[256:].any()


def test_grounds_by_number_by_plane_and_wrong_ones():
    env = make_vec("NeRD/PendulumContact-v0", 2, backend="warp", ground=6)
    env.reset(seed=0)
    torch.testing.assert_close(env.backend.ground_normal[0], torch.tensor(GROUNDS[6][1]).float())
    env = make_vec("NeRD/PendulumContact-v0", 2, backend="warp", ground=((0, 0, 1), (0, 0, 5)))
    env.reset(seed=0)
    assert env.backend.ground_normal[1].tolist() == [0, 0, 1] and env.backend.ground_point[1].tolist() == [0, 0, 1]
    for wrong in (7, -1, True, "flat", ((0, 0, 0), (0, 0, 0)), ((0, 0), (0, 0, 1)), (float("nan"), (0, 0, 1))):
        with pytest.raises(ValueError, match=r"unknown ground .*valid: 0 to 6"):
            make_vec("NeRD/PendulumContact-v0", 2, ground=wrong)


def test_pendulum_reward_is_tip_height_over_reach():
    env = make_vec("NeRD/PendulumContact-v0", 64, backend="mujoco")
    env.reset(seed=0)
    action = torch.rand(64, 2)
    reward, _ = env.task.reward(env.state, action, action)
    height = (env.backend.site("tip")[:, 2] - 2) / 3
    torch.testing.assert_close(reward, height - 0.001 * action.square().sum(-1), atol=1e-5, rtol=0)


def test_random_streams_are_per_environment_and_uniform():
    seeds, episodes = torch.arange(4096), torch.zeros(4096, dtype=torch.long)
    values = EnvRandom(seeds, episodes).uniform(0.0, 1.0, 8)
    alone = EnvRandom(seeds[77:78], episodes[:1]).uniform(0.0, 1.0, 8)
    assert torch.equal(values[77], alone[0])
    assert not torch.equal(values, EnvRandom(seeds, episodes + 1).uniform(0.0, 1.0, 8))
    whole, pieces = EnvRandom(seeds, episodes), EnvRandom(seeds, episodes)
    pieces = torch.cat([pieces.uniform(0.0, 1.0, size) for size in (8, 1, 30, 2, 59)], 1)
    assert torch.equal(whole.uniform(0.0, 1.0, 100), pieces) and torch.equal(pieces[:, :8], values)
    counts = torch.histc(values, 16, 0, 1)
    expected = values.numel() / 16
    assert ((counts - expected) ** 2 / expected).sum() < 50  # chi square, 15 degrees: p about 1e-5
    correlation = torch.corrcoef(values.T) - torch.eye(8)
    assert correlation.abs().max() < 0.07
    neighbours = torch.corrcoef(torch.stack([values[:-1].flatten(), values[1:].flatten()]))[0, 1]
    assert abs(neighbours) < 0.03


@pytest.mark.parametrize("name", ["PendulumContact_cfg1", "PendulumContact_cfg3", "Ant_run", "AnymalPD_forward"])
def test_contact_distances_are_the_recorded_ones(name):
    """Theirs are of the candidates' centres; the order of the points is the same."""
    rec = excerpt(name)
    q, qd = (x("random")[:-1].flatten(0, 1) for x in (rec.q, rec.qd))
    backend = make_backend("mujoco", rec.robot, len(q))
    backend.reset(everyone(len(q)), q, qd, rec.ground(len(q)))
    radius = torch.as_tensor(rec.robot.candidates.radius, dtype=torch.float32)
    theirs = torch.as_tensor(rec.data["random_contact_depth"]).flatten(0, 1)
    assert (backend.contacts.distance + radius - theirs).abs().max() < 2e-5


@pytest.mark.parametrize("env_id", PACKAGED)
def test_rewards_are_finite_for_any_action(env_id):
    env = make_vec(env_id, 4, backend="mujoco")
    env.reset(seed=0)
    actions = torch.tensor([1e30, -1e30, float("inf"), float("nan")])[:, None].expand(env.action_space.shape)
    for _ in range(3):
        obs, reward, *_, info = env.step(actions)
        assert obs.isfinite().all() and reward.isfinite().all() and info["reward_terms"].isfinite().all()
