"""Finite symmetries of robots, and a canonical choice among the equivalent views of a state.

An element relabels the joints (q -> sign * q[permutation] + offset) while an orthogonal matrix acts on the world: on
base pose and velocities, ground and gravity, in the axes of the robot's mounting. Reflections turn angular velocities
as pseudovectors. A network that only ever sees the canonical view of a state treats all equivalent states alike.

The symmetries of a robot with a free base are found; those of packaged robots with a fixed base are declared.
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .contacts import candidate_places, distinct_candidates, random_joints
from .features import HINGE
from .kinematics import Kinematics
from .model import RobotModel


@dataclass(frozen=True)
class Element:
    """One symmetry of a robot."""

    permutation: tuple[int, ...]  # [nj]
    sign: tuple[float, ...]
    offset: tuple[float, ...]  # 0 or pi, the latter for unlimited hinges only
    world: tuple[tuple[float, ...], ...]  # 3 x 3, in the axes of the mounting (of the world for a free base)

    def __matmul__(self, first: Element) -> Element:
        """First `first`, then this."""
        p, s, o, w = (np.array(x) for x in (first.permutation, first.sign, first.offset, first.world))
        mine = list(self.permutation)
        sign = np.array(self.sign)
        offset = np.mod(sign * o[mine] + np.array(self.offset) + np.pi, 2 * np.pi) - np.pi
        offset = np.where(np.abs(np.abs(offset) - np.pi) < 1e-9, np.pi, np.where(np.abs(offset) < 1e-9, 0.0, offset))
        world = np.array(self.world) @ w + 0.0  # no negative zeros, so that equal elements compare equal
        return Element(tuple(p[mine].tolist()), tuple((sign * s[mine]).tolist()), tuple(offset.tolist()), _rows(world))


def _rows(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(x) for x in row) for row in matrix)


def _mirror(axis: int) -> tuple[tuple[float, ...], ...]:
    return _rows(np.diag([-1.0 if k == axis else 1.0 for k in range(3)]))


# Of a free base: a quarter turn, left and right, front and back, a half turn.
WORLDS = (
    ((0.0, -1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)),
    _mirror(1),
    _mirror(0),
    ((-1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0)),
)
# Generators of the groups of packaged robots with a fixed base. Franka has none.
GENERATORS: dict[str, tuple[Element, ...]] = {
    "cartpole": (Element((0, 1), (-1.0, -1.0), (0.0, 0.0), _mirror(0)),),
    "pendulum_contact": (
        Element((0, 1), (1.0, 1.0), (0.0, 0.0), _mirror(1)),
        Element((0, 1), (-1.0, -1.0), (np.pi, 0.0), _mirror(0)),
    ),
}


def identity(robot: RobotModel) -> Element:
    """The element that changes nothing."""
    n = robot.nj
    return Element(tuple(range(n)), (1.0,) * n, (0.0,) * n, _rows(np.eye(3)))


def proposals(robot: RobotModel) -> list[Element]:
    """What may be a symmetry of a robot: declared, or those of `WORLDS` under which its joints change places."""
    if robot.free_base:
        return [element for world in WORLDS if (element := match_joints(robot, world)) is not None]
    return [g for g in GENERATORS.get(robot.name, ()) if len(g.sign) == robot.nj]


def match_joints(robot: RobotModel, world: tuple[tuple[float, ...], ...]) -> Element | None:
    """The element that takes each joint to the place where the matrix puts it at qpos0; None if none stands there."""
    import mujoco

    m = robot.mj_model
    data = mujoco.MjData(m)
    data.qpos[:7] = 0, 0, 0, 1, 0, 0, 0
    mujoco.mj_kinematics(m, data)
    kind, anchor, axis = m.jnt_type[1:], data.xanchor[1:], data.xaxis[1:]
    centre, matrix = data.xipos[m.jnt_bodyid[1:]], np.array(world)
    # A hinge's axis is a pseudovector.
    turned = axis @ matrix.T * np.where(kind == HINGE, np.linalg.det(matrix), 1.0)[:, None]
    along = axis @ turned.T  # [joint, the one that comes there]
    near = 1e-6 * max(1.0, np.abs(anchor).max(initial=0.0))
    apart = np.abs(anchor[:, None] - anchor @ matrix.T).max(2)
    fits = (apart < near) & (np.abs(np.abs(along) - 1) < 1e-6) & (kind[:, None] == kind)
    # Of several joints on one axis that whose body comes closest.
    far = np.where(fits, np.linalg.norm(centre[:, None] - centre @ matrix.T, axis=2), np.inf)
    which = far.argmin(1) if robot.nj else np.zeros(0, int)
    sign = np.round(along[np.arange(robot.nj), which])
    zero = m.qpos0[robot.joint_q]
    if not fits.any(1).all() or len(set(which.tolist())) < robot.nj or not np.allclose(sign * zero[which], zero):
        return None
    return Element(tuple(which.tolist()), tuple(sign.tolist()), (0.0,) * robot.nj, world)


@lru_cache(maxsize=16)
def group(robot: RobotModel) -> tuple[Element, ...]:
    """All elements, the identity first: what :func:`proposals` names and :func:`verify` accepts."""
    generators = [g for g in proposals(robot) if verify(robot, g)]
    elements = [identity(robot)]
    for element in elements:  # grows while it is read, until nothing new is found
        elements += [new for g in generators if (new := g @ element) not in elements]
        if len(elements) > 64:
            raise ValueError(f"the generators of {robot.name} make no small group")
    return tuple(elements)


def transform_state(robot: RobotModel, element: Element, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
    """The equivalent state: q [N, nq], qd [N, nv]."""
    joints, rates = q[:, robot.joint_q], transform_joints(element, qd[:, robot.joint_qd])
    joints = transform_joints(element, joints) + joints.new_tensor(element.offset)
    if not robot.free_base:
        return joints, rates
    vector = q.new_tensor(element.world)
    pseudo = vector * torch.linalg.det(vector)
    base = [q[:, :3] @ vector.T, q[:, 3:4], q[:, 4:7] @ pseudo.T]
    return torch.cat([*base, joints], 1), torch.cat([qd[:, :3] @ vector.T, qd[:, 3:6] @ pseudo.T, rates], 1)


def transform_joints(element: Element, values: Tensor) -> Tensor:
    """Rates or forces [N, nj] of the equivalent state."""
    return values[:, list(element.permutation)] * values.new_tensor(element.sign)


def transform_points(robot: RobotModel, element: Element, points: Tensor) -> Tensor:
    """Points [N, 3] of the world, such as the ground's, for the equivalent state."""
    about = points.new_tensor(mounting(robot)[:3, 3])
    return transform_vectors(robot, element, points - about) + about


