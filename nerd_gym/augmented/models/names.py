"""Names of what an engine computes: signals that a network may read, scalars that it may change.

====================  =========================================================  ==================
signals (inputs)      meaning                                                    unit
====================  =========================================================  ==================
q/J, qd/J             angle or displacement of joint J, and its rate             rad or m, and /s
command/J             the force that the task puts on it                         N m or N
depth/C               depth of contact candidate C, 0 over the ground            m
along/C, slip/C       its velocity along the normal, its speed across            m/s
push/C, drag/C        the contact law's own normal force and friction            N
velocity/L/vx .. wz   velocity and angular velocity of link L in its axes        m/s, rad/s
position/L/x .. z     place of its centre of mass in the world                   m
up/L/x .. z           the world's z axis in the link's axes                      1
time                  since the last reset                                       s
====================  =========================================================  ==================

====================  =========================================================  ==================
scalars (outputs)     meaning                                                    unit
====================  =========================================================  ==================
tau/J                 force on joint J                                           N m or N
stiffness/J           of its spring                                              N m/rad or N/m
damping/J             of its damper                                              N m s/rad or N s/m
normal/C              normal force of candidate C where it touches; no pull      N
friction/C            friction of candidate C, against the slip                  N
mass/L                of link L                                                  kg
com/L/x .. z          its centre of mass in its own frame                        m
inertia/L/xx .. yz    its inertia about that                                     kg m^2
drag/L/fx .. mz       force and moment on it at that, in its axes                N, N m
====================  =========================================================  ==================

Joints and candidates have the names of the MJCF; a link has the name of the body that it moves.
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import NamedTuple

from nerd_gym.robots.model import RobotModel

XYZ = ("x", "y", "z")
TWIST = ("vx", "vy", "vz", "wx", "wy", "wz")
WRENCH = ("fx", "fy", "fz", "mx", "my", "mz")
INERTIA = ("xx", "yy", "zz", "xy", "xz", "yz")
JOINT_SIGNALS, CONTACT_SIGNALS = ("q", "qd", "command"), ("depth", "along", "slip", "push", "drag")
LINK_SIGNALS = {"velocity": TWIST, "position": XYZ, "up": XYZ}
JOINT_SCALARS, CONTACT_SCALARS = ("tau", "stiffness", "damping"), ("normal", "friction")
LINK_SCALARS = {"mass": (), "com": XYZ, "inertia": INERTIA, "drag": WRENCH}


class Place(NamedTuple):
    """Where a number stands: a column of its group's matrix [B, n]."""

    group: str
    column: int


class Catalogue:
    """All names of a robot."""

    def __init__(self, robot: RobotModel):
        self.robot = robot
        self.links = link_names(robot)
        joints, contacts = robot.joint_names, robot.candidates.names
        self.signals: dict[str, Place] = {"time": Place("time", 0)}
        self.scalars: dict[str, Place] = {}
        for names, table, groups in (
            (joints, self.signals, JOINT_SIGNALS),
            (contacts, self.signals, CONTACT_SIGNALS),
            (joints, self.scalars, JOINT_SCALARS),
            (contacts, self.scalars, CONTACT_SCALARS),
        ):
            for group in groups:
                table.update((f"{group}/{name}", Place(group, k)) for k, name in enumerate(names))
        for table, groups in ((self.signals, LINK_SIGNALS), (self.scalars, LINK_SCALARS)):
            for group, parts in groups.items():
                for name, link in self.links.items():
                    width = max(1, len(parts))
                    for k, part in enumerate(parts or ("",)):
                        table[f"{group}/{name}/{part}".rstrip("/")] = Place(group, link * width + k)

    def matches(self, pattern: str, outputs: bool, further: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """Names that a pattern means, each with what its first * stands for; * stands for anything but a slash."""
        table = [*(self.scalars if outputs else self.signals), *further]
        rule = re.compile("([^/]*)".join(map(re.escape, pattern.split("*"))))
        found = [(name, (hit.groups() or ("",))[0]) for name in table if (hit := rule.fullmatch(name))]
        if not found:
            what = "scalar that can be changed" if outputs else "signal that can be read"
            groups = list(dict.fromkeys(name.split("/")[0] for name in table))
            alike = get_close_matches(pattern.split("/")[0], groups, n=1)
            same = [name for name in table if name.split("/")[0] in alike]
            near = get_close_matches(pattern, same or table, n=4, cutoff=0.4) or same[:4]
            hint = f"; near: {', '.join(near)}" if near else ""
            raise ValueError(f"{pattern!r} is no {what} of {self.robot.name}{hint}; groups: {', '.join(groups)}")
        return found


def link_names(robot: RobotModel) -> dict[str, int]:
    """Links by the names of the bodies that they move; of a body with several joints it is the last joint's."""
    m = robot.mj_model
    return {m.body(int(body)).name or f"body_{body}": link for link, body in enumerate(m.jnt_bodyid)}
