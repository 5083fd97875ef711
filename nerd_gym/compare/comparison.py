"""The same policy from the same starts on several backends: does it behave the same?

The first backend is the baseline. Returns are compared episode by episode, the motion step by step, and a yardstick
stands beside: the baseline once more, from starts that are a little displaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from .agents import Agent, agent_name, load_agent
from .backends import parse_backend
from .backends.base import Backend
from .bootstrap import Estimate, estimate
from .drift import MEASURES, backends_of, state_error
from .envs.vector import NerdVectorEnv
from .episodes import Episodes, Watch, episode_env, first_episodes
from .progress import progress
from .registration import env_spec
from .robots.model import HINGE, RobotModel

DOUBTED = 0.5  # trust below this is counted
OUTSIDE = 1.01  # times the training range: its end is the largest sample, and a force at its limit is a hair beyond
FEWEST = 8  # episodes that an interval can be told from
MILLION = 1_000_000
MODEL_FACTS = ("kind", "robot", "teacher", "seed", "command", "hash")
VERBS = {"agree": ("agree", "agrees"), "differ": ("differ", "differs"), "undecided": ("are undecided", "is undecided")}


@dataclass(frozen=True)
class Physics:
    """A backend with its options; `label` is how tables call it."""

    label: str
    backend: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """`agree`, `differ` or `undecided`: of the returns, of the motion, and of both; and a sentence with figures."""

    returns: str
    motion: str
    word: str
    sentence: str


@dataclass(frozen=True)
class Trusted:
    """What a learned model says of the frames that were visited."""

    doubted: float  # share of frames with trust below one half
    course: Tensor  # [T, 3] quartiles of the trust over the episodes running
    outside: dict[str, tuple[float, float]]  # coordinate outside the training data: share of frames, how far out


@dataclass
class Side:
    """One backend's part of a comparison."""

    physics: Physics
    played: Episodes
    figures: dict[str, Estimate] = field(default_factory=dict)
    differences: dict[str, Estimate] = field(default_factory=dict)  # paired, from the baseline's
    errors: dict[str, Tensor] = field(default_factory=dict)  # [T, N] from the baseline's state, NaN unless both run
    trust: Trusted | None = None  # of a learned model in the frames it visits
    trust_on_baseline: Trusted | None = None  # and in those that the baseline visits
    model: dict[str, Any] = field(default_factory=dict)  # where a learned model comes from
    verdict: Verdict | None = None

    @property
    def label(self) -> str:
        """How tables call it."""
        return self.physics.label

    def error(self, name: str) -> float:
        """Median over the episodes of an error's mean over time."""
        return self.errors[name].nanmean(0).median().item()


@dataclass
class Comparison:
    """What :func:`compare` found; printed it is a table, and :meth:`save` writes a report."""

    env_id: str
    policy: str
    policy_facts: dict[str, Any]
    options: dict[str, Any]
    layout: str
    episodes: int
    seed: int
    margin: float
    displaced: float
    resamples: int
    step: float  # s
    units: dict[str, str]  # of the errors
    sides: list[Side]  # the baseline first
    yardstick: Side

    @property
    def baseline(self) -> Side:
        """Whom the others are compared with."""
        return self.sides[0]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """By backend."""
        return {side.label: side.verdict for side in self.sides[1:]}

    @property
    def pair(self) -> tuple[Side, Side]:
        """Whom a film shows: the baseline and a learned model, or the second backend."""
        learned = [side for side in self.sides[1:] if side.physics.backend == "neural"]
        return self.baseline, (learned or self.sides[1:])[0]

    def __str__(self) -> str:
        from .report import table

        return table(self)

    def save(self, out: str | Path, video: bool = True, gif: bool = False) -> list[Path]:
        """Write compare.json, .png, .html and, if wanted, .mp4 and .gif into a folder."""
        from .report import save

        return save(self, Path(out), video, gif)


