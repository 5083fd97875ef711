"""`nerd-gym list`, `play` and `bench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nerd_gym.utils.arguments import key_value


@dataclass
class List:
    """List the environments with their spaces, tasks and backends, and which backends are installed."""

    def run(self) -> None:
        from .listing import listing

        print(listing())


@dataclass
class Play:
    """Play an environment with an agent; print returns, write a video or open a window."""

    env_id: tyro.conf.Positional[str]
    """Environment, as `nerd-gym list` names it, e.g. NeRD/Ant-v0."""
    backend: str | None = None
    """Physics, as `nerd-gym list` names it; by default the environment's."""
    agent: str = "random"
    """zero, random, mpc or mpc-net (Anymal; mpc:speed=0.3), a policy (.safetensors, .onnx, or an rl-games .pth),
    module:function or file.py:function."""
    video: Path | None = None
    """Write the first robot to this .mp4 or .gif."""
    window: bool = False
    """Show the first robot in a window (needs a screen)."""
    steps: int | None = None
    """How many steps; by default the environment's horizon."""
    num_envs: int = 1
    """How many robots at once."""
    seed: int = 0
    """Seed of the environment and of the random agent."""
    layout: Literal["native", "reference"] = "native"
    """`reference`: the observations and actions of the published NeRD code, for its policies."""
    activation: str | None = None
    """Activation of an rl-games .pth, which the file does not tell: tanh, relu, elu or silu."""
    device: str = "cpu"
    """Torch device."""
    option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Options of the task or backend, e.g. --option task=spin reference=True."""

    def run(self) -> None:
        from nerd_gym.policies.play import play
        from nerd_gym.registration import env_spec

        env_spec(self.env_id)
        figures = play(
            self.env_id,
            backend=self.backend,
            agent=self.agent,
            steps=self.steps,
            num_envs=self.num_envs,
            seed=self.seed,
            video=self.video,
            window=self.window,
            layout=self.layout,
            activation=self.activation,
            device=self.device,
            options=dict(map(key_value, self.option)),
        )
        print("  ".join(f"{name} {value:g}" for name, value in figures.items()))
        if self.video:
            print(f"written: {self.video}")


@dataclass
class Bench:
    """Measure env-steps per second of every environment and backend here."""

    env_id: tyro.conf.Positional[tuple[str, ...]] = ()
    """Environments; by default all that need no option."""
    backends: tuple[str, ...] = ()
    """Backends to measure; by default all that the robot has."""
    num_envs: tuple[int, ...] = (1, 64, 512, 2048)
    """Batch sizes."""
    repeats: int = 3
    """Interleaved repeats; the median counts."""
    seconds: float = 1.0
    """How long a repeat runs, about."""
    threads: int | None = None
    """CPU threads; all by default."""
    out: Path | None = None
    """Also write the figures to this json."""

    def run(self) -> None:
        from nerd_gym.envs.throughput import bench, throughput_table
        from nerd_gym.registration import PACKAGED, env_spec
        from nerd_gym.utils.files import check_output
        from nerd_gym.utils.timing import save

        for env_id in self.env_id:
            env_spec(env_id)
        check_output(self.out)
        env_ids = self.env_id or tuple(PACKAGED)
        rows = bench(env_ids, self.backends, self.num_envs, self.repeats, self.seconds, self.threads)
        print(throughput_table(rows))
        if self.out:
            save(self.out, {"rows": rows})
            print(f"written: {self.out}")
