"""What contacts did to a robot within one substep of a teacher, which is asked for it at states of a dataset.

What a substep adds to the velocity beyond MuJoCo's smooth motion is dt H^-1 J^T f, with the forces f [K, 3] of the K
points inside the ground. The matrix is known, so that a law of contact is fitted to velocities, without a solver.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from nerd_gym.backends import make_backend
from nerd_gym.data.reader import Data, Transitions, frames_at
from nerd_gym.physics.torch.engine import Articulated
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.progress import progress

CHUNK = 2048
MOST_POINTS = 12  # of a robot inside the ground at once
Samples = dict[str, Tensor]  # depth, along [B, K], slide, normal [B, K, 3], effect [B, nv, K, 3], change [B, nv]


def touching(robot: RobotModel, state: Transitions) -> Tensor:
    """[B]: states with a point inside the ground."""
    q, qd = state["q"].double(), state["qd"].double()
    ground = state["ground_point"].double(), state["ground_normal"].double()
    engine = Articulated(robot)
    return (engine.contact_points(q, engine.pose(q), qd, ground).depth > 0).any(1)


def beyond_limits(robot: RobotModel, state: Transitions) -> Tensor:
    """[B]: states with a joint beyond one of its limits."""
    joints, (low, high) = state["q"][:, robot.joint_q], torch.as_tensor(robot.joint_range).unbind(-1)
    return ((joints < low) | (joints > high)).any(1)


def states_where(
    condition: Callable[[RobotModel, Transitions], Tensor],
    robot: RobotModel,
    arrays: dict[str, Tensor],
    count: int,
    generator: torch.Generator,
) -> Tensor:
    """[K, 2]: at most `count` (trajectory, frame) at random that begin in such a state."""
    found, total = [], 0
    trajectories, frames = arrays["force"].shape[:2]
    order = torch.randperm(trajectories * frames, generator=generator)
    for some in order.split(CHUNK):
        at = torch.stack([some // frames, some % frames], 1)
        found.append(at[condition(robot, frames_at(arrays, *at.unbind(1)))])
        total += len(found[-1])
        if total >= count:
            break
    return torch.cat(found)[:count]


def substeps_of(data: Data, arrays: dict[str, Tensor], at: Tensor) -> Transitions:
    """Single substeps of the dataset's teacher from the states `at` [B, 2], where it stays healthy."""
    facts, parts = data.facts, []
    options, robot = json.loads(facts["backend_options"]), replace(data.robot, substeps=1)
    for some in progress(at.split(CHUNK), desc=f"substeps of {facts['backend']}", unit="chunk"):
        given = frames_at(arrays, *some.unbind(1))
        teacher = make_backend(facts["backend"], robot, len(some), **options)
        everyone, ground = torch.ones(len(some), dtype=torch.bool), (given["ground_point"], given["ground_normal"])
        teacher.reset(everyone, given["q"], given["qd"], ground)
        teacher.step(given["force"])
        after = given | {"next_q": teacher.q.clone(), "next_qd": teacher.qd.clone()}
        parts.append({name: value[teacher.healthy] for name, value in after.items()})
        teacher.close()
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def contact_samples(robot: RobotModel, substeps: Transitions, springs: bool) -> Samples:
    """What contacts did in single substeps.

    With `springs` the MJCF's springs at joint limits count to the smooth motion; without, states beyond a limit are
    left out.
    """
    engine, dt, parts = Articulated(robot), robot.timestep, []
    for rows in progress(torch.arange(len(substeps["q"])).split(CHUNK), desc="contacts", unit="chunk"):
        given = {name: value[rows].double() for name, value in substeps.items()}
        q, qd, ground = given["q"], given["qd"], (given["ground_point"], given["ground_normal"])
        pose = engine.pose(q)
        H, bias = engine.mass_and_bias(pose, qd)
        points = engine.contact_points(q, pose, qd, ground)
        pull = engine.on_joints(given["force"]) + engine.joint_force(q, qd)
        smooth = qd + dt * torch.linalg.solve(H, pull - bias)
        keep = torch.ones(len(q), dtype=torch.bool) if springs else ~beyond_limits(robot, given)
        deepest = points.depth.topk(min(MOST_POINTS, points.depth.shape[1]), dim=1).indices
        jacobian = points.jacobian.gather(1, deepest[..., None, None].expand(-1, -1, robot.nv, 3)).transpose(1, 2)
        part = {
            "depth": points.depth.gather(1, deepest),
            "along": points.along.gather(1, deepest),
            "slide": points.slide.gather(1, deepest[..., None].expand(-1, -1, 3)),
            "normal": points.normal.expand(-1, deepest.shape[1], 3),
            "effect": dt * torch.linalg.solve(H, jacobian.flatten(2)).view_as(jacobian),
            "change": given["next_qd"] - smooth,
        }
        parts.append({name: value[keep].float() for name, value in part.items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
