"""The MJCF of a table, a block and a striker.

Only explicit pairs collide: the striker with the struck side, the table with the block's feet. The arc is a cylinder
and the square's side a box, MuJoCo's own primitives, so that no facets disturb the normal; the triangle is a mesh. The
block stands on small feet at its corners (the semicylinder on two more below its arc): contacts with the table keep
their places, whereas MuJoCo picks other vertices of a mesh from step to step.

The striker has joints, because a mocap body brings no velocity into a contact.

The scenes are packaged as robots (`robots/strike_*.xml`), which ``python -m nerd_gym.collision.scenes.mjcf`` writes.
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import math
from pathlib import Path

import mujoco

from nerd_gym.robots.model import HERE as ROBOTS

from .columns import NOMINAL
from .shapes import HEIGHT, SHAPES, STRIKER_MASS, STRIKER_RADIUS, Shape

TIMESTEP = 0.00025  # s
TIME_CONSTANT = 0.004  # s, of both contacts; MuJoCo asks for at least two time steps
IMPEDANCE = "0.95 0.95 0.001"  # constant, so that the depth at rest scales with the damping ratio squared
SUBSTEPS = 16  # of a frame of 4 ms
CAMERA = "1.1 -45 5"  # of pictures: distance (m), elevation (degrees), pairs of tiles in a metre
FOOT = 0.002  # m, radius
ARC_SEGMENTS = 64  # of the picture, not of the physics


def feet(shape: Shape) -> list[tuple[float, float]]:
    """Where the block touches the table, in its frame."""
    places = [(x * (1 - 2 * FOOT / math.hypot(x, y)), y * (1 - 2 * FOOT / math.hypot(x, y))) for x, y in shape.outline]
    if shape.radius:
        inner = shape.radius - 2 * FOOT
        places += [
            (shape.side + inner * math.cos(a), inner * math.sin(a)) for a in (math.radians(-40), math.radians(40))
        ]
    return places


def scene_mjcf(shape: Shape, cone: str = "pyramidal") -> str:
    """The scene as text; qpos is the block's free joint, then x and y of the striker.

    Collisions are generated with MuJoCo's default cone, with the block's axes along the world's."""
    half = HEIGHT / 2
    places = feet(shape)
    foot = "\n".join(
        f'<geom name="foot{k}" type="sphere" size="{FOOT}" pos="{x:.9g} {y:.9g} {FOOT - half}" group="3"/>'
        for k, (x, y) in enumerate(places)
    )
    pairs = "\n".join(
        f'<pair name="table{k}" geom1="table" geom2="foot{k}" {_law("table")}/>' for k in range(len(places))
    )
    ixx, iyy, izz = shape.inertia()
    return f"""<mujoco model="strike-{shape.name}">
  <compiler autolimits="true"/>
  <option timestep="{TIMESTEP}" cone="{cone}"/>
  <custom>
    <numeric name="substeps" data="{SUBSTEPS}"/>
    <numeric name="floor_height" data="0"/>
    <numeric name="camera" data="{CAMERA}"/>
  </custom>
  <default><geom contype="0" conaffinity="0"/></default>
  <asset><mesh name="prism" vertex="{_vertices(shape)}"/></asset>
  <worldbody>
    <geom name="table" type="plane" size="2 2 0.01" rgba=".85 .85 .82 1"/>
    <body name="block" pos="0 0 {half}">
      <freejoint name="block"/>
      <inertial pos="0 0 0" mass="{shape.mass:.9g}" diaginertia="{ixx:.9g} {iyy:.9g} {izz:.9g}"/>
      <geom name="prism" type="mesh" mesh="prism" rgba=".2 .45 .75 1" group="1" mass="0"/>
      {_struck_side(shape)}
      {foot}
    </body>
    <body name="striker" pos="0 0 {half}" gravcomp="1">
      <joint name="striker_x" type="slide" axis="1 0 0"/>
      <joint name="striker_y" type="slide" axis="0 1 0"/>
      <geom name="striker" type="sphere" size="{STRIKER_RADIUS}" mass="{STRIKER_MASS}" rgba=".8 .3 .2 1" group="1"/>
    </body>
  </worldbody>
  <contact>
    <pair name="strike" geom1="striker" geom2="side" {_law("striker")}/>
    {pairs}
  </contact>
  <sensor><contact name="strike" geom1="striker" geom2="side" num="1" data="found dist"/></sensor>
</mujoco>"""


def robot_mjcf(shape: Shape) -> str:
    """The scene as a file of the packaged robots, one element a line.

    Its cone is elliptic: under a pyramidal one a block slides up to 1.4 times as far in one direction as in another."""
    lines = (line.strip() for line in scene_mjcf(shape, "elliptic").splitlines())
    return "<!-- Written by python -m nerd_gym.collision.scenes.mjcf. -->\n" + "\n".join(filter(None, lines)) + "\n"


def robot_file(shape: Shape) -> Path:
    """Where it is."""
    return ROBOTS / f"{robot_name(shape.name)}.xml"


def robot_name(shape: str) -> str:
    """Of the packaged robot."""
    return f"strike_{shape}"


def scene_model(shape: Shape) -> mujoco.MjModel:
    """The compiled scene."""
    return mujoco.MjModel.from_xml_string(scene_mjcf(shape))


def _law(of: str) -> str:
    """Attributes of the pairs with the striker or the table."""
    mu, zeta = NOMINAL[f"mu_{of}"], NOMINAL[f"zeta_{of}"]
    return f'condim="3" friction="{mu} {mu}" solref="{TIME_CONSTANT} {zeta}" solimp="{IMPEDANCE}"'


def footprint(shape: Shape) -> list[tuple[float, float]]:
    if not shape.radius:
        return list(shape.outline)
    angles = [math.pi * (k / ARC_SEGMENTS - 0.5) for k in range(ARC_SEGMENTS + 1)]
    return [(shape.side + shape.radius * math.cos(a), shape.radius * math.sin(a)) for a in angles]


def _vertices(shape: Shape) -> str:
    half = HEIGHT / 2
    return "  ".join(f"{x:.9g} {y:.9g} {z:.9g}" for z in (-half, half) for x, y in footprint(shape))


def _struck_side(shape: Shape) -> str:
    half = HEIGHT / 2
    if shape.radius:
        kind = f'type="cylinder" size="{shape.radius} {half}" pos="{shape.side:.9g} 0 0"'
    elif shape.faces == 4:
        kind = f'type="box" size="{shape.side} {shape.side} {half}"'
    else:
        kind = 'type="mesh" mesh="prism"'
    return f'<geom name="side" {kind} group="3" mass="0"/>'


if __name__ == "__main__":
    for shape in SHAPES.values():
        robot_file(shape).write_text(robot_mjcf(shape))
