"""A robot as a tree of links with one joint each, as the equations of motion take it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nerd_gym.utils.warp import init_warp

from .model import FREE, SLIDE, RobotModel, rotation_matrix

Links = dict[str, Any]  # one array per name, its first axis the links; and ``frames`` by MJCF body, see read_links


def read_links(robot: RobotModel) -> Links:
    """The robot as a tree of links, one per joint, each with its frame at the joint and turned like its body.

    Newton's importer gives the bodies' inertias, with bodies that have no joint merged into the one that carries
    them. A body with several joints becomes a chain of links of which the last has its inertia. ``frames`` says
    for every MJCF body which link carries it, and how it is turned and placed in that link's frame.
    """
    init_warp()
    import newton  # here, because importing it starts Warp

    m = robot.mj_model
    builder = newton.ModelBuilder(up_axis=newton.Axis.Z)
    builder.add_mjcf(str(robot.path), collapse_fixed_joints=True, parse_visuals=False, parse_sites=False)
    carried = [float(m.body_mass[m.body_weldid == b].sum()) for b in range(1, m.nbody) if m.body_jntnum[b]]
    masses = [float(builder.body_mass[child]) for child in builder.joint_child]
    if len(masses) != len(carried) or not np.allclose(masses, carried, rtol=1e-4):
        raise ValueError(
            f"{robot.name}: Newton reads bodies of {np.round(masses, 4)} kg, MuJoCo of {np.round(carried, 4)} kg; "
            "give each body an explicit <inertial> (Newton does not know, for one, the compiler's settotalmass)"
        )
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
    frames = {0: (-1, np.eye(3), np.zeros(3))}
    children = iter(builder.joint_child)
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
        if len(joints):
            child = next(children)
            links["mass"][link] = builder.body_mass[child]
            links["com"][link] = np.array(builder.body_com[child], float) + position
            links["inertia"][link] = np.array(builder.body_inertia[child], float).reshape(3, 3)
    return links | {"frames": frames}


def published_inertia_pairing(robot: RobotModel, links: Links) -> np.ndarray:
    """Whose inertia stands for each link's in the mass matrix of the published simulator.

    It numbers ANYmal's legs LF, RF, LH, RH as bodies and RH, LH, RF, LF as joints, and pairs body k with
    joint k: every leg carries the inertia of the leg diagonally opposite. Other robots are paired rightly.
    """
    order = np.arange(len(links["parent"]), dtype=np.int32)
    if robot.name == "anymal":
        order[1:] = order[1:].reshape(4, 3)[::-1].reshape(-1)
    return order
