"""`nerd-gym rl ...`"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nerd_gym.utils.arguments import MOST_THREADS, count, key_value, whole


@dataclass
class Train:
    """Train a policy with an RL library in any backend; the same command goes on with a run that was stopped.

    The folder of the run gets policy.safetensors, curve.csv and the library's log for TensorBoard."""

    env_id: tyro.conf.Positional[str]
    """Environment, as `nerd-gym list` names it, e.g. NeRD/Ant-v0."""
    lib: str = "rl-games"
    """rl-games, sb3, rsl-rl or skrl."""
    algo: str = "ppo"
    """ppo, or sac with sb3."""
    backend: str | None = None
    """Physics, as `nerd-gym list` names it; by default the environment's."""
    task: str | None = None
    """The environment's task, e.g. spin; by default its first."""
    seed: int = 0
    """One seed, one policy (on one machine)."""
    steps: str | None = None
    """Env-steps of all robots together, with k or M if you like; by default the config's."""
    until: str | None = None
    """Stop after so many env-steps for now, with policy-so-far.safetensors in the folder; the same command without
    this, or with another --option model=FILE, goes on."""
    num_envs: int | None = None
    """Robots in the batch; by default the config's."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Change the library's config, e.g. --set params.config.gamma=0.98; +KEY=VALUE adds a key."""
    config: Path | None = None
    """A yaml in place of the packaged one (nerd_gym/rl/*.yaml)."""
    option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Options of the task or backend, e.g. --option control=torque."""
    threads: int | None = None
    """CPU threads of torch and of the backend; all by default."""
    device: str = "cpu"
    """Torch device."""
    out: Path | None = None
    """Folder of the run; by default out/rl/ROBOT-TASK-BACKEND-LIB-seedN."""

    def run(self) -> None:
        import torch

        from nerd_gym.envs.options import chosen_backend
        from nerd_gym.registration import env_spec
        from nerd_gym.rl.configs import load_config
        from nerd_gym.rl.train import FINISHED, SO_FAR, RunPlan, train
        from nerd_gym.rl.trainer import DEFAULT_ALGO, check_library

        check_library(self.lib, self.algo)
        spec = env_spec(self.env_id)
        backend = chosen_backend(spec, self.backend)
        given = ({"task": self.task} if self.task else {}) | dict(map(key_value, self.option))
        chosen = asdict(spec.config(given))
        changes = self.set
        changes += (f"run.steps={count(self.steps)}",) if self.steps is not None else ()
        changes += (f"run.num_envs={self.num_envs}",) if self.num_envs is not None else ()
        run, config = load_config(self.lib, self.env_id, chosen, self.config, changes, self.algo)
        if self.threads is not None:
            whole("threads", self.threads, MOST_THREADS)
            torch.set_num_threads(self.threads)
            given["threads"] = self.threads
        name = [spec.robot(given).name, *(str(chosen[k]) for k in ("task", "control") if k in chosen)]
        name += [backend, self.lib, *([] if self.algo == DEFAULT_ALGO else [self.algo]), f"seed{self.seed}"]
        out = self.out or Path("out/rl") / "-".join(name)
        until = count(self.until) if self.until is not None else None
        plan = RunPlan(
            self.env_id,
            self.lib,
            backend,
            given,
            self.seed,
            run,
            config,
            self.device,
            self._command(backend),
            until,
            self.algo,
        )
        facts = train(plan, out)
        print(f"{facts['steps']:,} steps in {facts['wall_seconds']:.0f} s, {facts['cpu_seconds']:.0f} s of CPU")
        written = out / (SO_FAR if self.until else FINISHED)
        print(f"written: {written}; nerd-gym rl eval and nerd-gym compare judge it")

    def _command(self, backend: str) -> str:
        """The words that ask for this, without those that do not matter to the result."""
        words = ["nerd-gym", "rl", "train", self.env_id, "--lib", self.lib]
        words += ["--algo", self.algo] if self.algo != "ppo" else []
        words += ["--backend", backend]
        for name, value in (("task", self.task), ("steps", self.steps), ("num-envs", self.num_envs)):
            words += [f"--{name}", str(value)] if value else []
        for name, values in (("option", self.option), ("set", self.set)):
            words += [f"--{name}", *values] if values else []
        words += ["--config", self.config.name] if self.config else []
        return shlex.join([*words, "--seed", str(self.seed)])


@dataclass
class Play:
    """Play a policy in the environment that it was trained for, on any backend; film it or open a window."""

    policy: tyro.conf.Positional[Path]
    """A policy whose file tells its environment, as `nerd-gym rl train` writes it."""
    backend: str | None = None
    """Physics; by default that in which it was trained."""
    video: Path | None = None
    """Write the first robot to this .mp4 or .gif."""
    window: bool = False
    """Show the first robot in a window (needs a screen)."""
    num_envs: int = 1
    """How many robots at once."""
    steps: int | None = None
    """How many steps; by default the environment's horizon."""
    seed: int = 0
    """Seed of the starts."""

    def run(self) -> None:
        from nerd_gym.policies.facts import trained_for
        from nerd_gym.policies.play import play

        env_id, backend, options = trained_for(self.policy, self.backend)
        figures = play(
            env_id,
            backend=backend,
            agent=str(self.policy),
            steps=self.steps,
            num_envs=self.num_envs,
            seed=self.seed,
            video=self.video,
            window=self.window,
            options=options,
        )
        print("  ".join(f"{name} {value:g}" for name, value in figures.items()))
        if self.video:
            print(f"written: {self.video}")


@dataclass
class Eval:
    """First episodes of policies: mean return with its 95 % interval, length, falls, the task's measures."""

    policy: tyro.conf.Positional[tuple[Path, ...]]
    """Policies whose files tell their environment, as `nerd-gym rl train` writes them."""
    backends: tuple[str, ...] = ()
    """Physics, with options if wanted: warp:reference=True; by default that in which each was trained."""
    episodes: int = 256
    """How many, each from a start of its own."""
    seed: int = 1000
    """Seed of the starts."""
    out: Path | None = None
    """Also write the figures to this json."""

    def run(self) -> None:
        from nerd_gym.rl.evaluate import evaluate, returns_table, save_rows
        from nerd_gym.utils.files import check_output

        check_output(self.out)
        rows = evaluate(self.policy, self.backends, self.episodes, self.seed)
        print(returns_table(rows))
        if self.out:
            save_rows(self.out, rows)
            print(f"written: {self.out}")


@dataclass
class Rl:
    """Train a policy with an RL library in any backend, play it, evaluate it."""

    command: Annotated[
        Annotated[Train, tyro.conf.subcommand("train")]
        | Annotated[Play, tyro.conf.subcommand("play")]
        | Annotated[Eval, tyro.conf.subcommand("eval")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> None:
        self.command.run()
