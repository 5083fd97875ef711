"""The same policy on several backends."""

import json
import math
import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import pytest
import torch

from nerd_gym.cli import main
from nerd_gym.compare.comparison import compare, read_backends
from nerd_gym.compare.demo import run_demo
from nerd_gym.compare.episodes import displace, episode_env, first_episodes
from nerd_gym.compare.metrics import Estimate, estimate
from nerd_gym.compare.verdict import episodes_to_decide, judge
from nerd_gym.dynamics.models.checkpoint import PRETRAINED, load_model, save_model
from nerd_gym.dynamics.models.trust import MEANING
from nerd_gym.policies.agents import load_agent
from nerd_gym.policies.onnx import export_onnx
from nerd_gym.registration import PACKAGED
from nerd_gym.robots.state import state_error
from tests.support.grid import ROOT, robot
from tests.support.policies import linear_policy, recurrent_policy
from tests.support.recorded import published_policy
from tests.support.states import make_vec, random_state

CARTPOLE = "NeRD/Cartpole-v0"


def swing_up(obs):
    """Pump energy into the pole, then balance it."""
    x, theta, x_rate, theta_rate = obs.unbind(-1)
    balance = 1.1 * theta + 0.32 * theta_rate + 0.05 * x + 0.14 * x_rate
    pump = -0.15 * torch.sign(theta_rate * torch.cos(theta)) - 0.115 * x - 0.057 * x_rate
    return torch.where(theta.abs() < 0.86, balance, pump)[:, None]


@pytest.fixture(scope="module")
def comparison():
    return compare(CARTPOLE, swing_up, ["warp", "mujoco", "neural"], episodes=32)


# First episodes.


def test_first_episodes_are_what_the_environment_gives_row_by_row():
    env = episode_env("NeRD/Ant-v0", 6, "warp")
    played = first_episodes(env, load_agent("random", env, seed=1), seed=5)
    assert played.terminated.any() and not played.full_length.any()
    same = make_vec("NeRD/Ant-v0", 6, backend="warp")  # resets in the same step
    agent = load_agent("random", same, seed=1)
    obs, _ = same.reset(seed=5)
    running, total, forward = torch.ones(6, dtype=torch.bool), torch.zeros(6), torch.zeros(6)
    for t in range(len(played.running)):
        assert torch.equal(played.running[t], running)
        obs, reward, terminated, truncated, info = same.step(agent.act(obs))
        total += reward * running
        forward += info["reward_terms"][:, same.reward_terms.index("forward")] * running
        going = running & ~(terminated | truncated)
        assert torch.equal(played.q[t, going], same.backend.q[going])
        running = going
    assert not running.any() and torch.equal(played.returns, total)
    speed = played.measures["speed along x (m/s)"]
    torch.testing.assert_close(played.mean(speed), forward / played.lengths)
    row = int(played.lengths.argmin())
    end = int(played.lengths[row])
    assert played.last(speed)[row] == speed[end - 1, row]
    assert played.q[end - 1, row, 2] < 0.3 and torch.equal(played.q[-1, row], played.q[end - 1, row])


def test_an_environment_that_resets_itself_is_refused():
    env = make_vec(CARTPOLE, 2, backend="mujoco")
    with pytest.raises(ValueError, match="autoreset DISABLED"):
        first_episodes(env, load_agent("zero", env))


@pytest.mark.parametrize("env_id", PACKAGED)
def test_measures_say_what_the_reward_is_made_of(env_id):
    env = make_vec(env_id, 8, backend="mujoco")
    env.reset(seed=0)
    *_, info = env.step(torch.rand(env.action_space.shape) - 0.5)
    terms = dict(zip(env.reward_terms, info["reward_terms"].T, strict=True))
    value = next(iter(env.measures().values()))
    expected = {
        CARTPOLE: lambda: (-terms["upright"]).sqrt(),
        "NeRD/PendulumContact-v0": lambda: 3 * terms["height"],
        "NeRD/Ant-v0": lambda: terms["forward"],
        "NeRD/Anymal-v0": lambda: (-terms["velocity"].log()).sqrt(),
        "NeRD/Franka-v0": lambda: -terms["distance"],
        "NeRD/Strike-v0": lambda: value,
    }[env_id]()
    torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["cartpole", "anymal"])
