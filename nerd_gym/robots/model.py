"""RobotModel: everything the suite needs to know of a robot, derived from its MJCF.

Conventions, said once for the whole suite:

- Z up, SI units, float32 tensors with a leading batch axis N.
- ``q`` is MuJoCo's qpos (free joint: position, quaternion w first) and ``qd`` its qvel (free joint:
  linear velocity of the body origin in world axes, angular velocity in body axes).
- A *joint* is a hinge or slide. Joint order and names are the MJCF's. ``joint_force`` is [N, nj].
- A *contact candidate* is a point of the robot that may touch the ground: the centre of a sphere, the
  ends of a capsule (+z end first), the corners of a box.

What MJCF has no word for stands in its ``<custom>`` section, and every entry may be left out:

=================  ===========================================  ====================================
name               meaning                                      if left out
=================  ===========================================  ====================================
substeps           physics steps in a frame                     as many as make about 1/60 s
contact_gains      penalty contact: ke N/m, kd, kf N s/m, mu    scaled by the robot's weight
limit_gains        joint limit spring: N m/rad, N m s/rad       scaled by the robot's mass
friction_law       ``coulomb`` or ``huber``                     coulomb
floor_height       where to draw a floor if there is no ground  at the lowest point of the start pose
camera             distance (m), elevation (degrees), tiles/m   such that the robot fills the picture; 1
=================  ===========================================  ====================================
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .features import (
    ARRAYS,
    BALL,
    BOX,
    CAPSULE,
    FEATURES,
    FREE,
    OPTIONS,
    PLANE,
    SPHERE,
    UnsupportedRobot,
    found_features,
    ground_friction,
    ground_geoms,
    refusal,
    remove_features,
)
from .mjcf_check import check_mjcf

if TYPE_CHECKING:
    import mujoco

FRICTION_LAWS = ("coulomb", "huber")
HERE = Path(__file__).parent


# Arrays of MuJoCo's model that the suite computes with, and how large their numbers may be.
MUST_BE_FINITE = (
    "body_mass",
    "body_inertia",
    "body_pos",
    "body_quat",
    "body_ipos",
    "body_iquat",
    "jnt_pos",
    "jnt_axis",
)
MUST_BE_FINITE += ("jnt_range", "jnt_stiffness", "qpos0", "qpos_spring", "dof_armature", "dof_damping")
MUST_BE_FINITE += ("geom_size", "geom_pos", "geom_quat")
LARGEST = 1e12
MOST_SUBSTEPS = 10_000


@dataclass(frozen=True)
class Candidates:
    """The points of a robot that may touch the ground; C of them."""

    names: tuple[str, ...]  # "<geom>" or "<geom>:<k>"
    body: np.ndarray  # [C] MuJoCo body index
    position: np.ndarray  # [C, 3] in that body's frame
    radius: np.ndarray  # [C]


@dataclass(frozen=True, eq=False)
class RobotModel:
    """A robot as described by one MJCF file. Make one with :meth:`from_mjcf` or :meth:`named`."""

    name: str
    path: Path
    mj_model: mujoco.MjModel = field(repr=False)
    nq: int
    nv: int
    free_base: bool
    joint_names: tuple[str, ...]
    joint_range: np.ndarray  # [nj, 2], infinite where there is no limit
    actuated: tuple[int, ...]  # indices of the joints that have an actuator
    force_limit: np.ndarray  # [nj], the largest force an actuator gives, 0 for a joint without one
    timestep: float
    substeps: int
    contact_gains: tuple[float, float, float, float]
    limit_gains: tuple[float, float]
    friction_law: str
    ground: int | None  # geom index of the ground plane, None for a robot without contacts
    candidates: Candidates
    features: dict[str, list[str]] = field(default_factory=dict)  # what not every backend simulates, and where it is
    ignored: tuple[str, ...] = ()  # features of the MJCF that are left out knowingly

    @property
    def nj(self) -> int:
        """Number of hinges and slides."""
        return len(self.joint_names)

    @property
    def frame_dt(self) -> float:
        """Seconds in a frame, the control step."""
        return self.substeps * self.timestep

    @property
    def joint_q(self) -> slice:
        """Where the joints stand in q."""
        return slice(self.nq - self.nj, self.nq)

    @property
    def joint_qd(self) -> slice:
        """Where the joints stand in qd."""
        return slice(self.nv - self.nj, self.nv)

    @property
    def packaged(self) -> bool:
        """Whether the robot's file is one of the package's own."""
        return self.path.parent == HERE

    @cached_property
    def hash(self) -> str:
        """Sixteen hex digits that change when, and only when, the robot's physics changes."""
        m = self.mj_model
        parts = [m.body_parentid, m.body_pos, m.body_quat, m.body_ipos, m.body_iquat, m.body_mass, m.body_inertia]
        parts += [m.jnt_type, m.jnt_bodyid, m.jnt_pos, m.jnt_axis, m.jnt_stiffness, m.qpos0, m.qpos_spring]
        parts += [m.dof_armature, m.dof_damping, m.opt.gravity, self.joint_range, self.candidates.body]
        parts += [self.candidates.position, self.candidates.radius, self.contact_gains, self.limit_gains]
        if self.features:
            parts += [getattr(m, name) for name in ARRAYS] + [getattr(m.opt, name) for name in OPTIONS]
            parts += [m.pair_solref, m.pair_solimp] if m.npair else []
        digest = hashlib.sha256(f"{self.friction_law} {self.substeps} {self.timestep:.9g}".encode())
        for part in parts:
            array = np.asarray(part)
            # 7 digits: the MJCF compiler's last bits may differ between machines.
            text = " ".join(f"{x:.7g}" for x in np.ravel(array) + 0.0) if array.dtype.kind == "f" else str(array)
            digest.update(text.encode())
        return digest.hexdigest()[:16]

    def check_learned(self, name: str, facts: dict[str, Any]) -> None:
        """Refuse a model, by the facts in the file `name`, that is of another robot or frame time."""
        if facts.get("robot_hash") != self.hash:
            raise ValueError(
                f"{name} was learned from robot {facts.get('robot')!r} ({facts.get('robot_hash')}); "
                f"this is {self.name!r} ({self.hash})"
            )
        if abs(facts["frame_dt"] - self.frame_dt) > 1e-9:
            raise ValueError(f"{name} has frames of {facts['frame_dt']} s; {self.name!r} has {self.frame_dt} s")

    @classmethod
    def named(cls, name: str) -> RobotModel:
        """One of the packaged robots."""
        path = HERE / f"{name}.xml"
        if not path.exists():
            known = ", ".join(sorted(p.stem for p in HERE.glob("*.xml")))
            raise ValueError(f"unknown robot {name!r}; packaged robots: {known}")
        return cls.from_mjcf(path)

    @classmethod
    def from_mjcf(cls, path: str | Path, ignore: Sequence[str] = ()) -> RobotModel:
        """Read any MJCF whose moving parts are at most one free base and then hinges and slides.

        ``ignore`` names what the MJCF asks for and every backend shall leave out, see ``robots/features.py``.
        """
        if isinstance(ignore, str):
            raise ValueError(f"ignore is {ignore!r}; it must be a list, for example [{ignore!r}]")
        path = Path(path).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"no MJCF file at {path}")
        return _load(path, path.stat().st_mtime_ns, tuple(ignore))


