"""What an MJCF can ask for beyond rigid links, linear springs and contact with one plane: one row per feature.

MuJoCo simulates more than the suite's own equations of motion. A feature is found in the compiled model, and each has
one of three ends: a backend simulates it (``Backend.features``), or it is refused by name, or the user leaves it out
knowingly (``ignore``), in which case it is switched off in the compiled model and so left out by every backend alike.
"""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import mujoco

# MuJoCo's own numbers (mjtJoint, mjtGeom, mjtDisableBit, mjtEnableBit), so that they read without an import.
FREE, BALL, SLIDE, HINGE = 0, 1, 2, 3
PLANE, SPHERE, CAPSULE, BOX = 0, 2, 3, 6
SHAPES = (SPHERE, CAPSULE, BOX)  # that touch the ground as points with a radius
SWITCHES = {"constraint": 1 << 0, "limit": 1 << 3, "contact": 1 << 4, "spring": 1 << 5, "damper": 1 << 6}
SWITCHES |= {"gravity": 1 << 7}
OVERRIDE = 1 << 0  # contact parameters of the options, not of the geoms
STATEFUL = {"sleep": 1 << 4, "ipc": 1 << 6}  # which keep what no state of MuJoCo's covers
FILTERPARENT = 1 << 10
CONDIM = 3  # two directions of friction, none about the normal
# Numbers of the compiled model that matter to motion if a robot has features, beside those of every robot.
ARRAYS = ("body_gravcomp", "geom_type", "geom_contype", "geom_conaffinity", "geom_condim", "geom_size", "geom_pos")
ARRAYS += ("geom_quat", "geom_friction", "geom_adhesion", "geom_surfacevel", "geom_fluid", "pair_geom1")
ARRAYS += ("pair_geom2", "pair_friction", "jnt_margin", "jnt_stiffnesspoly", "jnt_springyield", "dof_dampingpoly")
ARRAYS += ("actuator_armature", "actuator_damping", "actuator_dampingpoly", "actuator_gear")
OPTIONS = ("density", "viscosity", "wind", "disableflags", "enableflags")


class UnsupportedRobot(ValueError):
    """The MJCF asks for something that a backend does not simulate."""


@dataclass(frozen=True)
class Feature:
    """Something that an MJCF may ask for."""

    name: str  # as `ignore` takes it
    meaning: str
    find: Callable[[mujoco.MjModel, int | None], list[str]]  # where it is, in words; the ground's geom or None
    remove: Callable[[mujoco.MjModel, int | None], None] | None = None  # None: it cannot be left out
    needed: bool = False  # whether no backend takes a robot that has it


def found_features(m: mujoco.MjModel, ground: int | None) -> dict[str, list[str]]:
    """What the compiled model asks for, and where."""
    return {f.name: where for f in FEATURES.values() if (where := f.find(m, ground))}


def remove_features(m: mujoco.MjModel, ground: int | None, ignore: tuple[str, ...]) -> tuple[str, ...]:
    """Switch these features off in the compiled model; returns those that it had."""
    for name in ignore:
        if name not in FEATURES or FEATURES[name].remove is None:
            valid = ", ".join(f.name for f in FEATURES.values() if f.remove)
            raise ValueError(f"unknown feature {name!r} to ignore; valid: {valid}")
    there = found_features(m, ground)
    removed = tuple(name for name in FEATURES if name in ignore and name in there)
    for name in removed:
        remove = FEATURES[name].remove
        assert remove is not None  # asked above
        remove(m, ground)
    return removed


def refusal(robot: str, found: dict[str, list[str]], who: str) -> UnsupportedRobot:
    """The error that names every feature, where it is and what can be done."""
    told = "; ".join(f"{FEATURES[name].meaning} ({_shortened(where)})" for name, where in found.items())
    left = [name for name in found if FEATURES[name].remove]
    advice = [f"leave it out knowingly with ignore={left!r}"] if left else []
    if not all(FEATURES[name].needed for name in found):
        advice.append("use a backend that simulates it, such as MuJoCo's")
    advice.append("remove it from the MJCF")
    return UnsupportedRobot(f"{robot} has {told}, which {who} not simulate: {', or '.join(advice)}")