def test_displaced_starts_are_so_far_away_in_everything(name):
    model = robot(name)
    q, _ = random_state(model, 16)
    moved = displace(model, q, 0.01)
    torch.testing.assert_close((moved - q)[:, model.joint_q].abs(), torch.full((16, model.nj), 0.01), atol=1e-5, rtol=0)
    if model.free_base:
        torch.testing.assert_close(moved[:, 3:7].norm(dim=-1), torch.ones(16))
        turned = state_error(model, moved, q)["orientation"]
        torch.testing.assert_close(turned, torch.full((16,), 0.01), atol=1e-5, rtol=0)


def test_a_start_can_be_given_to_reset():
    env = episode_env(CARTPOLE, 3, "warp", "reference")
    q, qd = torch.rand(3, 2), torch.rand(3, 2)
    obs, _ = env.reset(seed=0, options={"state": (q, qd)})
    torch.testing.assert_close(obs, torch.cat([q, qd], -1))


# Statistics.


def test_the_interval_of_normal_data_is_the_textbooks():
    values = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    e = estimate({"x": 3 * values + 1})["x"]
    half = 1.96 * 3 * values.std().item() / math.sqrt(400)
    assert e.mean == pytest.approx(1 + 3 * values.mean().item())
    assert e.high - e.mean == pytest.approx(half, rel=0.05) and e.mean - e.low == pytest.approx(half, rel=0.05)
    assert estimate({"x": 3 * values + 1})["x"] == e  # seeded


