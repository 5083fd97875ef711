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

from nerd_gym.backends import backends_for, parse_backend
from nerd_gym.backends.base import Backend
from nerd_gym.envs.factory import native
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.policies.agents import Agent, agent_name, load_agent
from nerd_gym.registration import env_spec
from nerd_gym.robots.features import HINGE
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import MEASURES, FrameInput
from nerd_gym.utils.arguments import check_counts, check_seed
from nerd_gym.utils.progress import progress

from .episodes import Episodes, Probe, episode_env, first_episodes, horizon_of
from .metrics import Estimate, errors_between, estimate, quantities, quartiles
from .verdict import Verdict, judge

DOUBTED = 0.5  # trust below this is counted
OUTSIDE = 1.01  # times the training range: its end is the largest sample, and a force at its limit is a hair beyond
FEWEST = 8  # episodes that an interval can be told from
MODEL_FACTS = ("kind", "robot", "teacher", "seed", "command", "hash")


@dataclass(frozen=True)
class BackendSpec:
    """A backend with its options; `label` is how tables call it."""

    label: str
    backend: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Trusted:
    """How far a learned model is trusted in the frames of a run."""

    doubted: float  # share of frames with trust below one half
    course: Tensor  # [T, 3] quartiles of the trust over the episodes running
    outside: dict[str, tuple[float, float]]  # coordinate outside the training data: share of frames, how far out


@dataclass
class BackendRun:
    """One backend's part of a comparison."""

    spec: BackendSpec
    played: Episodes
    learned: bool  # whether the backend is
    figures: dict[str, Estimate] = field(default_factory=dict)
    differences: dict[str, Estimate] = field(default_factory=dict)  # paired, from the baseline's
    errors: dict[str, Tensor] = field(default_factory=dict)  # [T, N] from the baseline's state, NaN unless both run
    trust: Trusted | None = None  # of a learned model in its own frames
    trust_on_baseline: Trusted | None = None  # and in those of the baseline
    model: dict[str, Any] = field(default_factory=dict)  # where a learned model comes from
    verdict: Verdict | None = None

    @property
    def label(self) -> str:
        """How tables call it."""
        return self.spec.label

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
    runs: list[BackendRun]  # the baseline first
    yardstick: BackendRun

    @property
    def baseline(self) -> BackendRun:
        """Whom the others are compared with."""
        return self.runs[0]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """By backend."""
        return {run.label: run.verdict for run in self.runs[1:] if run.verdict is not None}

    @property
    def pair(self) -> tuple[BackendRun, BackendRun]:
        """Whom a film shows: the baseline and a learned model, or the second backend."""
        learned = [run for run in self.runs[1:] if run.learned]
        return self.baseline, (learned or self.runs[1:])[0]

    def __str__(self) -> str:
        from .table import comparison_table

        return comparison_table(self)

    def save(self, out: str | Path, video: bool = True, gif: bool = False) -> list[Path]:
        """Write compare.json, .png, .html and, if wanted, .mp4 and .gif into a folder."""
        from .page import save

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
        policy: whatever :func:`nerd_gym.policies.agents.load_agent` takes, a function among it.
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
    spec, options = env_spec(env_id), options or {}
    specs = read_backends(backends or backends_for(spec.robot(options)))
    for name, value, least in (("episodes", episodes, FEWEST), ("resamples", resamples, 100)):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    check_counts(episodes=episodes)
    check_seed(seed)
    for name, value in (("margin", margin), ("displaced", displaced)):
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}; it must be between 0 and 1")
    with ExitStack() as stack:
        envs = []
        for p in specs:  # all of them before anything is computed: wrong input is told at once
            envs.append(episode_env(env_id, episodes, p.backend, layout, **options | p.options))
            stack.callback(envs[-1].close)
        agent = load_agent(policy, envs[0], activation, seed)
        runs = _play(env_id, specs, envs, agent, seed, displaced)
    _check_starts(runs[:-1])
    task = native(envs[0]).task
    for run in runs:
        run.figures = estimate(quantities(run.played), resamples, seed)
        if run is not runs[0]:
            ours, theirs = quantities(runs[0].played), quantities(run.played)
            run.differences = estimate({name: theirs[name] - ours[name] for name in ours}, resamples, seed)
            run.errors = errors_between(task.robot, runs[0].played, run.played)
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
        units={name: _unit(task.robot, name) for name in runs[-1].errors},
        runs=runs[:-1],
        yardstick=runs[-1],
    )
    for run in comparison.runs[1:]:
        run.verdict = judge(comparison, run)
    return comparison


