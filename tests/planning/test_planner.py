"""Plans: what they are worth, from where, and that nobody notices the search."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from nerd_gym.backends import backend_class
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.planning import plan
from nerd_gym.planning.rollouts import Outcome
from nerd_gym.registration import ENVS
from tests.support.grid import ALL_VARIANTS, CRITTER, GRID
from tests.support.states import make_vec

CARTPOLE, FRANKA = "NeRD/Cartpole-v0", "NeRD/Franka-v0"
SMALL = {"candidates": 8, "iterations": 2}
OTHERS = [case for case in ALL_VARIANTS if case[2].get("ground") == "random" or ENVS[case[0]].requires]


def carried_out(env: NerdVectorEnv, actions: Tensor) -> float:
    """The return of a plan in a batch of one."""
    total = 0.0
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(action[None])
        total += float(reward[0])
        if terminated[0] or truncated[0]:
            break
    return total


@pytest.mark.parametrize(("env_id", "backend", "options"), [*((*pair, {}) for pair in GRID), *OTHERS])
def test_a_plan_is_worth_what_it_comes_to_in_the_environment(env_id, backend, options):
    found = plan(env_id, backend, horizon=6, seed=3, options=options, **SMALL)
    env = make_vec(env_id, 1, backend=backend, autoreset_mode="Disabled", **options)
    env.reset(seed=3)
    assert found.actions.shape == (6, env.task.action_size) and found.actions.abs().max() <= 1
    exact = not backend_class(backend).learned
    assert carried_out(env, found.actions) == pytest.approx(found.value, abs=1e-5 if exact else 1e-3, rel=1e-5)
    assert found.value == found.values[found.values.isfinite()].max()
    assert found.env_steps == found.history[-1].env_steps <= 6 * 8 * 2


def same(a, b) -> bool:
    """Nests of dicts, tensors, arrays and numbers."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, Tensor) else np.array_equal(a, b)


@pytest.mark.parametrize(("env_id", "backend"), GRID)
def test_an_episode_under_way_is_not_disturbed_and_the_plan_goes_on_from_it(env_id, backend):
    env, alone = (make_vec(env_id, 3, backend=backend, max_episode_steps=9) for _ in range(2))
    actions = 0.3 * torch.ones(env.action_space.shape)
    for each in (env, alone):
        each.reset(seed=5)
        for _ in range(3):
            each.step(actions)
    before, drawn = env.snapshot(), (torch.get_rng_state(), np.random.get_state()[1].copy())
    found = plan(env, horizon=4, row=1, **SMALL)
    assert same(env.snapshot(), before)
    assert torch.equal(torch.get_rng_state(), drawn[0]) and (np.random.get_state()[1] == drawn[1]).all()
    assert torch.equal(found.start.q, env.backend.q[1]) and found.start.steps == int(env.episode_steps[1])

    total, running = 0.0, True
    for action in found.actions:
        given = actions.clone()
        given[1] = action
        _, reward, terminated, truncated, _ = env.step(given)
        total += running * float(reward[1])
        running = running and not (terminated | truncated)[1]
        alone.step(given)
    exact = not backend_class(backend).learned
    assert total == pytest.approx(found.value, abs=1e-5 if exact else 1e-3, rel=1e-5)
    for _ in range(4):  # over a reset, whose start is drawn
        a, b = env.step(actions), alone.step(actions)
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))


def test_a_single_environment_with_a_time_limit_is_planned_in():
    env = gymnasium.make(FRANKA, backend="warp", max_episode_steps=20)
    env.reset(seed=0)
    for _ in range(5):
        env.step(env.action_space.sample())
    before = env.unwrapped.snapshot()
    found = plan(env, horizon=15, **SMALL)
    assert same(env.unwrapped.snapshot(), before) and found.start.steps == 5
    total = sum(env.step(action.numpy())[1] for action in found.actions)
    assert total == pytest.approx(found.value, abs=1e-5)
    with pytest.raises(ValueError, match="horizon is 1; an episode of NeRD/Franka-v0 has 0 more steps"):
        plan(env, horizon=1, **SMALL)


def test_goal_and_ground_are_those_of_the_row():
    env = make_vec("NeRD/PendulumContact-v0", 4, backend="mujoco", ground="random")
    env.reset(seed=0)
    start = plan(env, horizon=1, row=2, **SMALL).start
    assert torch.equal(start.ground_normal, env.backend.ground_normal[2])
    assert not torch.equal(start.ground_normal, env.backend.ground_normal[0])
    env = make_vec(FRANKA, 3, backend="warp")
    env.reset(seed=0)
    assert torch.equal(plan(env, horizon=1, row=2, **SMALL).start.goal, env.goal[2])


@pytest.mark.parametrize("method", ["cma", "cem", "random"])
def test_a_seed_gives_one_plan(method):
    one, again = (plan(CARTPOLE, "warp", method=method, **SMALL) for _ in range(2))
    other = plan(CARTPOLE, "warp", method=method, seed=1, **SMALL)
    assert torch.equal(one.actions, again.actions) and torch.equal(one.values, again.values)
    assert not torch.equal(one.actions, other.actions)


@pytest.mark.parametrize("method", ["cma", "cem"])
def test_a_search_beats_random_shooting_at_the_same_number_of_steps(method):
    budget = {"candidates": 64, "iterations": 20, "horizon": 20}
    searched, shot = (plan(FRANKA, "warp", method=name, **budget) for name in (method, "random"))
    assert searched.env_steps == shot.env_steps == 64 * 20 * 20
    assert searched.value > shot.value + 1
    bests = [iteration.best_so_far for iteration in searched.history]
    assert bests == sorted(bests) and bests[-1] == searched.value
    assert searched.history[-1].mean > searched.history[0].best