def test_intervals_hold_the_truth_19_times_of_20():
    draws = torch.randn(300, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    held = [e.low <= 0 <= e.high for e in (estimate({"x": row}, 400)["x"] for row in draws)]
    assert 0.90 <= sum(held) / len(held) <= 0.98


def test_how_many_episodes_would_decide():
    assert episodes_to_decide(Estimate(0.0, -4.0, 4.0), 2.0, 100) == "about 400 episodes"
    assert episodes_to_decide(Estimate(2.0, -2.0, 6.0), 2.0, 100) == "not even a million episodes"


# Comparisons.


def test_a_backend_agrees_with_itself_to_the_bit():
    result = compare(CARTPOLE, swing_up, ["warp", "warp"], episodes=16)
    (verdict,) = result.verdicts.values()
    other = result.runs[1]
    assert verdict.word == "agree" and other.label == "warp (2)"
    assert other.differences["return"] == Estimate(0, 0, 0) and other.error("joints") == 0
    assert torch.equal(other.played.q, result.baseline.played.q)


def test_starts_are_the_same_and_the_yardsticks_are_not(comparison):
    first, *others = (run.played.start for run in comparison.runs)
    assert all(torch.equal(other[name], first[name]) for other in others for name in first)
    moved = comparison.yardstick.played.start
    torch.testing.assert_close((moved["q"] - first["q"]).abs(), torch.full((32, 2), 0.01), atol=1e-5, rtol=0)
    assert torch.equal(moved["qd"], first["qd"])


def test_a_learned_model_agrees_with_its_teacher(comparison):
    verdict = comparison.verdicts["neural"]
    assert verdict.word == "agree", verdict
    assert "returns agree" in verdict.sentence and "motion agrees" in verdict.sentence
    run = comparison.runs[2]
    assert comparison.baseline.figures["return"].mean > 800  # it does swing up
    assert torch.equal(run.played.model_trust, run.played.probed["trust 2"])
    assert 0 <= run.trust.doubted < 0.5 and len(run.trust.course) == 300
    assert run.trust_on_baseline.doubted == pytest.approx(run.trust.doubted, abs=0.02)


@pytest.mark.parametrize(
    ("interval", "word"),
    [
        ((0.0, -0.9, 0.9), "agree"),
        ((2.0, 1.1, 3.0), "differ"),
        ((-2.0, -3.0, -1.1), "differ"),
        ((0.9, 0.5, 1.2), "undecided"),
        ((-0.9, -1.2, -0.5), "undecided"),
    ],
)
def test_returns_are_judged_by_their_interval(comparison, interval, word):
    """Given in margins."""
    limit = comparison.margin * comparison.baseline.figures["return"].mean
    run = replace(comparison.runs[1], differences={"return": Estimate(*(limit * x for x in interval))})
    verdict = judge(comparison, run)
    assert verdict.returns == verdict.word == word and verdict.motion == "agree"
    assert ("episodes would decide" in verdict.sentence) == (word == "undecided")


def test_motion_is_judged_by_the_yardstick(comparison):
    for factor, word in ((1.0, "agree"), (1.01, "differ")):
        errors = {name: factor * error for name, error in comparison.yardstick.errors.items()}
        verdict = judge(comparison, replace(comparison.runs[2], errors=errors))
        assert verdict.motion == verdict.word == word and verdict.returns == "agree"


def test_what_a_policy_remembers_of_one_backend_is_forgotten_on_the_next():
    result = compare(CARTPOLE, recurrent_policy(obs_size=4, action_size=1), ["mujoco", "mujoco"], episodes=8)
    assert torch.equal(result.runs[0].played.q, result.runs[1].played.q)


def test_a_wrong_model_differs(tmp_path):
    """Masses and inertias off by 30 %."""
    tensors, facts = load_model(PRETRAINED / "cartpole-warp.safetensors", robot("cartpole"))
    tensors["parameters"][:20] *= 1.3
    save_model(tmp_path / "wrong.safetensors", tensors, facts)
    result = compare(CARTPOLE, swing_up, ["warp", f"neural:model={tmp_path}/wrong.safetensors"], episodes=32)
    verdict = result.verdicts["neural:model=wrong.safetensors"]
    assert verdict.word == verdict.motion == "differ", verdict


def test_leaving_the_training_data_is_told(tmp_path):
    tensors, facts = load_model(PRETRAINED / "cartpole-warp.safetensors", robot("cartpole"))
    tensors["trust.q_range"][0] = 0.5
    save_model(tmp_path / "narrow.safetensors", tensors, facts)
    result = compare(CARTPOLE, "zero", ["mujoco", f"neural:model={tmp_path}/narrow.safetensors"], episodes=16)
    run = result.runs[1]
    q = torch.cat([run.played.start["q"][None], run.played.q[:-1]])[..., 0].abs()  # where frames start
    outside = q[run.played.running] > 0.505
    share, furthest = run.trust.outside["slider_to_cart"]
    assert share == pytest.approx(outside.double().mean().item()) and share > 0.1
    assert furthest == pytest.approx(q[run.played.running].max().item() / 0.5)
    assert set(run.trust_on_baseline.outside) == {"slider_to_cart"}
    assert run.trust.doubted > 0.1 and "Outside the training data" in str(result)


def test_files_of_one_policy_give_one_comparison(tmp_path):
    policy = linear_policy(make_vec(CARTPOLE, 1, backend="mujoco"))
    policy.save(tmp_path / "p.safetensors")
    export_onnx(policy, tmp_path / "p.onnx")
    a, b = (compare(CARTPOLE, tmp_path / f"p.{e}", ["warp", "mujoco"], episodes=8) for e in ("safetensors", "onnx"))
    for one, other in zip(a.runs, b.runs, strict=True):
        assert one.figures["return"].mean == pytest.approx(other.figures["return"].mean, rel=1e-3)
    assert a.verdicts["mujoco"].word == b.verdicts["mujoco"].word


def test_a_row_does_not_depend_on_how_many_are_played(comparison):
    few = compare(CARTPOLE, swing_up, ["warp", "mujoco"], episodes=8)
    for k in range(2):
        assert torch.equal(few.runs[k].played.returns, comparison.runs[k].played.returns[:8])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backends": ["warp"]}, r"backends are \['warp'\]; there must be at least two"),
        ({"backends": ["warp", "bullet:x=1"]}, "unknown backend 'bullet'; valid: warp"),
        ({"backends": ["warp", "mujoco:reference=True"]}, "unknown option 'reference'"),
        ({"backends": ["warp:reference", "mujoco"]}, "option 'reference' is not KEY=VALUE"),
        ({"episodes": 3}, "episodes is 3; it must be at least 8"),
        ({"margin": 2.0}, "margin is 2.0; it must be between 0 and 1"),
        ({"layout": "theirs"}, "unknown layout 'theirs'; valid: native, reference"),
        ({"policy": "genius"}, "unknown agent 'genius'"),
        ({"env_id": "NeRD/Dog-v0"}, "unknown environment 'NeRD/Dog-v0'"),
    ],
)
def test_wrong_input_is_named(change, message):
    given = {"env_id": CARTPOLE, "policy": "zero", "backends": ["warp", "mujoco"], "episodes": 8} | change
    with pytest.raises(ValueError, match=message):
        compare(given.pop("env_id"), given.pop("policy"), given.pop("backends"), **given)


def test_labels_show_options_and_no_folders():
    texts = ["warp:reference=True,substeps=8", "neural:model=/some/where/m.safetensors", "warp", "warp"]
    labels = [p.label for p in read_backends(texts)]
    assert labels == ["warp:reference=True,substeps=8", "neural:model=m.safetensors", "warp", "warp (2)"]


# Reports.