def _shortened(where: list[str], most: int = 6) -> str:
    return ", ".join(where[:most]) + (f" and {len(where) - most} more" if len(where) > most else "")


# Which geoms touch which, by MuJoCo's rules.


def may_touch(m: mujoco.MjModel, geoms: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether MuJoCo lets geoms collide with others; indices that broadcast against each other."""
    type_, affinity = m.geom_contype, m.geom_conaffinity
    masks = (type_[geoms] & affinity[others]) | (type_[others] & affinity[geoms])
    bodies = m.geom_bodyid[geoms], m.geom_bodyid[others]
    signature = (np.minimum(*bodies).astype(np.int64) << 16) + np.maximum(*bodies)
    first, second = (m.body_weldid[body] for body in bodies)
    parents = m.body_weldid[m.body_parentid[m.body_weldid]]  # of every body's rigid part
    related = (first != 0) & (second != 0) & ((first == parents[bodies[1]]) | (second == parents[bodies[0]]))
    if m.opt.disableflags & FILTERPARENT:
        related = np.zeros_like(related)
    return (masks != 0) & (first != second) & ~np.isin(signature, m.exclude_signature) & ~related


def _moves(m: mujoco.MjModel, geom: int) -> bool:
    return m.body_weldid[m.geom_bodyid[geom]] != 0


def ground_geoms(m: mujoco.MjModel, ground: int | None) -> list[int]:
    """Moving geoms that may touch the ground."""
    if ground is None:
        return []
    geoms = np.arange(m.ngeom)
    return [int(g) for g in geoms[may_touch(m, geoms, np.array(ground))] if _moves(m, g)]


def ground_friction(m: mujoco.MjModel, ground: int, geom: int) -> float:
    """Sliding friction of a geom on the ground as MuJoCo combines the two."""
    mine, its = int(m.geom_priority[geom]), int(m.geom_priority[ground])
    if mine != its:
        return float(m.geom_friction[geom if mine > its else ground, 0])
    return float(max(m.geom_friction[geom, 0], m.geom_friction[ground, 0]))


def _pairs(m: mujoco.MjModel, ground: int | None) -> list[tuple[int, int]]:
    """Pairs of geoms that may touch, but for those with the ground; at least one of the two moves."""
    able = np.flatnonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0))
    able = able[able != (-1 if ground is None else ground)]
    first, second = (able[k] for k in np.triu_indices(len(able), 1))
    touch = may_touch(m, first, second)
    return [(int(a), int(b)) for a, b in zip(first[touch], second[touch], strict=True)]


def _set_collision(m: mujoco.MjModel, geom: int, contype: int, conaffinity: int) -> None:
    m.geom_contype[geom], m.geom_conaffinity[geom] = contype, conaffinity
    body = m.geom_bodyid[geom]
    of_body = slice(m.body_geomadr[body], m.body_geomadr[body] + m.body_geomnum[body])
    m.body_contype[body] = np.bitwise_or.reduce(m.geom_contype[of_body])
    m.body_conaffinity[body] = np.bitwise_or.reduce(m.geom_conaffinity[of_body])


# How features are found and switched off.


def _geom(m: mujoco.MjModel, geom: int) -> str:
    return f"geom {m.geom(geom).name or geom!r}"


def _joint(m: mujoco.MjModel, joint: int) -> str:
    return f"joint {m.joint(joint).name or joint!r}"


def _touching_geoms(array: str) -> Callable[[mujoco.MjModel, int | None], list[str]]:
    """Finds where an array over geoms is not zero, of those that meet the ground and of the ground."""

    def find(m: mujoco.MjModel, ground: int | None) -> list[str]:
        geoms = ground_geoms(m, ground)
        return [_geom(m, g) for g in [*geoms, *([] if ground is None else [ground])] if getattr(m, array)[g].any()]

    return find


def _zero(*arrays: str) -> Callable[[mujoco.MjModel, int | None], None]:
    def remove(m: mujoco.MjModel, ground: int | None) -> None:
        for array in arrays:
            getattr(m, array)[:] = 0

    return remove


def _gravcomp(m: mujoco.MjModel, _: int | None) -> list[str]:
    return [f"body {m.body(b).name or b!r}: {m.body_gravcomp[b]:g}" for b in np.flatnonzero(m.body_gravcomp)]


def _fluid(m: mujoco.MjModel, _: int | None) -> list[str]:
    return [f"{name} {value:g}" for name in ("density", "viscosity") if (value := getattr(m.opt, name))]


def _no_fluid(m: mujoco.MjModel, _: int | None) -> None:
    m.opt.density = m.opt.viscosity = 0
    m.opt.wind[:] = 0


def _static(m: mujoco.MjModel, ground: int | None) -> list[str]:
    found = {a if not _moves(m, a) else b for a, b in _pairs(m, ground) if not (_moves(m, a) and _moves(m, b))}
    return [_geom(m, g) for g in sorted(found)]


def _no_static(m: mujoco.MjModel, ground: int | None) -> None:
    for geom in range(m.ngeom):
        if geom != ground and not _moves(m, geom):
            _set_collision(m, geom, 0, 0)


def _self_collision(m: mujoco.MjModel, ground: int | None) -> list[str]:
    both = [(a, b) for a, b in _pairs(m, ground) if _moves(m, a) and _moves(m, b)]
    return [f"{_geom(m, a)} and {_geom(m, b)}" for a, b in both]


def _no_self_collision(m: mujoco.MjModel, ground: int | None) -> None:
    """Robot in one group, the world in the other; what did not touch the ground before touches nothing now."""
    touching = set(ground_geoms(m, ground))
    world = [g for g in range(m.ngeom) if not _moves(m, g) and (m.geom_contype[g] or m.geom_conaffinity[g])]
    beside = {a if _moves(m, a) else b for a, b in _pairs(m, ground) if not (_moves(m, a) and _moves(m, b))}
    for geom in range(m.ngeom):
        if _moves(m, geom):
            _set_collision(m, geom, int(geom in touching or geom in beside), 0)
    for geom in world:
        _set_collision(m, geom, 0, 1)


def _explicit_pairs(m: mujoco.MjModel, _: int | None) -> list[str]:
    pairs = [(int(m.pair_geom1[p]), int(m.pair_geom2[p])) for p in range(m.npair) if m.pair_margin[p] > -1e9]
    return [f"{_geom(m, a)} and {_geom(m, b)}" for a, b in pairs]


def _no_explicit_pairs(m: mujoco.MjModel, _: int | None) -> None:
    m.pair_margin[:] = -1e10  # no two geoms are ever so deep in each other


def _shapes(m: mujoco.MjModel, ground: int | None) -> list[str]:
    return [_geom(m, g) for g in ground_geoms(m, ground) if m.geom_type[g] not in SHAPES]


def _no_shapes(m: mujoco.MjModel, ground: int | None) -> None:
    for geom in ground_geoms(m, ground):
        if m.geom_type[geom] not in SHAPES:
            _set_collision(m, geom, 0, 0)


def _condim(m: mujoco.MjModel, ground: int | None) -> list[str]:
    def combined(g: int) -> int:
        order = int(m.geom_priority[g]) - int(m.geom_priority[ground])
        return int(max(m.geom_condim[g], m.geom_condim[ground]) if not order else m.geom_condim[(ground, g)[order > 0]])

    return [f"{_geom(m, g)}: {combined(g)}" for g in ground_geoms(m, ground) if combined(g) != CONDIM]


def _same_condim(m: mujoco.MjModel, ground: int | None) -> None:
    m.geom_condim[:] = CONDIM


def _frictions(m: mujoco.MjModel, ground: int | None) -> list[str]:
    values = {g: ground_friction(m, ground, g) for g in ground_geoms(m, ground)} if ground is not None else {}
    return [f"{_geom(m, g)}: {value:g}" for g, value in values.items()] if len(set(values.values())) > 1 else []


def _same_friction(m: mujoco.MjModel, ground: int | None) -> None:
    if ground is not None:
        geoms = ground_geoms(m, ground)
        m.geom_friction[[*geoms, ground], 0] = max(ground_friction(m, ground, g) for g in geoms)


def _switches(m: mujoco.MjModel, ground: int | None) -> list[str]:
    """Flags that turn off something that the robot has, or turn on what changes motion."""
    limited, touching = m.jnt_limited.any(), bool(ground_geoms(m, ground))
    has = {"constraint": limited or touching, "limit": limited, "contact": touching}
    has |= {"spring": m.jnt_stiffness.any(), "damper": m.dof_damping.any(), "gravity": m.opt.gravity.any()}
    off = [f'{name}="disable"' for name, bit in SWITCHES.items() if m.opt.disableflags & bit and has[name]]
    return off + (['override="enable"'] if m.opt.enableflags & OVERRIDE else [])


def _no_switches(m: mujoco.MjModel, _: int | None) -> None:
    m.opt.disableflags &= ~sum(SWITCHES.values())
    m.opt.enableflags &= ~OVERRIDE


def _stateful(m: mujoco.MjModel, _: int | None) -> list[str]:
    return [f'{name}="enable"' for name, bit in STATEFUL.items() if m.opt.enableflags & bit]


def _not_stateful(m: mujoco.MjModel, _: int | None) -> None:
    m.opt.enableflags &= ~sum(STATEFUL.values())


def _limit_margin(m: mujoco.MjModel, _: int | None) -> list[str]:
    return [_joint(m, j) for j in range(m.njnt) if m.jnt_margin[j] and m.jnt_limited[j]]


def _nonlinear(m: mujoco.MjModel, _: int | None) -> list[str]:
    springs = m.jnt_stiffnesspoly.any(-1) | (m.jnt_springyield != 0)
    dampers = m.dof_jntid[m.dof_dampingpoly.any(-1)]
    return [_joint(m, j) for j in range(m.njnt) if springs[j] or j in dampers]


def _linear(m: mujoco.MjModel, _: int | None) -> None:
    m.jnt_stiffnesspoly[:] = m.dof_dampingpoly[:] = 0
    m.jnt_springyield[:] = 0
    m.jnt_plasticadr[:] = -1  # or a spring yields at once


def _motors(m: mujoco.MjModel, _: int | None) -> list[str]:
    heavy = (m.actuator_armature != 0) | (m.actuator_damping != 0) | m.actuator_dampingpoly.any(-1)
    return [f"actuator {m.actuator(a).name or a!r}" for a in np.flatnonzero(heavy)]


def _base(m: mujoco.MjModel, _: int | None) -> list[str]:
    """What a free joint has besides inertia."""
    if not (m.njnt and m.jnt_type[0] == FREE):
        return []
    values = {"damping": m.dof_damping[:6], "armature": m.dof_armature[:6], "stiffness": m.jnt_stiffness[:1]}
    return [f"{name} of {_joint(m, 0)}" for name, value in values.items() if value.any()]


def _free_base(m: mujoco.MjModel, _: int | None) -> None:
    m.dof_damping[:6] = m.dof_armature[:6] = 0
    m.jnt_stiffness[0] = 0


def _trees(m: mujoco.MjModel, _: int | None) -> list[str]:
    """Joints that hang on the world beside a free base."""
    if not (m.njnt and m.jnt_type[0] == FREE):
        return []
    return [_joint(m, j) for j in range(1, m.njnt) if m.body_rootid[m.jnt_bodyid[j]] != m.body_rootid[m.jnt_bodyid[0]]]


def _tendons(m: mujoco.MjModel, _: int | None) -> list[str]:
    """Tendons that pull by themselves; one that only an actuator pulls is not used."""
    pulls = (m.tendon_stiffness != 0) | (m.tendon_damping != 0) | (m.tendon_frictionloss != 0)
    pulls |= m.tendon_limited.astype(bool) | (m.tendon_armature != 0)
    pulls |= m.tendon_stiffnesspoly.any(-1) | m.tendon_dampingpoly.any(-1)
    return [f"tendon {m.tendon(t).name or t!r}" for t in np.flatnonzero(pulls)]


def _equality(m: mujoco.MjModel, _: int | None) -> list[str]:
    return [f"equality {m.equality(e).name or e!r}" for e in np.flatnonzero(m.eq_active0)]


def _frictionloss(m: mujoco.MjModel, _: int | None) -> list[str]:
    return [f"{_joint(m, m.dof_jntid[d])}: {m.dof_frictionloss[d]:g}" for d in np.flatnonzero(m.dof_frictionloss)]


def _plugins(m: mujoco.MjModel, _: int | None) -> list[str]:
    return [f"plugin {p}" for p in range(m.nplugin)]


def _other_forces(m: mujoco.MjModel, ground: int | None) -> list[str]:
    """Passive forces that no other row explains: whatever a later MuJoCo may add is not dropped unseen."""
    import mujoco

    if any(f.find(m, ground) for f in ROWS if f.find is not _other_forces) or m.nflex:
        return []
    data = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    joints = m.jnt_qposadr[(m.jnt_type == HINGE) | (m.jnt_type == SLIDE)]
    data.qpos[joints] += rng.uniform(-0.5, 0.5, len(joints))
    data.qvel[:] = rng.uniform(-1, 1, m.nv)
    mujoco.mj_fwdPosition(m, data)
    mujoco.mj_fwdVelocity(m, data)
    expected = -m.dof_damping * data.qvel
    of_joints = m.dof_jntid[np.isin(m.jnt_type[m.dof_jntid], (HINGE, SLIDE))]
    dofs, at = m.jnt_dofadr[of_joints], m.jnt_qposadr[of_joints]
    expected[dofs] -= m.jnt_stiffness[of_joints] * (data.qpos[at] - m.qpos_spring[at])
    wrong = np.abs(data.qfrc_passive - expected) > 1e-9 * (1 + np.abs(expected))
    return sorted({_joint(m, m.dof_jntid[d]) for d in np.flatnonzero(wrong)})


TENDON_ARRAYS = ("tendon_stiffness", "tendon_damping", "tendon_frictionloss", "tendon_limited", "tendon_armature")
TENDON_ARRAYS += ("tendon_stiffnesspoly", "tendon_dampingpoly")
MOTOR_ARRAYS = ("actuator_armature", "actuator_damping", "actuator_dampingpoly")
ROWS = (
    Feature("frictionloss", "joint frictionloss", _frictionloss, _zero("dof_frictionloss"), needed=True),
    Feature("equality", "equality constraints", _equality, _zero("eq_active0"), needed=True),
    Feature("tendon", "tendons with forces of their own", _tendons, _zero(*TENDON_ARRAYS), needed=True),
    Feature("shape", "ground contact of a shape other than sphere, capsule or box", _shapes, _no_shapes, needed=True),
    Feature("sleep", "bodies that sleep, or contacts with a memory", _stateful, _not_stateful, needed=True),
    Feature("plugin", "plugins", _plugins),
    Feature("gravcomp", "gravity compensation", _gravcomp, _zero("body_gravcomp")),
    Feature("fluid", "a medium around the robot", _fluid, _no_fluid),
    Feature("static_geometry", "collision with world geometry beside the ground", _static, _no_static),
    Feature("self_collision", "collision of its own parts", _self_collision, _no_self_collision),
    Feature("pair", "explicit contact pairs", _explicit_pairs, _no_explicit_pairs),
    Feature("condim", "ground contact with another condim than 3", _condim, _same_condim),
    Feature("friction", "ground friction that differs from geom to geom", _frictions, _same_friction),
    Feature("adhesion", "adhesion", _touching_geoms("geom_adhesion"), _zero("geom_adhesion")),
    Feature("surfacevel", "a moving surface", _touching_geoms("geom_surfacevel"), _zero("geom_surfacevel")),
    Feature("limit_margin", "a margin of joint limits", _limit_margin, _zero("jnt_margin")),
    Feature("nonlinear", "springs or dampers that are not linear", _nonlinear, _linear),
    Feature("motor", "armature or damping of an actuator", _motors, _zero(*MOTOR_ARRAYS)),
    Feature("base", "a free joint with damping, armature or stiffness", _base, _free_base),
    Feature("trees", "a second moving tree beside the free base", _trees),
    Feature("flag", "physics that a flag switches off or on", _switches, _no_switches),
    Feature("other", "passive forces of an unknown kind", _other_forces),
)
FEATURES = {feature.name: feature for feature in ROWS}