@lru_cache(maxsize=32)
def _load(path: Path, _mtime: int, ignore: tuple[str, ...]) -> RobotModel:
    try:
        robot = _read(path, ignore)
    except UnsupportedRobot as error:
        told = str(error)
        raise error if path.name in told else UnsupportedRobot(f"{path.name}: {told}") from error
    except (ValueError, ArithmeticError, LookupError) as error:  # of numbers and names that make no robot
        told = str(error)
        raise ValueError(told if path.name in told else f"{path.name} is not a valid MJCF: {told}") from error
    m = robot.mj_model
    for name in MUST_BE_FINITE:
        if not np.isfinite(getattr(m, name)).all() or np.abs(getattr(m, name)).max(initial=0.0) > LARGEST:
            raise ValueError(f"{path.name} is not a valid MJCF: {name} has numbers beyond {LARGEST:g}")
    for name, values in (("contact_gains", robot.contact_gains), ("limit_gains", robot.limit_gains)):
        if not np.isfinite(values).all() or min(values) < 0:
            raise UnsupportedRobot(f"{path.name}: {name} are {values}; they must be finite and not negative")
    if not 1e-7 <= robot.timestep <= 1 or robot.substeps > MOST_SUBSTEPS:
        told = f"timestep {robot.timestep:g} s and {robot.substeps} substeps in a frame"
        raise UnsupportedRobot(f"{path.name} has {told}; valid: 1e-7 to 1 s, at most {MOST_SUBSTEPS}")
    return robot


