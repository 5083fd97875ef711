"""Speed of the backend `neural` over `warp` and `mujoco`: env-steps per second, N = 512, one thread, one run.

python benchmarks/neural_speed.py                                  the packaged models
python benchmarks/neural_speed.py --model out/models/*.safetensors   and others, by the robot that their file names

Robots with a free base are also compared with the paper's network, a transformer of 10.7 M parameters that is given its
whole window at every step (its weights do not matter here and are random), and are timed at other batch sizes. All
subjects of a robot are interleaved in one run, so that each batch size has one figure and figures can be compared.
Run it on an otherwise idle machine.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
import tyro

from nerd_gym.dynamics.models import base as model
from nerd_gym.dynamics.models.checkpoint import has_packaged_model, load_model, packaged_model, save_model
from nerd_gym.dynamics.models.transformer import TransformerModel
from nerd_gym.envs.throughput import env_subject
from nerd_gym.registration import PACKAGED
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import load_tensors
from nerd_gym.utils.timing import Subject, save, time_interleaved

RESULT = Path(__file__).parent / "results" / "neural_speed.json"
PAPER = {"layers": 6, "heads": 12, "width": 384, "window": 10}
SIZES = (64, 512, 2048, 8192)


@dataclass
class Args:
    """Measure learned models beside the simulators."""

    model: tuple[Path, ...] = ()
    """Models besides the packaged ones."""
    num_envs: int = 512
    """Batch size."""
    repeats: int = 7
    """Interleaved repeats; the median counts."""
    seconds: float = 1.0
    """Length of a repeat."""
    only: str = ""
    """Only environments with this text in their id, e.g. Ant; the others stay as the json has them."""
    out: Path = RESULT
    """Where to write the json."""


class WholeWindow(TransformerModel):
    """The paper's network without a cache: all tokens of the window, at every step."""

    @torch.no_grad()
    def predict(self, state, joint_force, contacts, history):
        token = self.normaliser.inputs(self.tokens(state, joint_force, contacts))
        if getattr(self, "_window", None) is None:
            self._window = token[:, None].repeat(1, PAPER["window"], 1)
        self._window = torch.cat([self._window[:, 1:], token[:, None]], 1)
        motion = self.normaliser.outputs(self.module(self._window)[:, -1])
        return self.robot_centric.advance(state, *motion.split(self.robot.nv, 1))


def paper_subject(env_id: str, num_envs: int) -> tuple[Subject, int]:
    """An environment on the paper's network, and how many parameters that has."""
    robot = RobotModel.named(PACKAGED[env_id].robot_name)
    facts = {"kind": "transformer", "robot": robot.name, "robot_hash": robot.hash, "frame_dt": robot.frame_dt}
    facts |= {"teacher": "none", "network": PAPER}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "paper.safetensors"
        untrained = TransformerModel(robot, {}, facts)
        for parameter in untrained.module.head[-1].parameters():
            torch.nn.init.zeros_(parameter)  # the robot stays as it is, so that nothing diverges
        save_model(path, untrained.tensors(), facts)
        kind_of, model.kind_of = model.kind_of, lambda name: WholeWindow
        try:
            subject = env_subject(env_id, "neural", num_envs, threads=1, model=path)
        finally:
            model.kind_of = kind_of
    return subject, sum(p.numel() for p in untrained.module.parameters())


def other_sizes(env_id: str, num_envs: int) -> dict[int, Subject]:
    """The packaged model at the other batch sizes."""
    return {size: env_subject(env_id, "neural", size, threads=1) for size in SIZES if size != num_envs}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    facts = [(path, load_tensors(path)[1]) for path in args.model]
    old = json.loads(args.out.read_text()) if args.only and args.out.exists() else {"rows": []}
    rows = []
    for env_id, spec in PACKAGED.items():
        robot = spec.robot({})
        if not has_packaged_model(robot, "warp"):
            continue
        if args.only not in env_id:
            rows += [row for row in old["rows"] if row["env"] == env_id]
            continue
        packaged = load_model(packaged_model(robot, "warp"), robot)[1]["kind"]
        kinds: dict[str, dict] = {f"{packaged} (packaged)": {}}
        if has_packaged_model(robot, "mujoco"):
            other = load_model(packaged_model(robot, "mujoco"), robot)[1]["kind"]
            kinds[f"{other} (packaged, of `mujoco`)"] = {"teacher": "mujoco"}
        kinds |= {f["kind"]: {"model": path} for path, f in facts if f["robot"] == robot.name}
        backends = [("warp", "warp", {}), ("mujoco", "mujoco", {})]
        backends += [(kind, "neural", options) for kind, options in kinds.items()]
        subjects = {
            name: env_subject(env_id, backend, args.num_envs, threads=1, **options)
            for name, backend, options in backends
        }
        peers = ["warp", "mujoco"]
        sizes: dict[int, Subject] = {}
        parameters = 0
        if robot.free_base:
            subjects["transformer"], parameters = paper_subject(env_id, args.num_envs)
            peers.append("transformer")
            sizes = other_sizes(env_id, args.num_envs)
        time_interleaved([*subjects.values(), *sizes.values()], args.repeats, args.seconds)
        for kind in kinds:
            rates = subjects[kind].rates
            over = {
                peer: round(median(a / b for a, b in zip(rates, subjects[peer].rates, strict=True)), 3)
                for peer in peers
            }
            row = {"env": env_id, "model": kind, "env_steps_per_s": round(median(rates)), "over": over}
            if sizes and kind == next(iter(kinds)):
                by_size = sizes | {args.num_envs: subjects[kind]}
                by_batch_size = {str(size): round(median(by_size[size].rates)) for size in sorted(by_size)}
                row |= {"transformer_parameters": parameters, "by_batch_size": by_batch_size}
            rows.append(row)
    for row in rows:
        figures = "  ".join(f"{value:6.2f} x {peer}" for peer, value in row["over"].items())
        print(f"{row['env']:26s}{row['model']:24s}{row['env_steps_per_s']:10,d}/s  {figures}")
        if "by_batch_size" in row:
            print("".join(f"{size:>34s}: {rate:10,d}/s\n" for size, rate in row["by_batch_size"].items()), end="")
    what = f"env-steps/s of backend neural, N = {args.num_envs}, one thread, and ratios to its peers in the same run"
    save(args.out, {"what": what, "num_envs": args.num_envs, "rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
