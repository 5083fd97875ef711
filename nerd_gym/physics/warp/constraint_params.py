"""The parameters of MuJoCo's constraints for a robot, and the weights of its bodies and joints at its zero pose."""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import warp as wp

from nerd_gym.physics.torch.engine import Articulated, read_parameters
from nerd_gym.robots.features import CAPSULE, SPHERE, ground_geoms
from nerd_gym.robots.links import Links
from nerd_gym.robots.model import RobotModel, rotation_matrix

from .constraint_law import ConstraintParams
from .launch import filled

BOX_CORNERS = 8


class ConstraintLaw(NamedTuple):
    """As MJCF's solref and solimp have them; how the impedance grows with the depth is as by default."""

    contact_time: float = 0.02  # s, time constant
    contact_damping: float = 1.0  # damping ratio
    contact_impedance: float = 0.95  # d, of deep contacts
    mu: float = 1.0
    limit_time: float = 0.02
    limit_damping: float = 1.0
    limit_impedance: float = 0.95


# Of contacts, then of limits: time constant (s), damping ratio, impedance; friction after those of contacts.
ROW_BOUNDS = ((1e-4, 10.0), (1e-2, 100.0), (0.55, 0.99999))
LAW_BOUNDS = torch.tensor([*ROW_BOUNDS, (0.0, 100.0), *ROW_BOUNDS], dtype=torch.float64).T


def make_constraint_params(robot: RobotModel, links: Links, device: wp.Device) -> ConstraintParams:
    """Weights and tangents of a robot with given inertias; :func:`set_constraint_law` fills in the rest."""
    contact_weight, limit_weight = inverse_weights(robot, links)
    limited = np.flatnonzero(np.isfinite(robot.joint_range).any(1)) + int(robot.free_base)
    values = {
        "axis": (contact_axes(robot, links), wp.vec3),
        "contact_weight": (contact_weight, wp.float32),
        "limit_weight": (limit_weight, wp.float32),
        "limited": (limited, wp.int32),
    }
    params = filled(ConstraintParams(), values, device)
    set_constraint_law(params, ConstraintLaw())
    return params


def no_constraint_params(device: wp.Device) -> ConstraintParams:
    """For a kernel that has no constraints."""
    types = {"axis": wp.vec3, "contact_weight": wp.float32, "limit_weight": wp.float32, "limited": wp.int32}
    return filled(ConstraintParams(), {name: (np.zeros(0), dtype) for name, dtype in types.items()}, device)


def set_constraint_law(params: ConstraintParams, law: ConstraintLaw) -> None:
    """For launches to come."""

    def row(time: float, damping: float, impedance: float) -> tuple[float, float, float]:
        """b, k and d."""
        return 2 / (impedance * time), 1 / (impedance * time * damping) ** 2, impedance

    params.mu = law.mu
    params.contact_b, params.contact_k, params.contact_impedance = row(*law[:3])
    params.limit_b, params.limit_k, params.limit_impedance = row(*law[4:])


def inverse_weights(robot: RobotModel, links: Links) -> tuple[np.ndarray, np.ndarray]:
    """Of the candidates' links [C] and of the links' joints [L]: acceleration per force at the zero pose.

    They are MuJoCo's body_invweight0, the mean over directions at a body's centre of mass, and dof_invweight0.
    """
    engine = Articulated(robot, read_parameters(robot, links))
    q = torch.as_tensor(robot.mj_model.qpos0)[None].double()
    pose = engine.pose(q)
    H, _ = engine.mass_and_bias(pose, torch.zeros(1, robot.nv, dtype=q.dtype))
    inverse = torch.linalg.inv(H[0])
    com = pose.position[0] + (pose.rotation[0] @ engine.parameters.com[..., None])[..., 0]
    w, v = (part[0][None].expand(engine.count, -1, -1) for part in pose.axes.split(3, -1))
    jacobian = (v + torch.linalg.cross(w, com[:, None].expand_as(w))) * engine.above[..., None]  # [L, nv, 3]
    body = torch.einsum("ljx,jk,lkx->l", jacobian, inverse, jacobian) / 3
    joint = torch.cat([torch.zeros(engine.first, dtype=q.dtype), inverse.diagonal()[engine.base :]])
    carrier = [links["frames"][int(b)][0] for b in robot.candidates.body]
    return body[carrier].numpy(), joint.numpy()


def contact_axes(robot: RobotModel, links: Links) -> np.ndarray:
    """[C, 3]: a capsule's axis in its link's frame, along which MuJoCo lays the first tangent; 0 for other shapes."""
    m, axes = robot.mj_model, []
    for geom in ground_geoms(m, robot.ground):
        kind, body = int(m.geom_type[geom]), int(m.geom_bodyid[geom])
        if kind == CAPSULE:
            axes += 2 * [links["frames"][body][1] @ rotation_matrix(m.geom_quat[geom])[:, 2]]
        else:
            axes += (1 if kind == SPHERE else BOX_CORNERS) * [np.zeros(3)]
    return np.array(axes, float).reshape(-1, 3)
