"""A robot as a tree of links with one joint each, as the equations of motion take it."""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .features import FREE, SLIDE, refusal
from .model import RobotModel, rotation_matrix

if TYPE_CHECKING:
    import mujoco

Links = dict[str, Any]  # one array per name, its first axis the links; and ``frames`` by MJCF body, see read_links
Frames = dict[int, tuple[int, np.ndarray, np.ndarray]]  # link, rotation and position of a body


def read_links(robot: RobotModel) -> Links:
    """The robot as a tree of links, one per joint, each with its frame at the joint and turned like its body.

    Inertias are those of MuJoCo's compiler, with bodies that have no joint merged into the one that carries them. A
    body with several joints becomes a chain of links of which the last has its inertia. ``frames`` says for every MJCF
    body which link carries it, and how it is turned and placed in that link's frame.
    """
    if "trees" in robot.features:
        raise refusal(robot.path.name, {"trees": robot.features["trees"]}, "the suite's own equations of motion do")
    m = robot.mj_model
    count = m.njnt
    links: Links = {
        "parent": np.full(count, -1, np.int32),
        "slide": (m.jnt_type == SLIDE).astype(np.int32),
        "inertia_of": np.arange(count, dtype=np.int32),
        "offset": np.zeros((count, 3)),
        "rotation": np.tile(np.eye(3), (count, 1, 1)),
        "axis": np.where(m.jnt_type[:, None] == FREE, 0.0, m.jnt_axis),
        "mass": np.zeros(count),
        "com": np.zeros((count, 3)),
        "inertia": np.zeros((count, 3, 3)),
    }
    frames: Frames = {0: (-1, np.eye(3), np.zeros(3))}
    for body in range(1, m.nbody):
        link, rotation, position = frames[int(m.body_parentid[body])]
        position = position + rotation @ m.body_pos[body]
        rotation = rotation @ rotation_matrix(m.body_quat[body])
        joints = range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body])
        for joint in joints:
            if m.jnt_type[joint] == FREE:
                link, rotation, position = joint, np.eye(3), np.zeros(3)
                continue
            links["parent"][joint], links["rotation"][joint] = link, rotation
            links["offset"][joint] = position + rotation @ m.jnt_pos[joint]
            link, rotation, position = joint, np.eye(3), -m.jnt_pos[joint]
        frames[body] = link, rotation, position
    for link in range(count):
        parts = [body for body, (carrier, _, _) in frames.items() if carrier == link]
        links["mass"][link], links["com"][link], links["inertia"][link] = _merged(m, parts, frames)
    return links | {"frames": frames}


def _merged(m: mujoco.MjModel, bodies: list[int], frames: Frames) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre of mass and inertia about it of bodies that one link carries, in the link's frame."""
    masses = m.body_mass[bodies]
    coms = np.array([frames[b][2] + frames[b][1] @ m.body_ipos[b] for b in bodies]).reshape(-1, 3)
    com = masses @ coms / masses.sum() if masses.any() else np.zeros(3)
    inertia = np.zeros((3, 3))
    for body, mass, offset in zip(bodies, masses, coms - com, strict=True):
        axes = frames[body][1] @ rotation_matrix(m.body_iquat[body])
        inertia += axes @ np.diag(m.body_inertia[body]) @ axes.T
        inertia += mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))
    return float(masses.sum()), com, inertia


def published_inertia_pairing(robot: RobotModel, links: Links) -> np.ndarray:
    """Whose inertia stands for each link's in the mass matrix of the published simulator.

    It numbers ANYmal's legs LF, RF, LH, RH as bodies and RH, LH, RF, LF as joints, and pairs body k with
    joint k: every leg carries the inertia of the leg diagonally opposite. Other robots are paired rightly.
    """
    order = np.arange(len(links["parent"]), dtype=np.int32)
    if robot.name == "anymal":
        order[1:] = order[1:].reshape(4, 3)[::-1].reshape(-1)
    return order