def _read(path: Path, ignore: tuple[str, ...]) -> RobotModel:
    import mujoco

    if hasattr(mujoco, "MjLogConfig"):  # or MuJoCo writes its warnings to a file in the user's folder too
        log = mujoco.MjLogConfig.get()
        log.logto_file = False
        log.set()
    check_mjcf(path)
    try:
        m = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise ValueError(f"{path.name} is not a valid MJCF: {error}") from error
    _refuse_unsupported(m, path.name)
    free = bool(m.njnt and m.jnt_type[0] == FREE)
    joints = np.arange(int(free), m.njnt)
    names = tuple(m.joint(j).name or f"joint_{j}" for j in joints)
    limited = m.jnt_limited[joints, None].astype(bool)
    joint_range = np.where(limited, m.jnt_range[joints], np.array([-np.inf, np.inf]))
    planes = [g for g in range(m.ngeom) if m.geom_type[g] == PLANE and (m.geom_contype[g] or m.geom_conaffinity[g])]
    if len(planes) > 1:
        raise UnsupportedRobot(f"{path.name} has {len(planes)} ground planes; one at most is supported")
    ground = planes[0] if planes else None
    ignored = remove_features(m, ground, ignore)
    features = found_features(m, ground)
    if needed := {name: where for name, where in features.items() if FEATURES[name].needed}:
        raise refusal(path.name, needed, "the suite does")
    force_limit = _force_limits(m)[joints]
    substeps = round(float(custom_numeric(m, "substeps", (max(1.0, round(1 / 60 / m.opt.timestep)),))[0]))
    if substeps < 1:
        raise UnsupportedRobot(f"{path.name}: substeps is {substeps}; it must be at least 1")
    law = _text(m, "friction_law", "coulomb")
    if law not in FRICTION_LAWS:
        raise UnsupportedRobot(f"{path.name}: friction_law is {law!r}; valid: {', '.join(FRICTION_LAWS)}")
    candidates = _candidates(m, ground)
    ke, kd, kf, mu = custom_numeric(m, "contact_gains", _default_contact_gains(m, ground, candidates))
    limit_ke, limit_kd = custom_numeric(m, "limit_gains", _default_limit_gains(m, joints))
    return RobotModel(
        name=path.stem,
        path=path,
        mj_model=m,
        nq=m.nq,
        nv=m.nv,
        free_base=free,
        joint_names=names,
        joint_range=joint_range,
        actuated=tuple(int(j) for j in np.flatnonzero(force_limit)),
        force_limit=force_limit,
        timestep=float(m.opt.timestep),
        substeps=substeps,
        contact_gains=(ke, kd, kf, mu),
        limit_gains=(limit_ke, limit_kd),
        friction_law=law,
        ground=ground,
        candidates=candidates,
        features=features,
        ignored=ignored,
    )


def _force_limits(m: mujoco.MjModel) -> np.ndarray:
    """[njnt]: gear times forcerange or, of a motor, times gain and ctrlrange; else 0.3 m times the weight.

    Actuators of a joint add up, and its actuatorfrcrange bounds them all.
    """
    limits = np.zeros(m.njnt)
    weight = 0.3 * 9.81 * float(m.body_mass.sum())
    # mjTRN_JOINT = 0: the actuator drives a joint directly. A motor's force is its gain times its control.
    for a in (a for a in range(m.nactuator) if m.actuator_trntype[a] == 0):
        gear, limit = abs(m.actuator_gear[a, 0]), weight
        motor = m.actuator_gaintype[a] == 0 and m.actuator_biastype[a] == 0 and m.actuator_dyntype[a] == 0
        if m.actuator_forcelimited[a]:
            limit = gear * np.abs(m.actuator_forcerange[a]).max()
        elif motor and m.actuator_ctrllimited[a]:
            limit = gear * np.abs(m.actuator_gainprm[a, 0] * m.actuator_ctrlrange[a]).max()
        limits[m.actuator_trnid[a, 0]] += limit
    limits = limits if limits.any() else np.full(m.njnt, weight)
    bound = np.where(m.jnt_actfrclimited, np.abs(m.jnt_actfrcrange).max(-1), np.inf)
    return np.minimum(limits, bound)


