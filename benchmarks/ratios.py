"""Speed as ratios to peers, each pair taken in the same run, turn by turn.

- our `mujoco` environment over a bare loop of mujoco.batch with the same substeps;
- our `warp` environment over Newton's own SolverFeatherstone and over that bare loop;
- two threads over one;
- a single environment's step time over Gymnasium's Ant-v5 at equal physics steps.

Run it on an otherwise idle machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

import gymnasium
import newton
import numpy as np
import torch
import tyro
from mujoco.batch import Batch

import nerd_gym
from nerd_gym.envs.throughput import env_subject
from nerd_gym.physics.warp.newton_state import to_newton
from nerd_gym.utils.timing import Subject, save, time_interleaved

RESULT = Path(__file__).parent / "results" / "ratios.json"
ANT = "NeRD/Ant-v0"


def raw_batch(num_envs: int, threads: int) -> Subject:
    """mujoco.batch alone: the same robot, substeps and forces as our environment, and nothing else."""
    robot = nerd_gym.RobotModel.named("ant")
    batch = Batch(robot.mj_model, num_envs, nthread=threads)
    env = gymnasium.make_vec(ANT, num_envs=num_envs, backend="mujoco", array="torch").unwrapped
    env.reset(seed=0)
    batch.qpos[:], batch.qvel[:] = env.backend.q.numpy(), env.backend.qd.numpy()
    forces = [400 * np.random.default_rng(k).uniform(-1, 1, (num_envs, robot.nj)) for k in range(16)]
    state = {"k": 0}

    def step() -> None:
        state["k"] += 1
        batch.qfrc_applied[:, robot.joint_qd] = forces[state["k"] % 16]
        batch.step(nstep=robot.substeps)
        if state["k"] % 500 == 0:  # the same horizon
            batch.qpos[:], batch.qvel[:] = env.backend.q.numpy(), env.backend.qd.numpy()

    for _ in range(10):
        step()
    return Subject({"env": "ant.xml", "engine": "mujoco.batch"}, step, num_envs, robot.substeps)


def stock_newton(num_envs: int) -> Subject:
    """Newton's SolverFeatherstone, eager, same model and substeps; its collision pipeline runs once per frame."""
    robot = nerd_gym.RobotModel.named("ant")
    one = newton.ModelBuilder(up_axis=newton.Axis.Z)
    one.add_mjcf(str(robot.path), parse_visuals=False, parse_sites=False)
    builder = newton.ModelBuilder(up_axis=newton.Axis.Z)
    builder.replicate(one, num_envs)
    model = builder.finalize(device="cpu")
    pipeline = newton.CollisionPipeline(model, rigid_contact_max=40 * num_envs)
    contacts = pipeline.contacts()
    solver = newton.solvers.SolverFeatherstone(model)
    env = gymnasium.make_vec(ANT, num_envs=num_envs, backend="mujoco", array="torch").unwrapped
    env.reset(seed=0)
    states = [model.state(), model.state()]
    joint_q, joint_qd = to_newton(robot, env.backend.q, env.backend.qd)
    states[0].joint_q.assign(joint_q.flatten().numpy())
    states[0].joint_qd.assign(joint_qd.flatten().numpy())
    newton.eval_fk(model, states[0].joint_q, states[0].joint_qd, states[0])
    control = model.control()
    forces = np.zeros((num_envs, robot.nv), np.float32)
    forces[:, robot.joint_qd] = 400 * np.random.default_rng(0).uniform(-1, 1, (num_envs, robot.nj))
    control.joint_f.assign(forces.flatten())

    def step() -> None:
        pipeline.collide(states[0], contacts)
        for _ in range(robot.substeps):
            states[0].clear_forces()
            solver.step(states[0], states[1], control, contacts, robot.timestep)
            states.reverse()

    step()
    return Subject({"env": "ant.xml", "engine": "newton SolverFeatherstone"}, step, num_envs, robot.substeps)


def single(label: str, physics_steps: int, env: gymnasium.Env) -> Subject:
    """One plain environment under random actions."""
    rng = np.random.default_rng(0)
    actions = cycle([rng.uniform(-1, 1, env.action_space.shape).astype(np.float32) for _ in range(64)])
    env.reset(seed=0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset()

    for _ in range(50):
        step()
    return Subject({"env": "Ant", "engine": label}, step, 1, physics_steps)


def ratio(subjects: list[Subject], top: int, bottom: int) -> float:
    """Median over the repeats of the ratio within a repeat."""
    return round(median(a / b for a, b in zip(subjects[top].rates, subjects[bottom].rates, strict=True)), 3)


@dataclass
class Args:
    """Measure ratios to peers."""

    repeats: int = 7
    """Interleaved repeats; the median counts."""
    seconds: float = 1.0
    """Length of a repeat."""
    out: Path = RESULT
    """Where to write the json."""


def main(args: Args) -> None:
    torch.set_num_threads(1)
    figures: dict[str, float] = {}

    subjects = [
        env_subject(ANT, "mujoco", 512, threads=1),
        env_subject(ANT, "warp", 512, threads=1),
        raw_batch(512, 1),
    ]
    time_interleaved(subjects, args.repeats, args.seconds)
    figures["mujoco env / mujoco.batch loop, Ant, N=512, 1 thread"] = ratio(subjects, 0, 2)
    figures["warp env / mujoco.batch loop, Ant, N=512, 1 thread"] = ratio(subjects, 1, 2)

    subjects = [env_subject(ANT, "warp", 512, threads=1), stock_newton(512)]
    time_interleaved(subjects, 3, args.seconds)
    figures["warp env / Newton SolverFeatherstone eager, Ant, N=512, 1 thread"] = ratio(subjects, 0, 1)

    subjects = [env_subject(ANT, b, 2048, threads=t) for b in ("warp", "mujoco") for t in (2, 1)]
    time_interleaved(subjects, args.repeats, args.seconds)
    figures["warp 2 threads / 1, Ant, N=2048"] = ratio(subjects, 0, 1)
    figures["mujoco 2 threads / 1, Ant, N=2048"] = ratio(subjects, 2, 3)

    make = gymnasium.make
    subjects = [
        single("nerd_gym warp", 16, make(ANT, backend="warp")),
        single("nerd_gym mujoco", 16, make(ANT, backend="mujoco")),
        single("Ant-v5, 16 steps", 16, make("Ant-v5", frame_skip=16)),
        single("Ant-v5, 4 steps of RK4", 16, make("Ant-v5", frame_skip=4)),
    ]
    time_interleaved(subjects, 3 * args.repeats, args.seconds / 2)
    for k, backend in enumerate(("warp", "mujoco")):
        # Rates are per second, so that the peer's rate over ours is our step time over the peer's.
        figures[f"single {backend} step time / Ant-v5, 16 physics steps each"] = ratio(subjects, 2, k)
        figures[f"single {backend} step time / Ant-v5, 16 dynamics evaluations each (RK4 = 4)"] = ratio(subjects, 3, k)

    for name, value in figures.items():
        print(f"{name:82s}{value:8.2f}")
    save(args.out, {"what": "speed ratios, each pair in one run, default physics", "ratios": figures})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
