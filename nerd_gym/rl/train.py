"""A training run: seeded, with a curve, checkpoints and a policy at the end. The same call goes on with a stopped one.

The folder of a run holds ``policy.safetensors`` at the end, ``curve.csv``, ``run.json`` (what was asked for),
``checkpoint.pt`` while it runs, and ``log`` (the library's own, for TensorBoard, and what it printed).

A run in a learned model may stop ahead of its end (``until``), leave ``policy-so-far.safetensors``, and go on in a
better model: one that has been refined where the policy went.
"""

from __future__ import annotations

import csv
import json
import math
import pickle
import random
import time
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from gymnasium.wrappers.vector import TransformReward
from tqdm import tqdm

from nerd_gym.policies.facts import environment_facts
from nerd_gym.policies.policy import Policy
from nerd_gym.utils.arguments import check_seed
from nerd_gym.utils.device import torch_device
from nerd_gym.utils.files import atomic_write, check_output
from nerd_gym.utils.progress import progress

from .configs import Config, Run
from .monitor import Monitor
from .trainer import DEFAULT_ALGO, LIBRARIES, Trainer, trainer_class

CHECKPOINT_SECONDS = 60.0
NOTE, FINISHED, SO_FAR = "run.json", "policy.safetensors", "policy-so-far.safetensors"
COLUMNS = ("steps", "seconds", "cpu_seconds", "return", "length", "episodes")


@dataclass(frozen=True)
class RunPlan:
    """What a run is asked to do. Two runs of one plan on one machine give the same policy."""

    env_id: str
    library: str
    backend: str
    options: dict[str, Any]  # of task and backend
    seed: int
    run: Run
    config: Config  # of the library
    device: str = "cpu"
    command: str = ""  # told in the policy's facts
    until: int | None = None  # env-steps after which to stop for now
    algo: str = DEFAULT_ALGO  # of the library

    def asked(self) -> dict[str, Any]:
        """As json, without what may change while a run goes on: the words that asked for it, when to stop, and the
        file of a learned model."""
        plan = asdict(self)
        plan["options"] = {name: value for name, value in self.options.items() if name != "model"}
        for name in ("command", "until"):
            plan.pop(name)
        if self.algo == DEFAULT_ALGO:  # which runs of before do not tell
            plan.pop("algo")
        return json.loads(json.dumps(plan, default=str))


def train(plan: RunPlan, out: Path) -> dict[str, Any]:
    """Run the plan in a folder, or go on with it there; returns the policy's facts."""
    if plan.until is not None and not 0 < plan.until < plan.run.steps:
        raise ValueError(f"until is {plan.until}; it must be from 1 to below the run's {plan.run.steps} steps")
    check_seed(plan.seed)
    torch_device(plan.device)
    check_output(out, folder=True)
    kind = trainer_class(plan.library, plan.algo)
    _check_folder(out, plan)
    finished, checkpoint = out / FINISHED, out / "checkpoint.pt"
    if finished.exists():
        print(f"{out} is finished; another --seed or --out begins a new run")
        return Policy.load(finished).facts
    saved = _read_checkpoint(checkpoint) if checkpoint.exists() else None
    _seed(plan.seed)
    env = gymnasium.make_vec(
        plan.env_id,
        num_envs=plan.run.num_envs,
        backend=plan.backend,
        array="torch",
        device=plan.device,
        **plan.options,
    )
    monitor = Monitor(env, plan.run.random_ages, saved and saved["monitor"])
    log = out / "log"
    log.mkdir(parents=True, exist_ok=True)
    with (log / "printed.txt").open("a") as printed, redirect_stdout(printed):
        trainer = kind(_scaled(monitor, plan.run.reward_scale), plan.config, log, plan.seed, plan.run.steps)
        with atomic_write(out / NOTE) as part:  # now that everything could be made
            part.write_text(json.dumps(plan.asked(), indent=1) + "\n")
        run = _Progress(out, monitor, trainer, saved)
        run.note_model(environment_facts(env).get("dynamics", {}).get("hash"))
        if saved:
            trainer.load(saved["trainer"])
            _set_random_state(saved["random"])
        iterations = trainer.iterations(plan.until or plan.run.steps, trainer.batch)
        with progress(total=iterations * trainer.batch, initial=run.steps, unit="step", unit_scale=True) as bar:
            bar.set_description(f"{plan.env_id} in {plan.backend}, {plan.library} {plan.algo}")
            missing = iterations - run.iterations
            if missing > 0:
                trainer.learn(missing, lambda: run.after(bar))
    facts = environment_facts(env) | ({"models": run.models} if len(run.models) > 1 else {})
    facts |= {
        "library": plan.library,
        "library_version": version(LIBRARIES[plan.library][0]),
        "algorithm": plan.algo,
        "steps": run.steps,
        "seed": plan.seed,
        "command": plan.command,
        "num_envs": plan.run.num_envs,
        "wall_seconds": round(run.seconds, 1),
        "cpu_seconds": round(run.cpu_seconds, 1),
        "training_return": None if math.isnan(run.curve[-1]["return"]) else round(run.curve[-1]["return"], 2),
    }
    if plan.until:
        if missing > 0:  # or it stands where it stood
            run.checkpoint()
        trainer.policy(facts).save(out / SO_FAR)
    else:
        run.write_curve()
        trainer.policy(facts).save(finished)
        for path in (checkpoint, out / SO_FAR):
            path.unlink(missing_ok=True)
    env.close()
    return facts