def _play(
    env_id: str, specs: list[BackendSpec], envs: list[VectorEnv], agent: Agent, seed: int, displaced: float
) -> list[BackendRun]:
    """Episodes on every backend, and at last on the first from displaced starts; with what learned models trust."""
    label = f"{specs[0].label}, starts displaced by {displaced:g}"
    todo = [(p, env, 0.0) for p, env in zip(specs, envs, strict=True)]
    todo.append((replace(specs[0], label=label), envs[0], displaced))
    judges = {k: backend for k, env in enumerate(envs) if _tells_trust(backend := native(env).backend)}
    horizon, runs = horizon_of(native(envs[0])), []
    with progress(total=len(todo) * horizon, unit="step", desc=f"compare {env_id}") as bar:
        for k, (p, env, away) in enumerate(todo):
            bar.set_postfix_str(p.label)
            probes: dict[str, Probe] = {}
            for j, model in judges.items():
                if k in (0, j):
                    probes |= {f"trust {j}": _trust(model), f"ratios {j}": _ratios(model)}
            played = first_episodes(env, agent, seed, away, probes, bar.update)
            bar.update(horizon - len(played.running))
            backend = native(env).backend
            about = {name: backend.facts[name] for name in MODEL_FACTS if name in backend.facts}
            runs.append(BackendRun(p, played, backend.learned, model=about))
    for k, model in judges.items():
        names = list(model.range_ratios(_at_rest(model)))
        runs[k].trust = _trusted(runs[k].played, k, names)
        runs[k].trust_on_baseline = _trusted(runs[0].played, k, names) if k else None
    return runs


def read_backends(texts: Sequence[str]) -> list[BackendSpec]:
    """Backends as the user writes them; files are called by their names, and a second of the same by a number."""
    if isinstance(texts, str) or len(texts) < 2:
        raise ValueError(f"backends are {texts!r}; there must be at least two to compare, e.g. warp mujoco")
    specs: list[BackendSpec] = []
    for text in texts:
        name, options = parse_backend(text)
        label = ":".join([name, ",".join(f"{k}={v}" for k, v in plain(options).items())]).rstrip(":")
        same = sum(p.label.split(" (")[0] == label for p in specs)
        specs.append(BackendSpec(f"{label} ({same + 1})" if same else label, name, options))
    return specs


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options with files called by their names."""
    return {name: Path(v).name if isinstance(v, (str, Path)) else v for name, v in options.items()}


def _check_starts(runs: list[BackendRun]) -> None:
    for run in runs:
        for name, value in run.played.start.items():
            if not torch.equal(value, runs[0].played.start[name]):
                raise RuntimeError(f"the starts of {run.label} and {runs[0].label} differ in {name}")


def _tells_trust(backend: Backend) -> bool:
    return backend.trust_in(_at_rest(backend), (backend.ground_point, backend.ground_normal)) is not None


def _at_rest(backend: Backend) -> FrameInput:
    """A frame from where the robots are, without forces."""
    return FrameInput(backend.q, backend.qd, torch.zeros(backend.num_envs, backend.robot.nj, device=backend.device))


def _trust(model: Backend) -> Probe:
    def probe(env: NerdVectorEnv) -> Tensor:
        trust = model.trust_in(env.backend.last_frame, (env.backend.ground_point, env.backend.ground_normal))
        if trust is None:
            raise RuntimeError(f"{model.name} does not tell how far it may be believed")
        return trust

    return probe


def _ratios(model: Backend) -> Probe:
    return lambda env: torch.stack(list(model.range_ratios(env.backend.last_frame).values()), -1)


def _trusted(played: Episodes, judge: int, names: list[str]) -> Trusted:
    trust, ratios = played.probed[f"trust {judge}"], played.probed[f"ratios {judge}"][played.running]
    shares, furthest = (ratios > OUTSIDE).double().mean(0).tolist(), ratios.amax(0).tolist()
    outside = {name: (shares[k], furthest[k]) for k, name in enumerate(names) if shares[k]}
    return Trusted((trust[played.running] < DOUBTED).double().mean().item(), quartiles(trust, played.running), outside)


def _unit(robot: RobotModel, error: str) -> str:
    if error == "joints" and (robot.mj_model.jnt_type[-robot.nj :] == HINGE).all():
        return "rad"
    return MEASURES[error]
