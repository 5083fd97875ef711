"""`nerd-gym plan`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nerd_gym.backends import parse_backend
from nerd_gym.utils.arguments import key_value


@dataclass
class Plan:
    """Search for the best action sequence from one start, with a batch of candidates on any backend.

    Writes plan.json and plan.png; says on other backends what the plan comes to there.
    """

    env_id: tyro.conf.Positional[str]
    """Environment, as `nerd-gym list` names it, e.g. NeRD/Cartpole-v0."""
    backend: str | None = None
    """Physics, as `nerd-gym list` names it; by default the environment's."""
    method: str = "cma"
    """cma (CMA-ES), cem (cross-entropy method) or random (random shooting)."""
    horizon: int = 20
    """Actions of the plan."""
    iterations: int = 30
    """How often the search proposes candidates."""
    candidates: int = 256
    """Plans that are tried in an iteration, as one batch."""
    knots: int | None = None
    """Actions that are searched for, with straight lines between them; by default five, or one
    for every six of a long plan."""
    sigma: float = 0.5
    """Standard deviation of the first candidates, for actions from -1 to 1."""
    seed: int = 0
    """Seed of the start and of the search."""
    check: tuple[str, ...] = ()
    """Backends to carry the plan out on, from the same start; options after a colon: warp:substeps=4 mujoco."""
    video: bool = False
    """Also film the plan, plan.mp4."""
    device: str = "cpu"
    """Torch device."""
    option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Options of the task or backend, e.g. --option task=spin threads=1."""
    out: Path | None = None
    """Folder; by default out/plan/ROBOT-BACKEND-METHOD-seedN."""

    def run(self) -> None:
        from nerd_gym.planning.execution import execute, executions_facts, executions_table
        from nerd_gym.planning.planner import plan
        from nerd_gym.registration import env_spec
        from nerd_gym.utils.device import torch_device
        from nerd_gym.utils.files import check_output
        from nerd_gym.utils.optional import require

        options = dict(map(key_value, self.option))
        name = [env_spec(self.env_id).robot(options).name, self.backend, self.method, f"seed{self.seed}"]
        out = self.out or Path("out/plan") / "-".join(filter(None, name))
        check_output(out, folder=True)
        torch_device(self.device)
        for label in self.check:
            parse_backend(label)
        require("matplotlib", extra="video")
        if self.video:
            require("imageio_ffmpeg", extra="video")
        chosen = ("method", "horizon", "iterations", "candidates", "knots", "sigma", "seed")
        found = plan(
            self.env_id,
            self.backend,
            device=self.device,
            options=options,
            **{key: getattr(self, key) for key in chosen},
        )
        rate = found.env_steps / found.seconds
        print(f"best return {found.value:.4f} of {found.steps} steps", end="; ")
        print(f"{found.env_steps:,} env-steps in {found.seconds:.1f} s, {rate:,.0f} per second")
        checked = execute(found, self.check)
        if checked:
            print(executions_table(found, checked))
        found.save(out / "plan.json", {"check": executions_facts(checked)})
        found.plot(out / "plan.png")
        written = ["plan.json", "plan.png"]
        if self.video:
            found.film(out / "plan.mp4")
            written.append("plan.mp4")
        print(f"written to {out}: {', '.join(written)}")
