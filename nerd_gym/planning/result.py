"""What a search found: the best plan, and how it was found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.utils.files import finite
from nerd_gym.utils.timing import save

from .rollouts import Objective

if TYPE_CHECKING:
    from .planner import PlanConfig


@dataclass(frozen=True)
class Start:
    """Where a plan begins."""

    q: Tensor  # [nq]
    qd: Tensor  # [nv]
    goal: Tensor  # [goal_size]
    ground_point: Tensor  # [3]
    ground_normal: Tensor  # [3]
    steps: int  # of the episode under way

    @classmethod
    def of(cls, env: NerdVectorEnv, row: int = 0) -> Start:
        """A row's state as it is."""
        backend = env.backend
        parts = (backend.q, backend.qd, env.goal, backend.ground_point, backend.ground_normal)
        return cls(*(part[row].clone().cpu() for part in parts), steps=int(env.episode_steps[row]))

    def place(self, env: NerdVectorEnv) -> None:
        """Put every row of an environment there, whatever its backend."""
        env.reset(seed=0)
        n, device = env.num_envs, env.device
        q, qd, goal, point, normal = (
            part.to(device).repeat(n, 1) for part in (self.q, self.qd, self.goal, self.ground_point, self.ground_normal)
        )
        env.backend.reset(torch.ones(n, dtype=torch.bool, device=device), q, qd, (point, normal))
        env.state.goal = goal
        env.episode_steps.fill_(self.steps)


@dataclass(frozen=True)
class Iteration:
    """An iteration's candidates; those that diverged count in none of the values."""

    best: float
    best_so_far: float
    mean: float
    spread: float  # standard deviation of the values
    action_spread: float  # standard deviation of what was searched for, mean over its numbers
    diverged: int
    env_steps: int  # of all candidates, from the first iteration on


@dataclass(frozen=True)
class Plan:
    """The best of all candidates."""

    env_id: str
    backend: str
    options: dict[str, Any]  # of task and backend
    config: PlanConfig
    objective: Objective | None  # None: the return
    actions: Tensor  # [T, A] in [-1, 1]
    value: float  # its return, or the objective of its last state
    steps: int  # actions until its episode ended, or T
    terminated: bool  # whether it ended by the task's termination
    trust: float | None  # least trust in a learned model on the way
    history: tuple[Iteration, ...]
    values: Tensor  # [iterations, C] of all candidates; NaN of those that diverged
    tried: Tensor | None  # [iterations, C, D] of all candidates, if a plan has few numbers
    start: Start
    step_dt: float  # seconds of an action
    seconds: float

    @property
    def env_steps(self) -> int:
        """Steps of all candidates together."""
        return self.history[-1].env_steps

    @property
    def value_name(self) -> str:
        """What the value is."""
        return "return" if self.objective is None else getattr(self.objective, "__name__", "objective")

    def facts(self) -> dict[str, Any]:
        """All of it as json takes it."""
        start = {name: x.tolist() if isinstance(x, Tensor) else x for name, x in vars(self.start).items()}
        facts = {
            "env": self.env_id,
            "backend": self.backend,
            "options": {name: x if isinstance(x, (bool, int, float)) else str(x) for name, x in self.options.items()},
            "config": asdict(self.config) | {"knots": self.config.searched},
            "objective": self.value_name,
            "value": self.value,
            "steps": self.steps,
            "terminated": self.terminated,
            "trust": self.trust,
            "env_steps": self.env_steps,
            "seconds": round(self.seconds, 3),
            "env_steps_per_s": round(self.env_steps / self.seconds, 1),
            "step_dt": self.step_dt,
            "start": start,
            "actions": self.actions.tolist(),
            "history": [asdict(iteration) for iteration in self.history],
            "values": self.values.tolist(),
        }
        return finite(facts)

    def save(self, path: str | Path, more: dict[str, Any] | None = None) -> None:
        """Write it as json, and more beside it."""
        save(Path(path), self.facts() | (more or {}))

    def plot(self, path: str | Path) -> None:
        """Draw the candidates' values by iteration, and the actions."""
        from .plot import plot

        plot(self, Path(path))

    def film(self, path: str | Path) -> None:
        """Film the plan on its backend, slowly if it is short."""
        from .film import film

        film(self, Path(path))