def compare(
    env_id: str,
    policy: str | Path | Callable[[Tensor], Any],
    backends: Sequence[str] | None = None,
    *,
    episodes: int = 256,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    layout: str = "native",
    activation: str | None = None,
    margin: float = 0.02,
    displaced: float = 1e-2,
    resamples: int = 10_000,
) -> Comparison:
    """Play a policy's first episodes on every backend.

    Args:
        env_id: environment.
        policy: whatever :func:`nerd_gym.agents.load_agent` takes, a function among it.
        backends: as text, with options if wanted, ``warp:reference=True``; the first is the baseline. By default
            those that the robot has.
        episodes: how many, the same starts, goals and grounds on every backend.
        seed: of the starts, and of the resampling.
        options: of the task, and of every backend that has no value of its own.
        layout: ``reference`` for policies of the published code.
        activation: of an rl-games .pth.
        margin: returns within this part of the baseline's mean count as the same.
        displaced: how far (m and rad) the yardstick's starts are from the others'.
        resamples: of the bootstrap.
    """
    env_spec(env_id)
    physics = read_backends(backends or backends_of(env_id))
    for name, value, least in (("episodes", episodes, FEWEST), ("resamples", resamples, 100)):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    for name, value in (("margin", margin), ("displaced", displaced)):
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}; it must be between 0 and 1")
    options = options or {}
    with ExitStack() as stack:
        envs = []
        for p in physics:  # all of them before anything is computed: wrong input is told at once
            envs.append(episode_env(env_id, episodes, p.backend, layout, **options | p.options))
            stack.callback(envs[-1].close)
        agent = load_agent(policy, envs[0], activation, seed)
        sides = _play(physics, envs, agent, seed, displaced)
    _check_starts(sides[:-1])
    task = envs[0].unwrapped.task
    for side in sides:
        side.figures = estimate(quantities(side.played), resamples, seed)
        if side is not sides[0]:
            ours, theirs = quantities(sides[0].played), quantities(side.played)
            side.differences = estimate({name: theirs[name] - ours[name] for name in ours}, resamples, seed)
            side.errors = errors_between(task.robot, sides[0].played, side.played)
    comparison = Comparison(
        env_id=env_id,
        policy=agent_name(policy),
        policy_facts=dict(getattr(agent, "facts", {})),
        options=options,
        layout=layout,
        episodes=episodes,
        seed=seed,
        margin=margin,
        displaced=displaced,
        resamples=resamples,
        step=task.frame_dt * task.frames,
        units={name: _unit(task.robot, name) for name in sides[-1].errors},
        sides=sides[:-1],
        yardstick=sides[-1],
    )
    for side in comparison.sides[1:]:
        side.verdict = judge_side(comparison, side)
    return comparison


def _play(physics: list[Physics], envs: list[VectorEnv], agent: Agent, seed: int, displaced: float) -> list[Side]:
    """Episodes on every backend, and at last on the first from displaced starts; with what learned models trust."""
    label = f"{physics[0].label}, starts displaced by {displaced:g}"
    runs = [(p, env, 0.0) for p, env in zip(physics, envs, strict=True)]
    runs.append((replace(physics[0], label=label), envs[0], displaced))
    judges = {k: env.unwrapped.backend for k, env in enumerate(envs) if _tells_trust(env.unwrapped.backend)}
    native, sides = envs[0].unwrapped, []
    with progress(total=len(runs) * native.horizon, unit="step", desc=f"compare {native.spec.id}") as bar:
        for k, (p, env, away) in enumerate(runs):
            bar.set_postfix_str(p.label)
            watch: dict[str, Watch] = {}
            for j, judge in judges.items():
                if k in (0, j):
                    watch |= {f"trust {j}": _trust(judge), f"ratios {j}": _ratios(judge)}
            played = first_episodes(env, agent, seed, away, watch, bar.update)
            bar.update(native.horizon - len(played.running))
            facts = getattr(env.unwrapped.backend, "facts", {})
            model = {name: facts[name] for name in MODEL_FACTS if name in facts}
            sides.append(Side(p, played, model=model))
    for k, judge in judges.items():
        names = judge.trust.coordinates
        sides[k].trust = _trusted(sides[k].played, k, names)
        sides[k].trust_on_baseline = _trusted(sides[0].played, k, names) if k else None
    return sides