class _Progress:
    """Where a run stands: its counters, curve and checkpoints."""

    def __init__(self, out: Path, monitor: Monitor, trainer: Trainer, saved: dict[str, Any] | None = None):
        self._out, self._monitor, self._trainer = out, monitor, trainer
        self.iterations = saved["iterations"] if saved else 0
        self.curve: list[dict[str, float]] = saved["curve"] if saved else []
        self._before = tuple(self.curve[-1][name] if self.curve else 0.0 for name in ("seconds", "cpu_seconds"))
        self.models: list[dict[str, Any]] = saved.get("models", []) if saved else []
        self._clocks = time.perf_counter(), time.process_time()
        self._last_checkpoint = time.perf_counter()

    @property
    def steps(self) -> int:
        """Env-steps so far."""
        return self.iterations * self._trainer.batch

    @property
    def seconds(self) -> float:
        """Wall time so far, of all parts of a stopped run."""
        return self._before[0] + time.perf_counter() - self._clocks[0]

    @property
    def cpu_seconds(self) -> float:
        """CPU time so far, of all threads."""
        return self._before[1] + time.process_time() - self._clocks[1]

    def note_model(self, file_hash: str | None) -> None:
        """Which learned model the run is in from here on."""
        self.models = [model for model in self.models if model["from_step"] < self.steps]
        if file_hash and (not self.models or self.models[-1]["hash"] != file_hash):
            self.models.append({"hash": file_hash, "from_step": self.steps})

    def after(self, bar: tqdm) -> None:
        """To be called after every iteration."""
        self.iterations += 1
        mean, length, episodes = self._monitor.read()
        figures = (self.steps, round(self.seconds, 2), round(self.cpu_seconds, 2), mean, length, episodes)
        self.curve.append(dict(zip(COLUMNS, figures, strict=True)))
        bar.set_postfix_str(f"return {mean:.1f}, length {length:.0f}", refresh=False)
        bar.update(self._trainer.batch)
        if time.perf_counter() - self._last_checkpoint > CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write everything that the run needs to go on from here, and the curve so far."""
        state = {
            "iterations": self.iterations,
            "curve": self.curve,
            "models": self.models,
            "trainer": self._trainer.state(),
            "monitor": self._monitor.state(),
            "random": _random_state(),
        }
        with atomic_write(self._out / "checkpoint.pt") as part:
            torch.save(state, part)
        self.write_curve()
        self._last_checkpoint = time.perf_counter()

    def write_curve(self) -> None:
        """curve.csv."""
        with atomic_write(self._out / "curve.csv") as part, part.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for row in self.curve:
                writer.writerow({name: _short(row[name]) for name in COLUMNS})


def _short(value: float) -> float | str:
    return value if isinstance(value, int) else f"{value:.6g}"


def _read_checkpoint(path: Path) -> dict[str, Any]:
    try:
        return torch.load(path, weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is damaged; remove it to begin the run anew: {error}") from error


def _check_folder(out: Path, plan: RunPlan) -> None:
    """Refuse a folder that holds anything but a run of this plan."""
    asked = plan.asked()
    if (out / NOTE).exists():
        there = json.loads((out / NOTE).read_text())
        changed = [name for name in asked if there.get(name) != asked[name]]
        if changed:
            raise ValueError(f"{out} holds a run with another {', '.join(changed)}; give another --out, or remove it")
    elif out.exists() and any(path.name != "log" for path in out.iterdir()):
        raise ValueError(f"{out} holds other files; give another --out")


def _scaled(env: VectorEnv, scale: float) -> VectorEnv:
    return env if scale == 1.0 else TransformReward(env, lambda reward: scale * reward)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # Stable-Baselines3 draws its batches from it
    torch.manual_seed(seed)


def _random_state() -> dict[str, Any]:
    drawn = np.random.get_state(legacy=False)
    keys = torch.as_tensor(drawn["state"]["key"].astype(np.int64))
    numpy_state = [drawn["bit_generator"], keys, drawn["state"]["pos"], drawn["has_gauss"], drawn["gauss"]]
    devices = torch.cuda.get_rng_state_all()  # none without CUDA
    return {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state(), "cuda": devices}


def _set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state_all(state["cuda"])
