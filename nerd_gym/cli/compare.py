"""`nerd-gym compare` and `demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nerd_gym.utils.arguments import key_value


@dataclass
class Compare:
    """Play a policy from the same starts on several backends and say whether it behaves the same.

    Prints a table that ends with a verdict for each backend; writes a page with plots and a film.
    """

    env_id: tyro.conf.Positional[str]
    """Environment, as `nerd-gym list` names it, e.g. NeRD/Cartpole-v0."""
    policy: str
    """A policy (.safetensors, .onnx, or an rl-games .pth), module:function or file.py:function (torch observations
    [N, obs] to actions [N, act]), zero, random, mpc or mpc-net."""
    backends: tuple[str, ...] = ()
    """Two or more, the first is the baseline; options after a colon: warp:reference=True neural:model=FILE,threads=1.
    By default all that the robot has."""
    episodes: int = 256
    """Episodes on each backend."""
    seed: int = 0
    """Seed of the starts and of the resampling."""
    margin: float = 0.02
    """Returns that differ by less than this part of the baseline's count as the same."""
    displaced: float = 0.01
    """How far (m and rad) the starts of the yardstick are displaced."""
    out: Path | None = None
    """Folder for compare.html, .json, .png and .mp4; by default out/compare/ROBOT-POLICY."""
    video: bool = True
    """Whether to film."""
    gif: bool = False
    """Also write the film as compare.gif."""
    layout: Literal["native", "reference"] = "native"
    """`reference`: the observations and actions of the published NeRD code, for its policies."""
    activation: str | None = None
    """Activation of an rl-games .pth, which the file does not tell: tanh, relu, elu or silu."""
    option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Options of the task, e.g. --option task=spin."""

    def run(self) -> None:
        from nerd_gym.compare.comparison import compare
        from nerd_gym.policies.agents import agent_name
        from nerd_gym.registration import env_spec
        from nerd_gym.utils.files import check_output

        options = dict(map(key_value, self.option))
        robot = env_spec(self.env_id).robot(options)
        name = f"{robot.name}-{Path(agent_name(self.policy)).stem.replace(':', '-')}"
        out = self.out or Path("out/compare") / name
        check_output(out, folder=True)
        chosen = ("episodes", "seed", "margin", "displaced", "layout", "activation")
        result = compare(
            self.env_id,
            self.policy,
            self.backends,
            options=options,
            **{key: getattr(self, key) for key in chosen},
        )
        print(result, end="\n\n")
        written = result.save(out, self.video, self.gif)
        print(f"written to {out}: {', '.join(path.name for path in written)}")


@dataclass
class Demo:
    """Compare the shipped policies on every backend that their robot has: a table, plots, films, one page."""

    out: Path = Path("out/demo")
    """Folder for demo.html and a folder for each policy."""
    policies: Path | None = None
    """Folder with the policies; by default those that come with the package."""
    episodes: int = 64
    """Episodes on each backend."""
    seed: int = 0
    """Seed of the starts."""
    video: bool = True
    """Whether to film, which takes most of the time."""

    def run(self) -> None:
        from nerd_gym.compare.demo import POLICIES, run_demo
        from nerd_gym.utils.files import check_output

        check_output(self.out, folder=True)
        run_demo(self.out, self.policies or POLICIES, self.episodes, self.seed, self.video)