def read_backends(texts: Sequence[str]) -> list[Physics]:
    """Backends as the user writes them; files are called by their names, and a second of the same by a number."""
    if isinstance(texts, str) or len(texts) < 2:
        raise ValueError(f"backends are {texts!r}; there must be at least two to compare, e.g. warp mujoco")
    physics: list[Physics] = []
    for text in texts:
        name, options = parse_backend(text)
        label = ":".join([name, ",".join(f"{k}={v}" for k, v in plain(options).items())]).rstrip(":")
        same = sum(p.label.split(" (")[0] == label for p in physics)
        physics.append(Physics(f"{label} ({same + 1})" if same else label, name, options))
    return physics


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options with files called by their names."""
    return {name: Path(v).name if isinstance(v, (str, Path)) else v for name, v in options.items()}


def quantities(played: Episodes) -> dict[str, Tensor]:
    """[N] each: what is averaged over episodes."""
    out = {
        "return": played.returns,
        "length (steps)": played.lengths,
        "full length": played.full_length,
        "falls": played.terminated,
        "diverged": played.diverged,
    }
    for name, values in played.measures.items():
        out |= {f"{name}, mean": played.mean(values), f"{name}, at the end": played.last(values)}
    return {name: value.double() for name, value in out.items()}


def errors_between(robot: RobotModel, a: Episodes, b: Episodes) -> dict[str, Tensor]:
    """[T, N]: how far the states are apart, NaN unless the row is running in both."""
    steps = min(len(a.q), len(b.q))
    both = a.running[:steps] & b.running[:steps]
    errors = state_error(robot, a.q[:steps].flatten(0, 1), b.q[:steps].flatten(0, 1))
    return {name: torch.where(both, error.view(both.shape), torch.nan) for name, error in errors.items()}


def quartiles(values: Tensor, running: Tensor | None = None) -> Tensor:
    """[T, N] -> [T, 3] over the rows, those of a mask [T, N] if one is given; NaN is left out."""
    values = values if running is None else torch.where(running, values, torch.nan)
    return values.float().nanquantile(torch.tensor([0.25, 0.5, 0.75]), dim=1).T


def judge_side(c: Comparison, side: Side) -> Verdict:
    """Compare a backend with the baseline."""
    difference, mean = side.differences["return"], abs(c.baseline.figures["return"].mean)
    limit = c.margin * mean
    if -limit <= difference.low and difference.high <= limit:
        returns = "agree"
    elif difference.low > limit or difference.high < -limit:
        returns = "differ"
    else:
        returns = "undecided"
    middle, low, high = (percent(x, mean, 2) for x in (difference.mean, difference.low, difference.high))
    words = f"returns {VERBS[returns][0]}: {middle}{' %' if mean else ''} (95 %: {low} to {high})"
    if returns == "undecided":
        words += f", {episodes_to_decide(difference, limit, c.episodes)} would decide"
    worse = [name for name in side.errors if not side.error(name) <= c.yardstick.error(name)]
    motion = "differ" if worse else "agree"
    named = worse or list(side.errors)
    words += f"; motion {VERBS[motion][1]}: median error of "
    words += ", ".join(f"{name} {number(side.error(name), 2)} {c.units[name]}" for name in named)
    words += f"; starts displaced by {c.displaced:g} give "
    words += ", ".join(number(c.yardstick.error(name), 2) for name in named)
    both = {returns, motion}
    word = "differ" if "differ" in both else "undecided" if "undecided" in both else "agree"
    return Verdict(returns, motion, word, words)


def number(x: float, digits: int, sign: str = "") -> str:
    """To so many digits, but none of those before the point is lost."""
    text = f"{x:{sign}.{digits}g}"
    return f"{x:{sign}.0f}" if "e+" in text else text


def percent(x: float, whole: float, digits: int) -> str:
    """A signed part of the whole to a thousandth of a percent; the number itself if there is no whole."""
    return number(round(100 * x / whole, 3) + 0.0, digits, "+") if whole else number(x, digits, "+")


def episodes_to_decide(difference: Estimate, limit: float, episodes: int) -> str:
    """About how many episodes make the interval so narrow that it lies on one side of the limit."""
    half = max(difference.high - difference.mean, difference.mean - difference.low)
    gap = abs(abs(difference.mean) - limit)
    if half**2 * episodes > MILLION * gap**2:
        return "not even a million episodes"
    needed = max(episodes + 1, episodes * (half / gap) ** 2)
    return f"about {float(f'{needed:.2g}'):,.0f} episodes"


def _check_starts(sides: list[Side]) -> None:
    for side in sides:
        for name, value in side.played.start.items():
            if not torch.equal(value, sides[0].played.start[name]):
                raise RuntimeError(f"the starts of {side.label} and {sides[0].label} differ in {name}")


def _tells_trust(backend: Backend) -> bool:
    return hasattr(backend, "trust") and backend.trust.known


def _trust(judge: Any) -> Watch:
    def watch(env: NerdVectorEnv) -> Tensor:
        return judge.trust_in(env.backend.last, (env.backend.ground_point, env.backend.ground_normal))

    return watch


def _ratios(judge: Any) -> Watch:
    return lambda env: judge.trust.ratios(*env.backend.last)


def _trusted(played: Episodes, judge: int, names: list[str]) -> Trusted:
    trust, ratios = played.watched[f"trust {judge}"], played.watched[f"ratios {judge}"][played.running]
    shares, furthest = (ratios > OUTSIDE).double().mean(0).tolist(), ratios.amax(0).tolist()
    outside = {name: (shares[k], furthest[k]) for k, name in enumerate(names) if shares[k]}
    return Trusted((trust[played.running] < DOUBTED).double().mean().item(), quartiles(trust, played.running), outside)


def _unit(robot: RobotModel, error: str) -> str:
    if error == "joints" and (robot.mj_model.jnt_type[-robot.nj :] == HINGE).all():
        return "rad"
    return MEASURES[error]