class Page(HTMLParser):
    """Sources and links of a page, and whether its tags are closed."""

    VOID = ("meta", "img", "hr", "br", "li")

    def __init__(self, text):
        super().__init__()
        self.open, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_is_whole_and_needs_no_network(comparison, tmp_path, capsys):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "compare.mp4").write_text("of an earlier comparison")
    written = comparison.save(tmp_path / "deep", video=False)
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == sorted(path.name for path in written)
    text = (tmp_path / "deep" / "compare.html").read_text()
    page = Page(text)
    assert not page.open and len(page.links) == 1 and page.links[0].startswith("data:image/png;base64,")
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", text) and "AGREE" in text
    plain = re.sub(r"base64,[\w+/=]+", "", text)
    assert plain.count(escape(MEANING)) == 1 and len(re.findall(r"Trust[^<]* is ", plain)) == 1  # defined once
    facts = json.loads((tmp_path / "deep" / "compare.json").read_text())
    assert facts["backends"]["neural"]["verdict"]["word"] == "agree"
    assert facts["backends"]["warp"]["figures"]["return"]["mean"] == pytest.approx(
        comparison.baseline.played.returns.mean().item(), rel=1e-4
    )
    assert str(tmp_path) not in json.dumps(facts)
    last = str(comparison).splitlines()[-1]
    assert last.startswith("neural against warp") and "AGREE" in last


def test_the_command_films_and_prints_the_verdict(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nerd_gym.compare.film.SECONDS", 0.2)
    out = tmp_path / "out"
    args = ["compare", CARTPOLE, "--policy", "zero", "--episodes", "8", "--out", str(out), "--gif"]
    assert main([*args, "--backends", "mujoco", "warp:reference=True"]) == 0
    assert (out / "compare.mp4").stat().st_size > 1000 and (out / "compare.gif").stat().st_size > 1000
    printed = capsys.readouterr().out
    assert "warp:reference=True against mujoco" in printed and "compare.html" in printed
    page = Page((out / "compare.html").read_text())
    assert not page.open and any(link.startswith("data:video/mp4") for link in page.links)
    assert main(["compare", CARTPOLE, "--policy", "gone.onnx"]) == 2
    assert "no policy at gone.onnx" in capsys.readouterr().err


def test_the_demo_compares_the_policies_of_a_folder(tmp_path, capsys):
    entries = ((CARTPOLE, "cartpole/swing.safetensors"),)
    with pytest.raises(FileNotFoundError, match=r"no cartpole/swing.safetensors in .*checkout"):
        run_demo(tmp_path / "out", tmp_path, entries=entries)
    assert not (tmp_path / "out").exists()
    linear_policy(make_vec(CARTPOLE, 1, backend="mujoco")).save(tmp_path / entries[0][1])
    run_demo(tmp_path / "out", tmp_path, 8, video=False, entries=entries, backends=("warp", "neural"))
    printed = capsys.readouterr().out
    assert "neural against warp" in printed and "starts displaced by 0.01" in printed
    page = Page((tmp_path / "out" / "demo.html").read_text())
    assert not page.open and page.links[0] == "cartpole-swing/compare.html"
    assert (tmp_path / "out" / page.links[0]).is_file()


def test_the_demo_says_where_policies_should_be(tmp_path, capsys):
    assert main(["demo", "--policies", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "cartpole/swingup-neural-seed0.safetensors" in capsys.readouterr().err


def test_a_published_policy_on_every_backend():
    path = published_policy("Cartpole_seed0")
    backends = ["warp", "warp:reference=True", "mujoco", "neural"]
    result = compare(CARTPOLE, path, backends, episodes=64, layout="reference", activation="tanh")
    published = json.loads((ROOT / "benchmarks/results/published_policies.json").read_text())
    row = next(row for row in published["rows"] if row["policy"] == "Cartpole_seed0")
    for run, name in zip(result.runs, ("warp", "warp, reference=True", "mujoco", "neural"), strict=True):
        e = run.figures["return"]
        assert e.low - 30 < row[name]["mean"] < e.high + 30
    assert result.verdicts["neural"].word == "agree", result.verdicts["neural"]
    assert result.verdicts["warp:reference=True"].motion == "differ"


def test_odd_names_and_facts_do_not_spoil_the_report(comparison, tmp_path):
    """A `$` is no formula in a plot, and json has no NaN."""
    odd = replace(comparison, policy="a$x_1$\\frac.safetensors", policy_facts={"last": float("nan"), "deep": [1e999]})
    odd.save(tmp_path, video=False)

    def refuse(constant):
        raise AssertionError(f"{constant} in compare.json")

    facts = json.loads((tmp_path / "compare.json").read_text(), parse_constant=refuse)
    assert facts["policy_facts"] == {"last": None, "deep": [None]}
