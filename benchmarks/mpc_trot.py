"""The trot of Anymal by a QP and by the network that imitates it, on two simulators; and the time of each.

- trots: agents `mpc` and `mpc-net` from random starts: falls, speed, deviations, and how the first robot's begins;
- commands: the same under all corners of what the agents take, a robot each: falls, and the largest error of mean
  speed forwards and sideways, and of mean turn rate;
- times: along one trot of the QP, both find the forces of the same robot at the same instants, turn by turn. `QP` is
  assembling and solving it, from the last solution on; `network` is one evaluation, 41 inputs to 12 forces. `step` is
  either with what only it needs: the horizon's reference, arms and contacts for the QP, the 41 inputs for the network.
  What both need of the robot (kinematics, Jacobians, torques) is in neither.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
import tyro

from nerd_gym.control.agents import COMMANDS, ENV, mpc, mpc_net
from nerd_gym.control.forces import MpcForces, Plan
from nerd_gym.control.gait import TrotConfig
from nerd_gym.control.imitation import PRETRAINED, NetworkForces, network_inputs
from nerd_gym.control.trot import Trot
from nerd_gym.envs.factory import endless_env
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.robots.rotations import wrap_angle, yaw_of
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

BACKENDS = ("warp", "mujoco")
AGENTS: dict[str, Callable[[NerdVectorEnv], Trot]] = {"mpc": mpc, "mpc-net": mpc_net}
START, SHOWN = 1.0, 3.0  # s until the trot is steady; s of a course that are kept
MICROSECONDS = 1e6


@dataclass
class Args:
    """Benchmark of the trot."""

    runs: int = 16
    """Robots on each backend, from random starts."""
    seconds: float = 20.0
    """Length of a run."""
    instants: int = 1000
    """At which both are timed."""
    parts: tuple[Literal["trots", "commands", "times"], ...] = ("trots", "commands", "times")
    """What to measure; of the rest the file keeps what it has."""
    seed: int = 10_000
    """Of the starts, none of which the network was trained on."""
    out: Path = Path(__file__).parent / "results" / "mpc_trot.json"
    """The json to write."""


def trot(backend: str, agent: str, args: Args) -> dict[str, Any]:
    """One agent on one backend; a robot that falls counts until then."""
    env = endless_env(ENV, args.runs, backend)
    player = AGENTS[agent](env)
    obs, _ = env.reset(seed=args.seed)
    dt, steps = env.task.frame_dt, round(args.seconds / env.task.frame_dt)
    start, first_yaw = env.backend.q[:, :2].clone(), yaw_of(env.backend.q[:, 3:7])
    fallen = torch.zeros(args.runs, dtype=torch.bool)
    positions, states, at_limit = [], [], 0.0
    for _ in progress(range(steps), desc=f"{agent} on {backend}"):
        action = player.act(obs)
        at_limit += float((action.abs() >= 1).float().mean()) / steps
        obs, _, terminated, _, info = env.step(action)
        fallen |= terminated | info["diverged"]
        positions.append(env.backend.q[:, :2] - start)
        states.append(torch.stack([obs[:, 5], obs[:, 0], wrap_angle(yaw_of(obs[:, 1:5]) - first_yaw)]))
    env.close()
    # The robots start facing along x, so that x is forwards and y sideways.
    position, (speed, height, yaw) = torch.stack(positions), torch.stack(states, 1)
    steady = round(START / dt)

    def begin(values: torch.Tensor) -> list[float]:
        """Of the first robot."""
        return [round(x, 4) for x in values[: round(SHOWN / dt), 0].tolist()]

    mean_speed = (position[-1, :, 0] - position[steady - 1, :, 0]) / ((steps - steady) * dt)
    return {
        "agent": agent,
        "backend": backend,
        "falls": int(fallen.sum()),
        "speed": mean_speed.tolist(),
        "speed_std": float(speed[steady:].std(0).mean()),
        "sideways": position[-1, :, 1].tolist(),
        "height": float(height[steady:].mean()),
        "height_std": float(height[steady:].std(0).mean()),
        "yaw": float(yaw[steady:].abs().max()),
        "actions_at_limit": at_limit,
        "course": {"speed": begin(speed), "height": begin(height), "dt": dt},
    }


def corners(backend: str, agent: str, args: Args) -> dict[str, Any]:
    """Under the largest commands, together."""
    largest = [bound for _, bound in COMMANDS.values()]
    commands = torch.cartesian_prod(*(torch.tensor([-bound, bound]) for bound in largest))
    env = endless_env(ENV, len(commands), backend)
    player = AGENTS[agent](env)
    player.command = commands
    obs, _ = env.reset(seed=args.seed)
    fallen, motions = torch.zeros(len(commands), dtype=torch.bool), []
    steady = round(START / env.task.frame_dt)
    for _ in progress(range(round(args.seconds / env.task.frame_dt)), desc=f"commands of {agent} on {backend}"):
        obs, _, terminated, _, info = env.step(player.act(obs))
        fallen |= terminated | info["diverged"]
        yaw, (v_x, v_y) = yaw_of(obs[:, 1:5]), obs[:, 5:7].unbind(-1)
        forwards, left = yaw.cos() * v_x + yaw.sin() * v_y, yaw.cos() * v_y - yaw.sin() * v_x
        motions.append(torch.stack([forwards, left, obs[:, 10]], -1))
    env.close()
    errors = (torch.stack(motions)[steady:].mean(0) - commands).abs().amax(0)
    about = {"agent": agent, "backend": backend, "robots": len(commands), "falls": int(fallen.sum())}
    return about | {"errors": dict(zip(COMMANDS, errors.tolist()))}


def recorded_plans(args: Args) -> list[Plan]:
    """Of one robot along a trot of the QP on the first backend."""
    env = endless_env(ENV, 1, BACKENDS[0])
    player = mpc(env)
    forces, plans = player.forces, []

    class Kept:
        def __call__(self, plan: Plan) -> torch.Tensor:
            plans.append(plan)
            return forces(plan)

        def reset(self, rows: torch.Tensor | None = None) -> None:
            forces.reset(rows)

    player.forces = Kept()
    obs, _ = env.reset(seed=args.seed)
    for _ in range(args.instants):
        obs, *_ = env.step(player.act(obs))
    env.close()
    return plans


@torch.inference_mode()
def times(args: Args) -> dict[str, Any]:
    """Medians in microseconds, and their ratios."""
    env = endless_env(ENV, 1, BACKENDS[0])
    robot, config = env.task.robot, TrotConfig()
    qp, whole_qp = (MpcForces(robot, env.task.actuation["pose"], config) for _ in range(2))
    network = NetworkForces.load(PRETRAINED, robot, config)
    taken: dict[str, list[float]] = {"QP": [], "network": [], "QP step": [], "network step": []}

    def clock(name: str, work: Callable[[], Any]) -> None:
        begin = time.perf_counter()
        work()
        taken[name].append(MICROSECONDS * (time.perf_counter() - begin))

    for plan in progress(recorded_plans(args), desc="times"):
        (problem,) = qp.problems(plan)
        inputs = network_inputs(plan)
        clock("QP", lambda p=problem: qp.mpc.solve(p))
        clock("network", lambda x=inputs: network.network.act(x))
        clock("QP step", lambda p=plan: whole_qp(p))
        clock("network step", lambda p=plan: network(p))
    env.close()
    found = {name: median(values) for name, values in taken.items()}
    ratios = {"ratio": found["QP"] / found["network"], "step ratio": found["QP step"] / found["network step"]}
    return {"microseconds": found, **ratios}


def main(args: Args) -> None:
    """Run, print and save."""
    torch.set_num_threads(1)
    both = [(backend, agent) for agent in AGENTS for backend in BACKENDS]
    kept = {} if len(args.parts) == 3 else json.loads(args.out.read_text())
    about = {"command": COMMANDS["speed"][0], "runs": args.runs, "seconds": args.seconds, "seed": args.seed}
    for part in args.parts:
        if part == "trots":
            measured = [trot(*names, args) for names in both]
            tell(measured)
        elif part == "commands":
            measured = {"largest": COMMANDS, "rows": [corners(*names, args) for names in both]}
            print(*measured["rows"], sep="\n")
        else:
            measured = times(args)
            print(measured)
        kept |= about | {part: measured}
    save(args.out, kept)
    print(f"written: {args.out}")


def tell(rows: list[dict[str, Any]]) -> None:
    """Print a line for each agent on each backend."""
    for row in rows:
        speed = torch.tensor(row["speed"])
        told = f"falls {row['falls']}  speed {speed.mean():.3f} ({speed.min():.3f} to {speed.max():.3f}) m/s"
        sideways = max(map(abs, row["sideways"]))
        print(f"{row['agent']:8} {row['backend']:7} {told}  sideways {sideways:.2f} m  yaw {row['yaw']:.3f} rad")


if __name__ == "__main__":
    main(tyro.cli(Args))
