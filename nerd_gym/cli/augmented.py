"""`nerd-gym augment`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass
class Augment:
    """Put networks into a robot's engine and train them on recorded motion; the same command goes on where it stopped.

    Writes the model and a picture of its wiring. Use it with backend="augmented", model=FILE.
    """

    robot: tyro.conf.Positional[str]
    """A packaged robot or the path of an MJCF."""
    data: tuple[Path, ...]
    """Datasets as `nerd-gym generate` writes them; the last trajectories of each are held back."""
    wire: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """OUTPUT ...: INPUT ..., a network, e.g. --wire "tau/*: q/@ qd/@"; may be given again. With --discover each is a
    candidate, in which a semicolon separates networks."""
    hidden: tuple[int, ...] = (5, 5)
    """Units of the hidden layers."""
    activation: str = "elu"
    """elu, tanh or silu."""
    replace: bool = False
    """Networks replace what the engine has, instead of adding to it."""
    contact: str = "penalty"
    """penalty (the robot's own), hunt_crossley or impulses."""
    identify: tuple[str, ...] = ()
    """Parameters of the engine to train as well, e.g. --identify damping mass contact_gains."""
    lasso: tuple[float, ...] = ()
    """Penalties on what networks read, e.g. --lasso 1e-3 3e-3 1e-2: tells which signals survive each, and keeps the
    model with the fewest that is nearly as good as the best."""
    discover: bool = False
    """Train every --wire by itself and keep the smallest that is nearly as good as the best."""
    starts: int = 1
    """Starts of a global search before the training, all as one batch."""
    hops: int = 0
    """Hops of that search from minimum to minimum."""
    horizon: int = 1
    """Frames that a window is rolled out for, from its recorded start; 0: whole trajectories."""
    stride: int = 1
    """Frames between the starts of windows."""
    truncate: int = 0
    """Frames after which gradients are cut; 0: never."""
    windows: int = 20_000
    """Windows to train on, drawn from all."""
    optimiser: str = "lbfgs"
    """lbfgs, of which a step is 20 iterations on all windows; gauss_newton, fast for up to some hundred numbers; or
    adamw."""
    steps: int = 30
    """Steps of the optimiser."""
    batch: int = 0
    """Windows in a step; 0: all. For adamw."""
    lr: Annotated[float, tyro.conf.arg(metavar="RATE")] = 3e-3
    """Largest learning rate of adamw."""
    seed: int = 0
    """One seed, one result."""
    out: Path | None = None
    """The model; by default out/models/ROBOT-augmented.safetensors."""
    ignore: tuple[str, ...] = ()
    """Features of an MJCF to leave out on every backend, e.g. self_collision gravcomp."""

    def run(self) -> None:
        from nerd_gym.augmented.models.blueprint import Blueprint, Wire
        from nerd_gym.augmented.training.run import augment
        from nerd_gym.augmented.training.train import Settings
        from nerd_gym.utils.files import check_output
        from nerd_gym.utils.optional import require

        from .dynamics import robot_of

        robot = robot_of(self.robot, self.ignore)
        out = self.out or Path("out/models") / f"{robot.name}-augmented.safetensors"
        check_output(out)
        require("matplotlib", extra="video")
        chosen = ("horizon", "stride", "truncate", "windows", "optimiser", "steps", "batch", "lr", "seed", "identify")
        chosen += ("starts", "hops")
        settings = Settings(**{name: getattr(self, name) for name in chosen})
        network = {"hidden": self.hidden, "activation": self.activation, "residual": not self.replace}
        blueprints = [
            Blueprint([Wire.parse(part, **network) for part in text.split(";") if part.strip()]) for text in self.wire
        ]
        if not self.discover:
            blueprints = [Blueprint([wire for blueprint in blueprints for wire in blueprint.wires])]
        augment(robot, blueprints, self.data, out, settings, self.contact, self.lasso, self._command(robot.name))

    def _command(self, robot: str) -> str:
        """What says this again."""
        default = type(self)(self.robot, self.data)
        words = [f"nerd-gym augment {robot}", f"--data {' '.join(path.name for path in self.data)}"]
        words += [f'--wire "{text}"' for text in self.wire]
        for name, value in vars(self).items():
            if name in ("robot", "data", "wire", "out") or value == getattr(default, name):
                continue
            text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"--{name}" if value is True else f"--{name} {text}")
        return " ".join(words)
