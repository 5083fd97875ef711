"""The planner: a search that asks, a batch that carries out, and the best of it all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from nerd_gym.envs.factory import made_with, manual_reset_env, native_of, resized, select_rows
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.registration import env_spec
from nerd_gym.utils.arguments import MOST_ENVS, check_counts, check_real, check_seed, whole
from nerd_gym.utils.progress import progress

from .result import Iteration, Plan, Start
from .rollouts import Objective, Outcome, Rollouts
from .search import LEAST, METHODS
from .sequences import default_knots, sequences

FEW = 4  # numbers in a plan, up to which every one that was tried is kept for the plot


@dataclass(frozen=True)
class PlanConfig:
    """How to search for a plan."""

    method: str = "cma"
    """cma (CMA-ES), cem (cross-entropy method) or random (random shooting)."""
    horizon: int = 20
    """Actions of the plan."""
    candidates: int = 256
    """Plans that are tried in an iteration, as one batch."""
    iterations: int = 30
    """How often the search proposes candidates and is told their values."""
    knots: int | None = None
    """Actions that are searched for, with straight lines between them; None for five, or one for every six."""
    sigma: float = 0.5
    """Standard deviation of the first candidates, for actions from -1 to 1."""
    seed: int = 0
    """Of the search, and of the start if an id is given."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}; valid: {', '.join(METHODS)}")
        check_counts(horizon=self.horizon, iterations=self.iterations)
        whole("candidates", self.candidates, MOST_ENVS, LEAST)
        if self.knots is not None:
            whole("knots", self.knots, self.horizon)
        check_real("sigma", self.sigma, 0, 10)
        check_seed(self.seed)

    @property
    def searched(self) -> int:
        """How many actions are searched for."""
        return default_knots(self.horizon) if self.knots is None else self.knots


def plan(
    env: str | gymnasium.Env | VectorEnv,
    backend: str | None = None,
    *,
    objective: Literal["return"] | Objective = "return",
    row: int = 0,
    device: torch.device | str = "cpu",
    options: dict[str, Any] | None = None,
    **config: Any,
) -> Plan:
    """The best action sequence that a search finds from one start.

    Args:
        env: an id, whose start is that of `seed`; or an environment, single or a batch, which the plan goes on from.
            The environment itself is not stepped: another batch that was made with the same options is.
        backend: of an id.
        objective: ``"return"``, the sum of rewards until the episode ends; or a function of the last state
            (:class:`nerd_gym.envs.task.State`) of each candidate that gives [C], larger is better.
        row: of a batch, from which to plan.
        device: of an id.
        options: of an id, for task and backend.
        config: fields of :class:`PlanConfig`: method, horizon, candidates, iterations, knots, sigma, seed.
    """
    unknown = sorted(config.keys() - PlanConfig.__dataclass_fields__.keys())
    if unknown:
        raise TypeError(f"unknown argument {unknown[0]!r}; valid: {', '.join(PlanConfig.__dataclass_fields__)}")
    chosen = PlanConfig(**config)
    if objective != "return" and not callable(objective):
        raise ValueError(f"unknown objective {objective!r}; valid: 'return', or a function of the last state")
    if not isinstance(env, str) and (backend is not None or options):
        raise ValueError("backend and options are for an id; this environment has its own")
    with torch.random.fork_rng():  # a learned model draws weights, before it gets its own
        if isinstance(env, str):
            batch, start = _from_id(env, backend, chosen, device, options or {})
        else:
            batch, start = _from_env(env, row, chosen)
    try:
        return _search(batch, start, chosen, None if isinstance(objective, str) else objective)
    finally:
        batch.close()


def _from_id(
    env_id: str, backend: str | None, config: PlanConfig, device: torch.device | str, options: dict[str, Any]
) -> tuple[NerdVectorEnv, dict[str, Any]]:
    env_spec(env_id)
    batch = manual_reset_env(env_id, config.candidates, backend, device=device, **options)
    _check_horizon(config.horizon, batch.horizon, 0, env_id)
    batch.reset(seed=[config.seed] * config.candidates)
    return batch, batch.snapshot()


def _from_env(env: gymnasium.Env | VectorEnv, row: int, config: PlanConfig) -> tuple[NerdVectorEnv, dict[str, Any]]:
    source, horizon = native_of(env)
    whole("row", row, source.num_envs - 1, 0)
    snapshot = source.snapshot()
    if snapshot["seeds"] is None:
        raise gymnasium.error.ResetNeeded("plan() was given an environment that was never reset")
    _check_horizon(config.horizon, horizon, int(snapshot["steps"][row]), made_with(source)[0])
    rows = torch.full((config.candidates,), row, device=source.device)
    return resized(source, config.candidates, horizon), select_rows(source, snapshot, rows)


def _check_horizon(horizon: int, limit: int | None, done: int, name: str) -> None:
    if limit is not None and horizon > limit - done:
        raise ValueError(f"horizon is {horizon}; an episode of {name} has {limit - done} more steps")


def _search(batch: NerdVectorEnv, start: dict[str, Any], config: PlanConfig, objective: Objective | None) -> Plan:
    began = time.perf_counter()
    rollouts = Rollouts(batch, start, objective)
    size = batch.task.action_size
    search = METHODS[config.method](config.searched * size, config.candidates, config.sigma, config.seed)
    history: list[Iteration] = []
    values, tried = [], []
    best: tuple[float, Tensor, Outcome, int] | None = None
    env_id, options = made_with(batch)
    with progress(range(config.iterations), unit="iteration", desc=f"{env_id} on {batch.backend.name}") as bar:
        for _ in bar:
            points = search.ask()
            actions = sequences(points, config.horizon, size)
            outcome = rollouts(actions)
            score = outcome.score.cpu()
            ranked = score.isfinite()
            if not bool(ranked.any()):
                raise ValueError(f"no candidate of {config.candidates} has a finite value, or all of them diverged")
            top = int(score.argmax())
            if best is None or float(score[top]) > best[0]:
                best = float(score[top]), actions[:, top].clone(), outcome, top
            finite = score[ranked]
            search.tell(points, torch.where(ranked, score, finite.min() - 1))
            history.append(
                Iteration(
                    best=float(finite.max()),
                    best_so_far=best[0],
                    mean=float(finite.mean()),
                    spread=float(finite.std(correction=0)),
                    action_spread=float(points.std(0).mean()),
                    diverged=int((~ranked).sum()),
                    env_steps=rollouts.env_steps,
                )
            )
            values.append(torch.where(ranked, score, torch.nan))
            tried += [points.float()] if points.shape[1] <= FEW else []
            bar.set_postfix_str(f"best {best[0]:.4g}", refresh=False)
    assert best is not None  # there is at least one iteration
    value, actions, outcome, top = best
    batch.restore(start)
    return Plan(
        env_id=env_id,
        backend=batch.backend.name,
        options=options,
        config=config,
        objective=objective,
        actions=actions,
        value=value,
        steps=int(outcome.steps[top]),
        terminated=bool(outcome.terminated[top]),
        trust=None if outcome.trust is None else float(outcome.trust[top]),
        history=tuple(history),
        values=torch.stack(values),
        tried=torch.stack(tried) if tried else None,
        start=Start.of(batch),
        step_dt=batch.task.frame_dt * batch.task.frames,
        seconds=time.perf_counter() - began,
    )
