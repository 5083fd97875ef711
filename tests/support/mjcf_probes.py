"""A small robot that has something of everything, and a change of its MJCF for every attribute of MuJoCo's schema."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mujoco

BASE = """
<mujoco model="probe">
  <compiler angle="radian"/>
  <option timestep="0.0001" gravity="0 0 -9.81"/>
  <custom><numeric name="substeps" data="4"/></custom>
  <asset>
    <mesh name="wedge" vertex="0 0 0  0.1 0 0  0 0.1 0  0 0 0.1"/>
    <hfield name="hills" nrow="2" ncol="2" size="1 1 0.1 0.1" elevation="0 0 1 1"/>
    <material name="paint" rgba="1 0 0 1"/>
  </asset>
  <worldbody>
    <geom name="ground" type="plane" size="0 0 1" contype="0" conaffinity="1"/>
    <body name="torso" pos="0 0 0.5">
      <freejoint name="root"/>
      <geom name="torso" type="sphere" size="0.1" mass="2" pos="0.02 0 0.01" contype="1" conaffinity="0"/>
      <site name="imu" pos="0.1 0 0"/>
      <body name="leg" pos="0.1 0.05 0" euler="0.1 0.2 0">
        <joint name="hip" axis="0.2 1 0" range="-0.6 0.6" damping="0.02" stiffness="3" armature="0.01"/>
        <geom name="leg" type="capsule" size="0.03 0.1" mass="0.4" pos="0 0 -0.1" contype="1" conaffinity="0"/>
        <body name="foot" pos="0 0 -0.25">
          <inertial pos="0.01 0 0" mass="0.2" diaginertia="0.001 0.002 0.0025"/>
          <joint name="ankle" type="slide" axis="0 0 1" range="-0.05 0.05"/>
          <geom name="foot" type="box" size="0.04 0.03 0.02" contype="1" conaffinity="0"/>
          <site name="sole"/>
          <body name="toe" pos="0.06 0 0">
            <geom name="toe" size="0.02" mass="0.05" contype="1" conaffinity="0"/>
            <geom name="nail" type="mesh" mesh="wedge" contype="0" conaffinity="0"/>
          </body>
        </body>
      </body>
    </body>
    <body name="post" pos="3 3 0"><geom name="post" size="0.1" contype="0" conaffinity="0"/></body>
  </worldbody>
  <actuator><motor name="hip" joint="hip" ctrllimited="true" ctrlrange="-2 2"/></actuator>
  <keyframe><key name="start" qpos="0 0 0.5 1 0 0 0 0.1 0"/></keyframe>
