"""NeRD/Strike-v0, task `route`: policies in surrogate reality, and on the backend that they were trained on.

Surrogate reality (surrogate_reality.py) stands in for a laboratory: nothing here was measured. On each of the three
routes every policy has as many runs, with the same segments and first yaws. A run succeeds if all sub-goals are reached
within the task's horizon without leaving the safe zone.

In surrogate reality a block's pose is all that is known. It is written into an environment, and observations, sub-goals
and ends are the Task's own functions of that state; the environment's physics is not stepped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from surrogate_strikes import SurrogateReality
from torch import Tensor

from nerd_gym.collision.scenes.robot import flat_pose, rest_height, scene_of
from nerd_gym.envs.factory import manual_reset_env
from nerd_gym.envs.strike import AWAY
from nerd_gym.envs.strike_goals import Goal
from nerd_gym.envs.vector import NerdVectorEnv
from nerd_gym.policies.agents import load_agent
from nerd_gym.policies.facts import of_task, trained_for
from nerd_gym.policies.policy import Policy
from nerd_gym.utils.files import load_tensors
from nerd_gym.utils.progress import progress
from nerd_gym.utils.timing import save

HERE = Path(__file__).parent
ENV = "NeRD/Strike-v0"
ROUTES = (1, 2, 3)
# Table VI of the paper, measured on a robot: runs that succeeded, and sub-goals reached on routes 2 and 3.
PAPER = {
    "hybrid": {"successes": {"1": "8/10", "2": "5/10", "3": "5/10"}, "reached": {"2": "14/20", "3": "21/30"}},
    "MuJoCo": {"successes": {"1": "4/10", "2": "2/10", "3": "1/10"}, "reached": {"2": "8/20", "3": "13/30"}},
}

Strikes = Callable[[Tensor, Tensor], Tensor]  # actions [N, 3] of running rows [N] bool -> rows [N] bool that end


@dataclass
class Args:
    """Play policies of routes in surrogate reality."""

    policies: tuple[Path, ...] = ()
    """Files; by default policies/strike/*.safetensors."""
    settings: tuple[str, ...] = ("A1", "B1", "C1")
    """Of surrogate reality."""
    runs: int = 20
    """Per policy, setting and route."""
    seed: int = 5000
    """Of routes and of surrogate reality."""
    models: Path = Path("policies/strike")
    """Where the collision model of a policy that was trained with --option model=FILE is, by the file's name."""
    out: Path = HERE / "results" / "strike_policies.json"
    """Where to write the json."""


@contextmanager
def in_reality(env: NerdVectorEnv, setting: str, seed: int):
    """Strikes in surrogate reality of the blocks of an environment."""
    shape = env.task.config.shape
    with SurrogateReality(setting, shape, seed) as reality:

        def strike(action: Tensor, running: Tensor) -> Tensor:
            scene, state = scene_of(env.backend.q), env.state
            pose = torch.cat([scene.block, scene.yaw[:, None]], -1)
            rows = running.nonzero().squeeze(1)
            pose[rows] = torch.from_numpy(reality.strike(pose[rows].numpy(), action[rows].numpy())).to(pose)
            waiting = pose[:, :2] + torch.tensor([AWAY, 0.0])
            q = torch.cat([flat_pose(pose[:, :2], pose[:, 2], rest_height(env.backend.robot)), waiting], -1)
            env.backend.reset(running, q, torch.zeros_like(env.backend.qd))
            ended, goal = env.task.terminated(state), env.task.next_goal(state)
            assert goal is not None
            state.goal = torch.where(running[:, None], goal, state.goal)
            return ended

        yield strike


@contextmanager
def in_environment(env: NerdVectorEnv):
    """Strikes on the environment's own backend."""

    def strike(action: Tensor, running: Tensor) -> Tensor:
        _, _, failed, cut, _ = env.step(action)
        return failed | cut

    yield strike


def play(env: NerdVectorEnv, policy: Path, seed: int, strike: Strikes) -> dict[str, Any]:
    """One run of every row."""
    assert env.horizon is not None
    agent = load_agent(policy, env)
    agent.reset()
    obs, _ = env.reset(seed=seed)
    running = torch.ones(env.num_envs, dtype=torch.bool)
    reached, strikes = torch.zeros(env.num_envs), torch.zeros(env.num_envs)
    count = Goal.of(env.goal).count.clone()
    for _ in range(env.horizon):
        ended = strike(agent.act(obs), running)
        obs = env.task.observe(env.state)
        strikes += running
        reached = torch.where(running, Goal.of(env.goal).index, reached)
        running = running & ~ended
        if not bool(running.any()):
            break
    return {
        "runs": env.num_envs,
        "successes": int((reached >= count).sum()),
        "reached": int(reached.sum()),
        "sub_goals": int(count.sum()),
        "strikes": round(float(strikes.mean()), 2),
        "out_of_time": int(running.sum()),
    }


def own_options(policy: Path, models: Path) -> tuple[str, dict[str, Any]]:
    """Backend and options of the training; of a collision model the facts have the file's name alone."""
    env_id, backend, options = trained_for(policy)
    if env_id != ENV or options.get("task") != "route":
        raise ValueError(f"{policy.name} is a policy of {env_id}, task {options.get('task')}; valid: {ENV}, task route")
    options = {name: value for name, value in options.items() if name != "route"}
    if "model" in options:
        path = models / options["model"]
        if not path.is_file():
            raise ValueError(f"{policy.name} was trained with the model {options['model']}; it is not in {models}")
        options["model"] = str(path)
    return backend, options


def measure(policy: Path, args: Args) -> list[dict[str, Any]]:
    """One policy, everywhere."""
    backend, options = own_options(policy, args.models)
    facts = Policy.load(policy).facts
    about = {"policy": policy.stem, "trained_on": backend, "shape": options["shape"], "seed": facts.get("seed")}
    rows = []
    for setting in (None, *args.settings):
        routes = {}
        for route in ROUTES:
            if setting is None:
                env = manual_reset_env(ENV, args.runs, backend, **options | {"route": route, "threads": 1})
                world = in_environment(env)
            else:  # the backend only holds the state, and mujoco holds any
                own = of_task(ENV, options) | {"route": route, "threads": 1}
                env = manual_reset_env(ENV, args.runs, "mujoco", **own)
                world = in_reality(env, setting, args.seed)
            with world as strike:
                routes[str(route)] = play(env, policy, args.seed, strike)
            env.close()
        where = f"its own backend, {backend}" if setting is None else f"surrogate reality {setting}"
        rows.append(about | {"where": where, "setting": setting, "routes": routes})
    return rows


def print_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        cells = [f"{r['successes']}/{r['runs']} ({r['reached']}/{r['sub_goals']})" for r in row["routes"].values()]
        print(f"{row['policy']:24s}{row['where']:28s}" + "".join(f"{cell:>18s}" for cell in cells), flush=True)


def main(args: Args) -> None:
    torch.set_num_threads(1)
    policies = args.policies or tuple(sorted(HERE.parent.glob("policies/strike/*.safetensors")))
    # Collision models that policies were trained with may lie beside them.
    policies = [path for path in policies if args.policies or "env" in load_tensors(path)[1]]
    if not policies:
        raise ValueError("no policy in policies/strike; valid: --policies FILE ..., as `nerd-gym rl train` writes them")
    if args.runs < 1:
        raise ValueError(f"runs is {args.runs}; it must be at least 1")
    rows: list[dict[str, Any]] = []
    with progress(policies, unit="policy", desc="routes") as bar:
        for policy in bar:
            rows += measure(policy, args)
    print_rows(rows)
    about = {"what": __doc__.splitlines()[0], "runs": args.runs, "seed": args.seed, "paper": PAPER}
    save(args.out, about | {"rows": rows})
    print(f"written: {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