def transform_vectors(robot: RobotModel, element: Element, vectors: Tensor) -> Tensor:
    """Directions [N, 3] of the world, such as gravity, for the equivalent state."""
    return vectors @ vectors.new_tensor(world_matrix(robot, element)).T


def world_matrix(robot: RobotModel, element: Element) -> np.ndarray:
    """[3, 3] in the world's axes."""
    axes = mounting(robot)[:3, :3]
    return axes @ np.array(element.world) @ axes.T


def mounting(robot: RobotModel) -> np.ndarray:
    """[4, 4]: what an element's matrix refers to: the first link's place at the start, or the world for a free base."""
    return np.eye(4) if robot.free_base else _first_link(robot, robot.mj_model.qpos0[None])[0]


def _first_link(robot: RobotModel, q: np.ndarray) -> np.ndarray:
    """Poses [N, 4, 4] in double precision."""
    kinematics = Kinematics(robot, dtype=torch.float64)
    return kinematics.poses(torch.as_tensor(q))[:, kinematics.frame_of_body[int(robot.mj_model.jnt_bodyid[0])]].numpy()


def frame_matrix(robot: RobotModel, element: Element) -> np.ndarray:
    """[3, 3]: how vectors in the robot's frame change."""
    world = world_matrix(robot, element)
    if robot.free_base:
        return world
    q = random_joints(robot, 1, seed=1)
    after = transform_state(robot, element, torch.as_tensor(q), torch.as_tensor(q))[0].numpy()
    return np.round(_first_link(robot, after)[0, :3, :3].T @ world @ _first_link(robot, q)[0, :3, :3], 12) + 0.0


