"""A robot and the parameters of its physics as Warp structs, which every kernel of the equations of motion takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import warp as wp

from nerd_gym.robots.links import Links
from nerd_gym.robots.model import RobotModel

from .launch import filled


class TreeShape(NamedTuple):
    """What kernels of the equations of motion are made for."""

    parents: tuple[int, ...]  # [L] links, -1 is the world
    contacts: int
    free: bool  # whether link 0 is a free base

    @property
    def nv(self) -> int:
        """Degrees of freedom."""
        return len(self.parents) + 5 * self.free

    def paths(self) -> list[list[int]]:
        """Of every link, the links whose joints are between the base and it, its own the last."""
        paths: list[list[int]] = []
        for link, parent in enumerate(self.parents):
            above = paths[parent] if parent >= 0 else []
            paths.append([*above, link] if link >= self.free else [])
        return paths

    def rows(self) -> list[int]:
        """Of every link, where its row of the packed mass matrix begins; last, how many entries there are.

        The base's lower triangle comes first. The row of a joint has the base's columns, then those of its path.
        """
        rows = [21 * self.free]
        for path in self.paths():
            rows.append(rows[-1] + (len(path) + 6 * self.free if path else 0))
        return rows

    @property
    def deepest(self) -> int:
        """The longest path, in joints."""
        return max(map(len, self.paths()))

    @property
    def key(self) -> str:
        """For names of kernels."""
        parents = "_".join("w" if parent < 0 else str(parent) for parent in self.parents)
        return f"{'free' if self.free else 'fixed'}_{self.contacts}_{parents}"


def shape_of(robot: RobotModel, links: Links) -> TreeShape:
    """Of a robot."""
    return TreeShape(tuple(map(int, links["parent"])), len(robot.candidates.radius), robot.free_base)


@wp.struct
class Tree:
    """A robot as arrays over its L links; link l > 0 (or every link of a fixed base) has one joint."""

    parent: wp.array(dtype=wp.int32)  # [L], -1 is the world
    slide: wp.array(dtype=wp.int32)  # [L], 1 for a slide
    depth: wp.array(dtype=wp.int32)  # [L], joints between the base and the link, its own included
    path: wp.array2d(dtype=wp.int32)  # [L, deepest], the links of these joints from the base on
    row: wp.array(dtype=wp.int32)  # [L], where a link's row of the mass matrix begins, as factor.py packs it
    offset: wp.array(dtype=wp.vec3)  # [L], joint's place in the parent's frame
    rotation: wp.array(dtype=wp.mat33)  # [L], joint's orientation there
    rotation_sin: wp.array(dtype=wp.mat33)  # [L], rotation @ skew(axis)
    rotation_cos: wp.array(dtype=wp.mat33)  # [L], rotation @ skew(axis)^2
    axis: wp.array(dtype=wp.vec3)  # [L], joint axis in the parent's frame
    mass: wp.array(dtype=wp.float32)  # [L]
    com: wp.array(dtype=wp.vec3)  # [L], in the link's frame
    inertia: wp.array(dtype=wp.mat33)  # [L], about the com
    inertia_of: wp.array(dtype=wp.int32)  # [L], whose inertia stands for link l's in H: l itself if right
    composite_mass: wp.array(dtype=wp.float32)  # [L], in H: of a link and all that it carries
    armature: wp.array(dtype=wp.float32)  # [L]
    damping: wp.array(dtype=wp.float32)  # [L]
    stiffness: wp.array(dtype=wp.float32)  # [L]
    zero: wp.array(dtype=wp.float32)  # [L], q where the links stand as the MJCF draws them; the rest counts from it
    rest: wp.array(dtype=wp.float32)  # [L]
    lower: wp.array(dtype=wp.float32)  # [L]
    upper: wp.array(dtype=wp.float32)  # [L]
    contact_link: wp.array(dtype=wp.int32)  # [C]
    contact_point: wp.array(dtype=wp.vec3)  # [C], in the link's frame
    contact_radius: wp.array(dtype=wp.float32)  # [C]


@wp.struct
class PhysicsParams:
    """Scalars of a backend."""

    dt: wp.float32
    substeps: wp.int32
    huber: wp.int32  # 1: the friction law of Warp 1.8, 0: capped viscous Coulomb
    gravity: wp.vec3
    limit_ke: wp.float32
    limit_kd: wp.float32
    ke: wp.float32
    kd: wp.float32
    kf: wp.float32
    mu: wp.float32


@wp.struct
class Networks:
    """Weights of a learned model, as physics/torch/contact_net.py and force_networks.py pack them; or empty."""

    contact: wp.array(dtype=wp.vec4)
    torque: wp.array(dtype=wp.vec4)


def make_tree(links: Links, robot: RobotModel, device: wp.Device) -> Tree:
    """Put the links, the joints' springs and limits, and the contact candidates into Warp arrays."""
    m = robot.mj_model
    first = int(robot.free_base)
    count = len(links["parent"])

    def per_link(values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        return np.concatenate([np.full(first, fill), np.asarray(values, float)])

    skew = np.zeros((count, 3, 3))
    x, y, z = links["axis"].T
    skew[:, 0, 1], skew[:, 0, 2], skew[:, 1, 2] = -z, y, -x
    skew -= skew.transpose(0, 2, 1)
    shape = shape_of(robot, links)
    path = np.zeros((count, max(1, shape.deepest)), np.int32)
    for l, above in enumerate(shape.paths()):
        path[l, : len(above)] = above
    composite = np.array(links["mass"], float)[links["inertia_of"]]
    for l in range(count - 1, -1, -1):
        if shape.parents[l] >= 0:
            composite[shape.parents[l]] += composite[l]
    link, local = [], []
    for body, point in zip(robot.candidates.body, robot.candidates.position, strict=True):
        carrier, rotation, position = links["frames"][int(body)]
        link.append(carrier)
        local.append(position + rotation @ point)
    zero = m.qpos0[robot.joint_q]
    values = {
        "parent": (links["parent"], wp.int32),
        "slide": (links["slide"], wp.int32),
        "depth": ([len(above) for above in shape.paths()], wp.int32),
        "path": (path, wp.int32),
        "row": (shape.rows()[:-1], wp.int32),
        "offset": (links["offset"], wp.vec3),
        "rotation": (links["rotation"], wp.mat33),
        "rotation_sin": (links["rotation"] @ skew, wp.mat33),
        "rotation_cos": (links["rotation"] @ skew @ skew, wp.mat33),
        "axis": (np.einsum("lij,lj->li", links["rotation"], links["axis"]), wp.vec3),
        "mass": (links["mass"], wp.float32),
        "com": (links["com"], wp.vec3),
        "inertia": (links["inertia"], wp.mat33),
        "inertia_of": (links["inertia_of"], wp.int32),
        "composite_mass": (composite, wp.float32),
        "armature": (per_link(links.get("armature", m.dof_armature[robot.joint_qd])), wp.float32),
        "damping": (per_link(links.get("damping", m.dof_damping[robot.joint_qd])), wp.float32),
        "stiffness": (per_link(m.jnt_stiffness[first:]), wp.float32),
        "zero": (per_link(zero), wp.float32),
        "rest": (per_link(m.qpos_spring[robot.joint_q] - zero), wp.float32),
        "lower": (per_link(robot.joint_range[:, 0] - zero, -np.inf), wp.float32),
        "upper": (per_link(robot.joint_range[:, 1] - zero, np.inf), wp.float32),
        "contact_link": (np.array(link, int), wp.int32),
        "contact_point": (np.array(local, float).reshape(-1, 3), wp.vec3),
        "contact_radius": (robot.candidates.radius, wp.float32),
    }
    return filled(Tree(), values, device)


def make_params(robot: RobotModel, substeps: int, law: str | None = None) -> PhysicsParams:
    """The scalars of a robot's physics, with its own friction law if none is given."""
    physics = PhysicsParams()
    physics.dt = robot.frame_dt / substeps
    physics.substeps = substeps
    physics.huber = int((law or robot.friction_law) == "huber")
    physics.gravity = wp.vec3(*map(float, robot.mj_model.opt.gravity))
    physics.limit_ke, physics.limit_kd = robot.limit_gains
    physics.ke, physics.kd, physics.kf, physics.mu = robot.contact_gains
    return physics