</mujoco>
"""

# Elements that are probed as a whole, with the elements inside them: what is added to the robot.
SKIN = '<skin name="s" vertex="0 0 0 1 0 0 0 1 0" face="0 1 2"><bone body="torso" bindpos="0 0 0" bindquat="1 0 0 0" '
SKIN += 'vertid="0 1 2" vertweight="1 1 1"/></skin>'
ROPE = '<worldbody><flexcomp name="rope" type="grid" count="3 1 1" dim="1" spacing=".1 .1 .1"/></worldbody>'
PLUGIN = '<extension><plugin plugin="mujoco.elasticity.cable"><instance name="i"/></plugin></extension>'
CHILD = '<asset><model name="other" file="other.xml"/></asset>'
CHILD += '<worldbody><attach model="other" body="part" prefix="o_"/></worldbody>'
TENDON = '<tendon><fixed name="pull"><joint joint="hip" coef="1"/></fixed></tendon>'
WHOLE = {
    "size": '<size memory="10M" nuserdata="3" nuser_body="1"/>',
    "statistic": '<statistic extent="2" meanmass="3" meansize="1" center="1 0 0"/>',
    "visual": '<visual><global fovy="30"/><quality shadowsize="512"/><map force="2" znear="0.1"/></visual>',
    "custom": '<custom><numeric name="mine" data="1"/><text name="note" data="x"/></custom>',
    "keyframe": '<keyframe><key name="b" time="1" qvel="0 0 0 1 0 0 0 0"/></keyframe>',
    "sensor": '<sensor><touch site="sole"/><gyro site="imu" noise="1" delay="0.01" nsample="30"/><framepos '
    'objtype="body" objname="leg"/><jointlimitfrc joint="hip"/><subtreecom body="torso"/><clock/></sensor>',
    "asset/texture": '<asset><texture name="t" builtin="flat" width="8" height="8" type="2d" rgb1="1 0 0"/></asset>',
    "asset/material": '<asset><material name="m" rgba="0 1 0 1"/></asset>',
    "asset/skin": f"<asset>{SKIN}</asset>",
    "deformable/skin": f"<deformable>{SKIN}</deformable>",
    "body/camera": '<worldbody><camera name="eye" pos="0 0 3"/></worldbody>',
    "body/light": '<worldbody><light name="lamp" pos="0 0 3"/></worldbody>',
    "body/site": '<worldbody><site name="mark" size="0.1" type="box"/></worldbody>',
    "body/flexcomp": ROPE,
    "deformable/flex": ROPE,
    "equality/flex": ROPE,
    "equality/flexstrain": ROPE,
    "equality/connect": '<equality><connect body1="torso" body2="foot" anchor="0 0 0"/></equality>',
    "equality/weld": '<equality><weld body1="torso" body2="foot"/></equality>',
    "equality/joint": '<equality><joint joint1="hip" joint2="ankle"/></equality>',
    "equality/tendon": f'{TENDON}<equality><tendon tendon1="pull"/></equality>',
    "tendon/spatial": '<tendon><spatial stiffness="5"><site site="imu"/><site site="sole"/></spatial></tendon>',
    "tendon/fixed": TENDON.replace("<fixed", '<fixed stiffness="5"'),
    "asset/hfield": '<worldbody><geom type="hfield" hfield="hills" contype="0" conaffinity="1"/></worldbody>',
    "asset/model": CHILD,
    "body/attach": CHILD,
    "extension": PLUGIN,
    "body/plugin": PLUGIN,
    "body/geom/plugin": PLUGIN,
    "asset/mesh/plugin": PLUGIN,
    "actuator/plugin": PLUGIN,
}
ACTUATORS = {
    "general": '<general joint="hip" gainprm="5" biastype="affine" biasprm="1 2 3" dyntype="filter" dynprm="0.1" {}/>',
    "motor": '<motor joint="hip" gear="3" ctrlrange="-1 1" forcerange="-3 3" group="1" delay="0.01" nsample="30" {}/>',
    "position": '<position joint="hip" kp="30" kv="2" ctrlrange="-1 1" forcerange="-3 3" timeconst="0.1" {}/>',
    "velocity": '<velocity joint="hip" kv="5" gear="2" {}/>',
    "intvelocity": '<intvelocity joint="hip" kp="30" kv="2" actrange="-1 1" {}/>',
    "orientation": '<orientation site="sole" refsite="imu" kp="3" {}/>',
    "pid": '<pid joint="hip" kp="3" ki="1" kv="1" {}/>',
    "damper": '<damper joint="hip" kv="3" ctrlrange="0 1" {}/>',
    "cylinder": '<cylinder joint="hip" area="2" bias="1 0 0" timeconst="0.3" {}/>',
    "muscle": '<muscle joint="hip" lengthrange="0.1 1" force="10" {}/>',
    "adhesion": '<adhesion body="foot" gain="10" ctrlrange="0 1" {}/>',
    "dcmotor": '<dcmotor joint="hip" motorconst="0.1 0.1" resistance="1" {}/>',
}
WHOLE |= {f"actuator/{kind}": f"<actuator>{text.format('')}</actuator>" for kind, text in ACTUATORS.items()}
# Of the others, a value for each attribute. A comma stands for a space; what follows + is set with it, - removed.
FRAME = (
    "pos=0.05,0.02,-0.08 quat=0.9,0.1,0.2,0.3-euler axisangle=0,1,0,0.3-euler euler=0.1,0.2,0.3 zaxis=0.1,0,1-euler "
)
FRAME += "xyaxes=1,0.1,0,0,1,0.1-euler"
SOLVER = "solref=0.01,0.8 solimp=0.8,0.9,0.01,0.5,2"
VALUES = {
    "mujoco": "model=other",
    "compiler": "alignfree=true angle=degree assetdir=x autolimits=false balanceinertia=true boundinertia=0.01 "
    "boundmass=0.5 conflict=error coordinate=local discardvisual=true eulerseq=zyx fitaabb=true fusestatic=true "
    "inertiafromgeom=true inertiagrouprange=0,1 meshdir=x passthrough=textures savecanonical=true "
    "savecompiled=true saveinertial=true settotalmass=5 strippath=true texturedir=x usethread=false",
    "compiler/lengthrange": "accel=10 interval=1 inttotal=5 maxforce=1 mode=all timeconst=2 timestep=0.02 tolrange=0.1 "
    "useexisting=false uselimit=true",
    "option": "actuatorgroupdisable=1 ccd_iterations=5 ccd_tolerance=1e-3 cone=elliptic density=1000 gravity=0,1,-5 "
    "impratio=3 integrator=RK4 iterations=1 jacobian=sparse ls_iterations=2 ls_tolerance=0.5 magnetic=1,0,0 "
    "noslip_iterations=3 noslip_tolerance=1e-2 o_friction=1,1,0,0,0 o_margin=0.02 o_solimp=0.8,0.9,0.01,0.5,2 "
    "o_solref=0.01,1 sdf_initpoints=3 sdf_iterations=3 sleep_tolerance=1 solver=CG timestep=0.0002 tolerance=1e-2 "
    "viscosity=1 wind=3,0,0+density=1",
    "option/flag": "actuation=disable autoreset=disable clampctrl=disable constraint=disable contact=disable "
    "damper=disable diagexact=enable energy=enable equality=disable eulerdamp=disable filterparent=disable "
    "frictionloss=disable fwdinv=enable gravity=disable invdiscrete=enable ipc=enable island=disable limit=disable "
    "midphase=disable multiccd=disable nativeccd=disable override=enable refsafe=disable sensor=disable sleep=enable "
    "speculative=enable spring=disable warmstart=disable",
    "body torso": "sleep=never",
    "body/geom torso": "conaffinity=1",
    "body post": "mocap=true",
    "body leg": f"{FRAME} childclass=main fuse=false gravcomp=0.5 name=other simple=false user=1",
    "body/inertial": f"{FRAME} mass=0.5 diaginertia=0.002,0.002,0.003 "
    "fullinertia=0.002,0.002,0.003,0.0001,0,0-diaginertia",
    "body/freejoint root": "align=true group=1 name=other",
    "body/joint hip": "actuatorfrclimited=true+actuatorfrcrange=-0.5,0.5 actuatorfrcrange=-0.5,0.5 "
    "actuatorgravcomp=true armature=0.05 axis=0,1,0.3 class=main damping=0.1 frictionloss=0.3 group=1 limited=false "
    "margin=0.1 pos=0.02,0,0.01 range=-0.3,0.3 ref=0.2 solimpfriction=0.8,0.9,0.01,0.5,2+frictionloss=1 "
    "solimplimit=0.8,0.9,0.01,0.5,2 solreffriction=0.01,0.8+frictionloss=1 solreflimit=0.01,0.8 springdamper=1,0.3 "
    "springref=0.4 springyield=0.1 stiffness=5 type=slide user=1",
    "body/joint ankle": "name=other",
    "body/geom leg": f"{FRAME} {SOLVER} adhesion=3 castshadow=false class=main condim=4 contype=0 "
    "density=3000-mass fitscale=2 fluidcoef=1,1,1,1,1+fluidshape=ellipsoid fluidshape=ellipsoid friction=1.3 "
    "fromto=0,0,0,0.1,0,-0.2-pos gap=0.01 group=1 margin=0.02 mass=0.9 material=paint mesh=wedge+type=mesh name=other "
    "priority=2 rgba=1,0,0,1 shellinertia=true size=0.05,0.15 solmix=3+solref=0.01,0.8 surfacevel=0.3,0,0,0,0,0 "
    "type=sphere user=1",
    "body/geom post": "hfield=hills+type=hfield+conaffinity=1",
    "contact/pair": f"{SOLVER} geom1=ground geom2=leg class=main condim=1 friction=0.3 gap=0.01 margin=0.03 name=p "
    "solreffriction=0.01,0.8 adhesion=2",
    "contact/exclude": "body1=world body2=leg name=e",
    "asset/mesh wedge": "builtin=sphere-vertex+params=2+scale=0.03,0.03,0.03 class=main "
    "content_type=model/obj+file=wedge.obj-vertex "
    "face=0,2,1,0,1,3,0,3,2,1,2,3 file=wedge.obj-vertex inertia=shell material=paint maxhullvert=4 "
    "normal=1,0,0,1,0,0,1,0,0,1,0,0 params=3+builtin=sphere-vertex+scale=0.03,0.03,0.03 "
    "refpos=0.1,0,0 refquat=0.9,0.1,0,0 scale=2,2,2 "
    "smoothnormal=true texcoord=0,0,0,0,0,0,0,0 vertex=0,0,0,0.2,0,0,0,0.2,0,0,0,0.2",
    "asset/mesh": "name=other",
}
# What an element needs besides the attribute in question.
NEEDED = {"contact/pair": {"geom1": "ground", "geom2": "leg"}, "contact/exclude": {"body1": "world", "body2": "leg"}}
NEEDED |= {"asset/mesh": {"vertex": "0 0 0 1 0 0 0 1 0 0 0 1"}}
# What matters only together with something else: a text of the robot, and what stands in its place.
OVERRIDE = ("</mujoco>", '<option><flag override="enable"/></option></mujoco>')
WATER = ("</mujoco>", '<option density="1000"/></mujoco>')
TOGETHER = {("option", f"o_{name}"): OVERRIDE for name in ("friction", "margin", "solimp", "solref")}
TOGETHER |= {("body/geom", name): WATER for name in ("fluidcoef", "fluidshape")}
TOGETHER |= {
    ("option/flag", "filterparent"): (
        'mass="0.4" pos="0 0 -0.1" contype="1" conaffinity="0"',
        'mass="0.4" conaffinity="1"',
    )
}
TOGETHER |= {("body/joint", "actuatorgravcomp"): ('name="leg" pos', 'name="leg" gravcomp="1" pos')}
TOGETHER |= {("compiler", "autolimits"): (' range="', ' limited="true" range="')}


@dataclass(frozen=True)
class Probe:
    """One attribute, or all attributes of an element and of those inside it, set to something that could matter."""

    element: str  # path in the schema, "body/joint"
    attribute: str | None  # None: all that have no probe of their own
    mjcf: str


def schema() -> dict[str, list[str]]:
    """Attributes by path of elements, as MuJoCo prints its own schema; the world is a body."""
    out: dict[str, list[str]] = {}
    stack: list[str] = []
    for line in mujoco.mj_printSchema(False, False).splitlines():
        head = re.match(r"^( *)(\(?\w+\)?\w*) \(.\)\s*(.*)$", line)
        if head:
            stack = [*stack[: len(head[1]) // 3], head[2].replace("(world)", "")]
        out.setdefault("/".join(stack[1:]) or "mujoco", []).extend((head[3] if head else line).split())
    return out


def probes() -> Iterator[Probe]:
    """Every change of the robot."""
    for path, added in WHOLE.items():
        yield Probe(path, None, BASE.replace("</mujoco>", f"{added}</mujoco>"))
    for kind, text in ACTUATORS.items():
        for name in set(schema()[f"actuator/{kind}"]) & {"armature", "damping"}:
            added = text.format(f'{name}="0.1"')
            yield Probe(f"actuator/{kind}", name, BASE.replace("</actuator>", f"{added}</actuator>"))
    for where, told in VALUES.items():
        path, _, name = where.partition(" ")
        for word in told.split():
            attribute = word.partition("=")[0]
            robot = ET.fromstring(BASE.replace(*TOGETHER.get((path, attribute), ("", ""))))
            element = _element(robot, path, name)
            for sign, key, value in re.findall(r"([+-]|^)([a-z]\w*)(?:=((?:[^+-]|(?<=[,=])-|(?<=\de)-)*))?", word):
                element.attrib.pop(key, None) if sign == "-" else element.set(key, value.replace(",", " "))
            yield Probe(path, attribute, ET.tostring(robot, encoding="unicode"))


def _element(robot: ET.Element, path: str, name: str) -> ET.Element:
    """The robot's element of this name, its only one, or a new one."""
    if path == "mujoco":
        return robot
    if name:
        return next(e for e in robot.iter(path.rpartition("/")[2]) if e.get("name") == name)
    if path == "body/inertial":
        return next(robot.iter("inertial"))
    element = robot
    for part in path.split("/"):
        found = element.find(part)
        new = found is None or (path in NEEDED and part == path.rpartition("/")[2])
        element = ET.SubElement(element, part) if new else found
    element.attrib |= NEEDED.get(path, {})
    return element


def write_assets(folder: Path) -> None:
    """The files that probes name."""
    (folder / "wedge.obj").write_text("v 0 0 0\nv 0.2 0 0\nv 0 0.1 0\nv 0 0 0.1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    (folder / "hills").write_bytes(struct.pack("<ii4f", 2, 2, 0.0, 0.0, 1.0, 1.0))
    part = '<body name="part" pos="0 0 5"><geom size="0.1" contype="0" conaffinity="0"/></body>'
    (folder / "other.xml").write_text(f"<mujoco><worldbody>{part}</worldbody></mujoco>")