def test_the_number_of_steps_of_the_batch_does_not_grow_with_the_candidates(monkeypatch):
    calls, step = [], NerdVectorEnv.step

    def counted(self, actions):
        calls.append(self.num_envs)
        return step(self, actions)

    monkeypatch.setattr(NerdVectorEnv, "step", counted)
    plan(CARTPOLE, "warp", horizon=7, candidates=50, iterations=3)
    assert calls == [50] * 21


def test_a_candidate_that_ends_has_no_return_after_its_end():
    env = make_vec(CARTPOLE, 1, backend="warp")
    start = torch.tensor([[3.8, 0.0]]), torch.tensor([[5.0, 0.0]])  # leaves the rail after three steps
    env.reset(seed=0, options={"state": start})
    found = plan(env, horizon=20, method="random", **SMALL)
    assert found.terminated and found.steps < 6 and found.env_steps < 20 * 8 * 2
    assert found.value < 5 * found.steps
    other = make_vec(CARTPOLE, 1, backend="warp", autoreset_mode="Disabled")
    other.reset(seed=0, options={"state": start})
    assert carried_out(other, found.actions) == pytest.approx(found.value, abs=1e-5)


def test_a_diverged_candidate_is_ranked_last():
    value, no = torch.tensor([1.0, 9.0, float("nan"), 2.0]), torch.zeros(4, dtype=torch.bool)
    outcome = Outcome(value, torch.ones(4), no, torch.tensor([False, True, False, False]), None)
    assert outcome.score.tolist() == [1.0, -torch.inf, -torch.inf, 2.0]
    with pytest.raises(ValueError, match="no candidate of 8 has a finite value"):
        plan(CARTPOLE, "warp", objective=lambda state: torch.nan * state.q[:, 0], **SMALL)


def test_a_candidate_that_is_given_up_is_not_the_best():
    """Rows with little trust are given up, as those that diverge are."""
    given = {"horizon": 10, "method": "random", "options": {"min_trust": 0.9}}
    found = plan("NeRD/Ant-v0", "neural", candidates=32, iterations=4, knots=5, **given)
    given_up = sum(iteration.diverged for iteration in found.history)
    assert 0 < given_up < 32 * 4 and found.values.isnan().sum() == given_up
    assert found.trust >= 0.9 and found.steps == 10 and found.value == found.values.nan_to_num(-torch.inf).max()


def test_the_last_state_may_be_the_objective():
    def to_the_right(state):
        return state.q[:, 0]

    found = plan(CARTPOLE, "warp", objective=to_the_right, horizon=10, candidates=32, iterations=10)
    env = make_vec(CARTPOLE, 1, backend="warp", autoreset_mode="Disabled")
    env.reset(seed=0)
    carried_out(env, found.actions)
    assert found.value == pytest.approx(float(env.backend.q[0, 0]), abs=1e-5)
    assert found.actions[:5].min() > 0.9 and found.facts()["objective"] == "to_the_right"


def test_an_objective_is_taken_where_an_episode_ended():
    env = make_vec(CARTPOLE, 1, backend="warp")
    env.reset(seed=0, options={"state": (torch.tensor([[3.8, 0.0]]), torch.tensor([[5.0, 0.0]]))})
    found = plan(env, objective=lambda state: -state.q[:, 0], horizon=20, **SMALL)
    assert found.terminated and -4.2 < found.value < -4.0


def test_a_robot_of_ones_own_is_planned_for():
    found = plan("NeRD/Robot-v0", options={"mjcf": str(CRITTER)}, horizon=5, **SMALL)
    assert found.options["mjcf"] == str(CRITTER) and found.steps == 5


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"method": "gradient"}, ValueError, "unknown method 'gradient'; valid: cma, cem, random"),
        ({"horizon": 0}, ValueError, "horizon is 0"),
        ({"horizon": 301}, ValueError, "horizon is 301; an episode of NeRD/Cartpole-v0 has 300 more steps"),
        ({"candidates": 3}, ValueError, "candidates is 3; it must be a whole number from 4"),
        ({"iterations": -1}, ValueError, "iterations is -1"),
        ({"knots": 21}, ValueError, "knots is 21; it must be a whole number from 1 to 20"),
        ({"sigma": 0.0}, ValueError, "sigma is 0.0"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"objective": "speed"}, ValueError, "unknown objective 'speed'; valid: 'return'"),
        ({"objective": lambda state: state.q}, ValueError, r"the objective gives \(256, 2\); it must give"),
        ({"speed": 1}, TypeError, "unknown argument 'speed'; valid: method, horizon"),
        ({"backend": "bullet"}, ValueError, "unknown backend 'bullet'"),
        ({"options": {"gravity": 0}}, ValueError, "unknown option 'gravity'"),
    ],
)
def test_wrong_input_is_named(given, error, message):
    with pytest.raises(error, match=message):
        plan(CARTPOLE, **given)


def test_wrong_environments_are_named():
    with pytest.raises(ValueError, match="unknown environment 'NeRD/Dog-v0'"):
        plan("NeRD/Dog-v0")
    with pytest.raises(TypeError, match="is not an environment of nerd_gym"):
        plan(gymnasium.make("CartPole-v1"))
    env = make_vec(CARTPOLE, 2, backend="warp")
    with pytest.raises(gymnasium.error.ResetNeeded):
        plan(env)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="row is 2; it must be a whole number from 0 to 1"):
        plan(env, row=2)
    with pytest.raises(ValueError, match="this environment has its own"):
        plan(env, backend="mujoco")