def candidate_permutation(robot: RobotModel, element: Element) -> np.ndarray | None:
    """Which distinct candidate comes to stand where each one stood; None if they do not map onto each other."""
    kept = distinct_candidates(robot)
    q = torch.as_tensor(random_joints(robot, 4, seed=1))
    after = transform_state(robot, element, q, q[:, : robot.nv])[0]
    before = torch.as_tensor(candidate_places(robot, q.numpy())[:, kept])
    expected = transform_points(robot, element, before.reshape(-1, 3)).view(before.shape).numpy()
    found = candidate_places(robot, after.numpy())[:, kept]
    apart = np.abs(found[:, :, None] - expected[:, None]).max((0, 3))  # [C after, C before]
    which = apart.argmin(1) if len(kept) else np.zeros(0, int)
    radius = robot.candidates.radius[kept]
    fits = np.all(apart.min(1, initial=np.inf) < 1e-6) and np.allclose(radius[which], radius)
    return which if fits and len(set(which.tolist())) == len(which) else None


def verify(robot: RobotModel, element: Element, tolerance: float = 1e-5, states: int = 8) -> bool:
    """Whether MuJoCo's smooth dynamics, the joint limits and the candidates have the symmetry."""
    return equivariance_error(robot, element, states) < tolerance and _same_outlines(robot, element)


def equivariance_error(robot: RobotModel, element: Element, states: int = 8) -> float:
    """The largest difference of accelerations between equivalent states, relative to the largest acceleration."""
    import mujoco

    rng = np.random.default_rng(0)
    q = random_joints(robot, states, seed=2)
    qd = rng.normal(0, 2.0, (states, robot.nv))
    force = rng.normal(0, 1.0, (states, robot.nj)) * np.maximum(robot.force_limit, 1.0)
    if robot.free_base:
        q[:, 3:7] = rng.normal(size=(states, 4))
        q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    tensors = [torch.as_tensor(x) for x in (q, qd, force)]
    q2, qd2 = transform_state(robot, element, *tensors[:2])

    def accelerations(q, qd, force, gravity) -> Tensor:
        model = copy.copy(robot.mj_model)
        model.opt.gravity[:] = gravity
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT)
        data = mujoco.MjData(model)
        out = []
        for row in range(states):
            data.qpos[:], data.qvel[:] = q[row], qd[row]
            data.qfrc_applied[robot.joint_qd] = force[row]
            mujoco.mj_forward(model, data)
            out.append(data.qacc.copy())
        return torch.as_tensor(np.array(out))

    gravity = torch.as_tensor(robot.mj_model.opt.gravity)
    before = accelerations(q, qd, force, gravity)
    after = accelerations(q2, qd2, transform_joints(element, tensors[2]), transform_vectors(robot, element, gravity))
    expected = transform_state(robot, element, tensors[0], before)[1]
    return float((after - expected).abs().max() / expected.abs().max())


def _same_outlines(robot: RobotModel, element: Element) -> bool:
    """Whether joint limits, force limits and candidates map onto each other."""
    permutation, sign = list(element.permutation), np.array(element.sign)
    limits = np.sort(sign[:, None] * robot.joint_range[permutation] + np.array(element.offset)[:, None], 1)
    same = np.allclose(limits, robot.joint_range) and np.allclose(robot.force_limit[permutation], robot.force_limit)
    return same and candidate_permutation(robot, element) is not None
