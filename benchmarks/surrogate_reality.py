"""Surrogate reality: strikes in a simulator that differs from the one that models were distilled from.

Run it as a process of its own; only measured arrays leave it. Methods must neither import this file nor know its
parameters. It is a stand-in for a laboratory and says nothing about real impacts.

It differs from the training scene in kind, not only in parameters: an elliptic friction cone, a time step of 0.1 ms
with another integrator, a contact whose stiffness grows with depth, torsional friction, a damping ratio that depends
on speed, a meshed block with 64 facets that stands on its own vertices, a table whose friction varies from place to
place, strikes that begin before the surfaces touch, and noise of 2 % on what is measured. Settings A to C are three
materials of the striker, 1 and 2 two tables. H1 to H3 are harder: friction beyond the trained range, a heavier block
whose centre of mass is not in its middle, friction that falls with speed. N1 to N3 are controls without a gap: the
training scene with hidden parameters, and the same noise.

    python benchmarks/surrogate_reality.py A1 --samples 110 --seed 0 --out samples.npz

With --serve it executes strikes of blocks anywhere on the table, up to where they rest: surrogate_strikes.py asks it.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import mujoco
import numpy as np
import tyro
from array_pipe import receive, send
from mujoco.batch import Batch

HEIGHT, DENSITY, RADIUS, STRIKER_MASS, LEVER = 0.04, 1200.0, 0.012, 5.0, 0.05
TIMESTEP, LONGEST, NOISE, UNEVEN = 0.0001, 0.02, 0.02, 0.05
FACETS = 64
SLIDE, AT_REST = 5.0, 0.002  # s at most; m/s and rad/s


@dataclass(frozen=True)
class Material:
    """Of the striker: friction, damping ratio at 0.5 m/s and its slope in speed, time constant, torsional friction."""

    mu: float
    zeta: float
    slope: float
    time_constant: float
    torsion: float
    mu_slope: float = 0.0  # of friction in speed, relative


@dataclass(frozen=True)
class Table:
    """Friction, damping ratio and torsional friction."""

    mu: float
    zeta: float
    torsion: float


@dataclass(frozen=True)
class Block:
    """How it differs from a homogeneous prism."""

    heavier: float = 1.0  # mass and inertia, relative
    shift: float = 0.0  # m, of the centre of mass along y


MATERIALS = {
    "A": Material(0.35, 0.35, 0.25, 0.006, 0.006),
    "B": Material(0.65, 0.60, -0.20, 0.009, 0.012),
    "C": Material(0.18, 0.22, 0.40, 0.003, 0.003),
}
TABLES = {"1": Table(0.30, 0.8, 0.005), "2": Table(0.65, 1.2, 0.015)}
SETTING = {m + t: (material, table, Block()) for m, material in MATERIALS.items() for t, table in TABLES.items()}
SETTING |= {
    "H1": (Material(0.95, 0.30, 0.60, 0.010, 0.020), Table(0.90, 1.0, 0.020), Block(1.15)),
    "H2": (Material(0.30, 0.15, 0.80, 0.005, 0.006), Table(0.50, 0.8, 0.010), Block(1.20, 0.004)),
    "H3": (Material(0.70, 0.45, -0.60, 0.014, 0.010, -0.6), Table(0.35, 0.6, 0.008), Block(0.85, -0.003)),
}
CONTROLS = {"N1": (0.30, 0.35, 0.30, 0.8), "N2": (0.60, 0.60, 0.70, 1.1), "N3": (0.15, 0.25, 0.45, 0.6)}
SETTINGS = (*(m + t for m in MATERIALS for t in TABLES), *CONTROLS, *(name for name in SETTING if name[0] == "H"))


@dataclass
class Args:
    """Measure strikes in surrogate reality."""

    setting: tyro.conf.Positional[str]
    """A1, A2, B1, B2, C1, C2, a harder one: H1, H2, H3, or a control without a gap: N1, N2, N3."""
    shape: str = "semicylinder"
    """semicylinder, square or triangle."""
    samples: int = 110
    """How many strikes."""
    seed: int = 0
    """Of strikes and noise."""
    slide: bool = False
    """Also where the block comes to rest, without the striker: arrays final_n, final_t (m) and final_theta (rad), its
    displacement in the impact frame since it was struck. Not for the controls."""
    serve: bool = False
    """Read strikes from standard input and answer with poses at rest, until the input ends. Not for the controls."""
    out: Path = Path("samples.npz")
    """Arrays speed, point, direction and vn, vt, omega."""


def outline(shape: str) -> tuple[list[tuple[float, float]], float, float, float]:
    """Vertices about the centre of mass, x of the struck side (or arc's centre), arc radius, largest |point|."""
    if shape == "semicylinder":
        r = 0.05
        centre = -4 * r / (3 * math.pi)
        angles = [math.pi * (k / FACETS - 0.5) for k in range(FACETS + 1)]
        return [(centre + r * math.cos(a), r * math.sin(a)) for a in angles], centre, r, math.radians(60)
    faces, side = {"square": (4, 0.08), "triangle": (3, 0.1)}[shape]
    corner = side / (2 * math.sin(math.pi / faces))
    angles = [(2 * k - 1) * math.pi / faces for k in range(faces)]
    vertices = [(corner * math.cos(a), corner * math.sin(a)) for a in angles]
    return vertices, corner * math.cos(math.pi / faces), 0.0, 0.4 * side


def scene(shape: str, material: Material, table: Table, block: Block) -> mujoco.MjModel:
    vertices = [(x, y - block.shift) for x, y in outline(shape)[0]]
    nominal = mujoco.MjModel.from_xml_string(_body_alone(shape))
    mass, (iyy, ixx, izz) = block.heavier * nominal.body_mass[1], block.heavier * np.sort(nominal.body_inertia[1])
    mesh = " ".join(f"{x:.9g} {y:.9g} {z}" for z in (-HEIGHT / 2, HEIGHT / 2) for x, y in vertices)
    soft = 'solimp="0.85 0.97 0.002"'
    return mujoco.MjModel.from_xml_string(f"""<mujoco>
  <option timestep="{TIMESTEP}" cone="elliptic" integrator="implicitfast" impratio="2"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <asset><mesh name="block" vertex="{mesh}"/></asset>
  <worldbody>
    <geom name="table" type="plane" size="2 2 .01"/>
    <body name="block" pos="0 0 {HEIGHT / 2}">
      <freejoint/><inertial pos="0 0 0" mass="{mass}" diaginertia="{ixx} {iyy} {izz}"/>
      <geom name="block" type="mesh" mesh="block"/>
    </body>
    <body name="striker" pos="0 0 {HEIGHT / 2}" gravcomp="1">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
      <geom name="striker" type="sphere" size="{RADIUS}" mass="{STRIKER_MASS}"/>
    </body>
  </worldbody>
  <contact>
    <pair name="strike" geom1="striker" geom2="block" condim="4"
      friction="{material.mu} {material.mu} {material.torsion}"
      solref="{material.time_constant} {material.zeta}" {soft}/>
    <pair name="table" geom1="table" geom2="block" condim="4" friction="{table.mu} {table.mu} {table.torsion}"
      solref="0.005 {table.zeta}" {soft}/>
  </contact>
  <sensor><contact geom1="striker" geom2="block" num="1" data="found"/></sensor>
</mujoco>""")


def _body_alone(shape: str) -> str:
    """For the mass and inertia of a homogeneous block; inertia is largest about z and smallest about y."""
    mesh = " ".join(f"{x:.9g} {y:.9g} {z}" for z in (-HEIGHT / 2, HEIGHT / 2) for x, y in outline(shape)[0])
    return f"""<mujoco><asset><mesh name="block" vertex="{mesh}"/></asset>
      <worldbody><body><geom type="mesh" mesh="block" density="{DENSITY}"/></body></worldbody></mujoco>"""


def strikes(shape: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """[count, 3]: speed, point, direction."""
    reach, most = outline(shape)[3], math.radians(30)
    return rng.uniform([0.1, -reach, -most], [1.0, reach, most], (count, 3))


@lru_cache(maxsize=4)
def settled(shape: str, setting: str) -> tuple[mujoco.MjModel, np.ndarray]:
    """The scene, and the block's pose at rest."""
    model = scene(shape, *SETTING[setting])
    data = mujoco.MjData(model)
    data.qpos[7] = 1.0
    for _ in range(10_000):
        mujoco.mj_step(model, data)
    return model, data.qpos[:7].copy()


def turned(vectors: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """[N, 2] by [N]."""
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * vectors[:, 0] - s * vectors[:, 1], s * vectors[:, 0] + c * vectors[:, 1]], -1)


def measure(
    shape: str,
    setting: str,
    strike: np.ndarray,
    rng: np.random.Generator,
    slide: bool,
    face_angle: float | np.ndarray = 0.0,
) -> np.ndarray:
    """[N, 3]: vn, vt, omega of the block when it leaves the striker, or 20 ms after the first touch; [N, 6] with its
    displacement at rest if it is to slide. `face_angle` [N]: of the face that is struck, from the block's x axis."""
    material, _, block = SETTING[setting]
    model, rest = settled(shape, setting)
    side, radius = outline(shape)[1:3]
    speed, point, direction = strike.T
    if radius:
        normal = -np.stack([np.cos(point), np.sin(point)], -1)
        place = np.array([side, 0.0]) - radius * normal
    else:
        normal = np.stack([-np.ones_like(point), np.zeros_like(point)], -1)
        place = np.stack([np.full_like(point, side), point], -1)
    around = np.broadcast_to(face_angle, len(strike))
    normal, place = turned(normal, around), turned(place, around)
    place[:, 1] -= block.shift
    tangent = np.stack([-normal[:, 1], normal[:, 0]], -1)
    count = len(strike)
    batch = Batch(model, count, nthread=1)
    pairs = {name: model.pair(name).id for name in ("strike", "table")}
    batch.expand("pair_solref")[:, pairs["strike"], 1] = material.zeta * (1 + material.slope * (speed - 0.5))
    batch.expand("pair_friction")[:, pairs["strike"], :2] *= 1 + material.mu_slope * (speed[:, None] - 0.5)
    batch.expand("pair_friction")[:, pairs["table"], :2] *= rng.uniform(1 - UNEVEN, 1 + UNEVEN, (count, 1))
    batch.qpos[:, :7] = rest
    gap = rng.uniform(0.0001, 0.0003, (count, 1))
    batch.qpos[:, 7:9] = batch.qpos[:, :2] + place - normal * (RADIUS + gap)
    angle = np.arctan2(normal[:, 1], normal[:, 0]) + direction
    start = batch.qpos[:, :2].copy()
    batch.qvel[:, 6:8] = speed[:, None] * np.stack([np.cos(angle), np.sin(angle)], -1)
    found = batch.bind("sensordata")
    touched, apart = np.zeros(count), np.zeros(count, int)
    out, active = np.zeros((count, 3)), np.arange(count)
    while len(active):
        batch.step(active)
        contact = found[active, 0] > 0
        touched[active] += np.where(contact | (touched[active] > 0), TIMESTEP, 0)
        apart[active] = np.where(contact | (touched[active] == 0), 0, apart[active] + 1)
        ended = (apart[active] >= 3) | (touched[active] >= LONGEST)
        rows = active[ended]
        v = batch.qvel[rows]
        out[rows] = np.stack([*((v[:, :2] * a[rows]).sum(-1) for a in (normal, tangent)), v[:, 5]], -1)
        active = active[~ended]
    if not slide:
        return out
    batch.qpos[:, 7:9], batch.qvel[:, 6:8] = 10.0, 0.0  # the striker is withdrawn
    moving, steps = np.arange(count), 0
    while len(moving) and steps * TIMESTEP < SLIDE:
        batch.step(moving, nstep=50)
        steps += 50
        moving = moving[np.abs(batch.qvel[moving, :6]).max(1) > AT_REST]
    w, x, y, z = batch.qpos[:, 3:7].T
    moved = batch.qpos[:, :2] - start
    theta = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.concatenate([out, np.stack([*((moved * a).sum(-1) for a in (normal, tangent)), theta], -1)], 1)


def execute(
    shape: str, setting: str, pose: np.ndarray, strike: np.ndarray, face: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Poses [N, 3] (x, y, yaw of the outline's middle) after strikes [N, 3] on faces [N] of blocks at rest.

    Without noise: it is where the block lies. How far it turned is known up to whole turns."""
    _, radius = outline(shape)[1:3]
    around = np.zeros(len(face)) if radius else face * (2 * math.pi / {"square": 4, "triangle": 3}[shape])
    n, t, theta = measure(shape, setting, strike, rng, True, around)[:, 3:].T
    normal = -np.stack([np.cos(strike[:, 1]), np.sin(strike[:, 1])], -1) if radius else np.array([[-1.0, 0.0]])
    normal = turned(np.broadcast_to(normal, (len(n), 2)), around)
    moved = n[:, None] * normal + t[:, None] * np.stack([-normal[:, 1], normal[:, 0]], -1)
    middle = np.broadcast_to([0.0, -SETTING[setting][2].shift], (len(n), 2))  # seen from the centre of mass
    moved = moved + turned(middle, theta) - middle
    return np.concatenate([pose[:, :2] + turned(moved, pose[:, 2]), (pose[:, 2] + theta)[:, None]], 1)


def serve(shape: str, setting: str, rng: np.random.Generator) -> None:
    """Answer until nobody asks any more."""
    settled(shape, setting)
    send(sys.stdout.buffer, ready=np.ones(1))
    while (asked := receive(sys.stdin.buffer)) is not None:
        send(sys.stdout.buffer, pose=execute(shape, setting, asked["pose"], asked["strike"], asked["face"], rng))


def control(shape: str, setting: str, strike: np.ndarray) -> np.ndarray:
    """[N, 3]: the same in the training scene."""
    from nerd_gym.collision.scenes.shapes import shape_named
    from nerd_gym.collision.scenes.simulate import CollisionSimulator

    mu, zeta, mu_table, zeta_table = CONTROLS[setting]
    hidden = np.broadcast_to([mu, mu_table, zeta, zeta_table], (len(strike), 4))
    return CollisionSimulator(shape_named(shape), len(strike), 1)(np.concatenate([strike, hidden], 1))[:, :3]


def main(args: Args) -> None:
    if args.setting not in SETTINGS:
        raise ValueError(f"unknown setting {args.setting!r}; valid: {', '.join(SETTINGS)}")
    rng = np.random.default_rng([args.seed, SETTINGS.index(args.setting)])
    if args.setting in CONTROLS and (args.slide or args.serve):
        raise ValueError(f"{args.setting} is a control, which has no slide; valid: {', '.join(SETTING)}")
    if args.serve:
        serve(args.shape, args.setting, rng)
        return
    strike = strikes(args.shape, args.samples, rng)
    if args.setting in CONTROLS:
        true = control(args.shape, args.setting, strike)
    else:
        true = measure(args.shape, args.setting, strike, rng, args.slide)
    true, final = true[:, :3], true[:, 3:]
    weight = np.array([1, 1, LEVER])
    size = np.linalg.norm(true * weight, axis=1, keepdims=True)
    post = true + NOISE / math.sqrt(3) * size * rng.standard_normal(true.shape) / weight
    columns = [*zip(("speed", "point", "direction"), strike.T), *zip(("vn", "vt", "omega"), post.T)]
    columns += zip(("final_n", "final_t", "final_theta"), final.T)  # none without a slide
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(args.out, **dict(columns))


if __name__ == "__main__":
    main(tyro.cli(Args))