def _spring(m: mujoco.MjModel, wanted: float, weight: float, inertia: float) -> tuple[float, float]:
    """A spring and damper near what is wanted, but soft enough for explicit steps on the lightest part they move."""
    dt = m.opt.timestep
    stiffness = min(wanted, 0.1 * inertia / dt**2)
    return stiffness, min(0.4 * float(np.sqrt(stiffness * weight)), 0.2 * inertia / dt)


def _default_contact_gains(m: mujoco.MjModel, ground: int | None, candidates: Candidates) -> tuple[float, ...]:
    """Sink 2 mm under the whole weight on one point, if the time step allows that."""
    if ground is None or not len(candidates.body):
        return 1e4, 1e2, 1e2, 1.0
    mass = float(m.body_mass.sum())
    inertia = 1 / float(m.body_invweight0[candidates.body, 0].max())
    stiffness, damping = _spring(m, mass * 9.81 / 2e-3, mass, inertia)
    friction = max(ground_friction(m, ground, g) for g in ground_geoms(m, ground))
    return stiffness, damping, damping, friction


def _default_limit_gains(m: mujoco.MjModel, joints: np.ndarray) -> tuple[float, float]:
    inertia = 1 / float(m.dof_invweight0[m.jnt_dofadr[joints]].max()) if len(joints) else 1.0
    mass = float(m.body_mass.sum())
    return _spring(m, 20.0 * mass, mass, inertia)


def _refuse_unsupported(m: mujoco.MjModel, name: str) -> None:
    types = list(m.jnt_type)
    problems = []
    if BALL in types:
        problems.append("ball joints")
    if FREE in types[1:]:
        problems.append("a free joint that is not the first joint")
    if m.nflex:
        problems.append("flexible bodies")
    if not len(types):
        problems.append("no joint at all")
    if problems:
        raise UnsupportedRobot(
            f"{name} has {', '.join(problems)}; supported are one optional free base, hinges and slides"
        )


def _candidates(m: mujoco.MjModel, ground: int | None) -> Candidates:
    names, bodies, points, radii = [], [], [], []
    for g in ground_geoms(m, ground):
        kind = int(m.geom_type[g])
        label = m.geom(g).name or f"geom_{g}"
        if kind == SPHERE:
            local, radius = [(0.0, 0.0, 0.0)], m.geom_size[g, 0]
        elif kind == CAPSULE:
            half = m.geom_size[g, 1]
            local, radius = [(0, 0, half), (0, 0, -half)], m.geom_size[g, 0]
        else:
            assert kind == BOX  # other shapes are refused
            sx, sy, sz = m.geom_size[g]
            local, radius = [(x, y, z) for z in (-sz, sz) for y in (-sy, sy) for x in (-sx, sx)], 0.0
        rotation = rotation_matrix(m.geom_quat[g])
        for k, point in enumerate(local):
            names.append(label if len(local) == 1 else f"{label}:{k}")
            bodies.append(int(m.geom_bodyid[g]))
            points.append(m.geom_pos[g] + rotation @ np.asarray(point, float))
            # MuJoCo's margin inflates the surfaces: those of both geoms add up.
            radii.append(float(radius + m.geom_margin[g] + m.geom_margin[ground]))
    return Candidates(
        tuple(names), np.array(bodies, int), np.array(points, float).reshape(-1, 3), np.array(radii, float)
    )


def rotation_matrix(quat: np.ndarray) -> np.ndarray:
    """[4] w first -> [3, 3]."""
    w, x, y, z = quat / np.linalg.norm(quat)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def custom_numeric(m: mujoco.MjModel, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
    for i in range(m.nnumeric):
        if m.numeric(i).name == name:
            values = tuple(float(x) for x in m.numeric(i).data)
            if len(values) != len(default):
                raise UnsupportedRobot(f"<numeric name={name!r}> has {len(values)} values; it takes {len(default)}")
            return values
    return default


def _text(m: mujoco.MjModel, name: str, default: str) -> str:
    for i in range(m.ntext):
        start = int(m.name_textadr[i])
        if m.names[start:].split(b"\0", 1)[0].decode() == name:
            return bytes(m.text_data)[int(m.text_adr[i]) :].split(b"\0", 1)[0].decode()
    return default
