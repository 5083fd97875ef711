"""What becomes of each attribute of an MJCF, found by moving a robot with and without it on `mujoco` and `warp`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from nerd_gym import RobotModel, make_backend
from nerd_gym.backends.base import Backend
from nerd_gym.robots.features import FEATURES, UnsupportedRobot
from tests.support.mjcf_probes import BASE, Probe, probes, schema, write_assets

SIMULATED, OWN_LAW, REFUSED, BY_WARP, NO_EFFECT = "simulated", "own law", "refused", "refused by `warp`", "no effect"
COMPILED = "compiled"  # MuJoCo's compiler reads it, and every backend takes the compiler's numbers
COMPILER = ("compiler", "asset/mesh", "asset/model", "body/attach")
ROWS = 6
ALIKE = 1e-3  # of the change of speed in a frame, between engines that integrate damping differently
# Contact, joint limits and time stepping are each backend's own: what MuJoCo's constraint solver and integrator take.
SOLVER = {"solref", "solimp", "solmix", "solreflimit", "solimplimit", "priority"}
OPTIONS = {"cone", "impratio", "integrator", "iterations", "jacobian", "ls_iterations", "ls_tolerance", "solver"}
OPTIONS |= {"noslip_iterations", "noslip_tolerance", "tolerance", "ccd_iterations", "ccd_tolerance"}
FLAGS = {"diagexact", "eulerdamp", "island", "multiccd", "nativeccd", "refsafe", "speculative", "warmstart"}


OF_THE_COMPILER = {("body", "fuse"), ("body", "simple"), ("body", "childclass"), ("body/freejoint", "align")}


@dataclass
class Motion:
    """What the probe's robot does from the same starts: far from everything, beyond its limits, on the ground."""

    flight: torch.Tensor  # [N, nv] change of speed in a frame
    beyond: torch.Tensor
    ground: torch.Tensor
    touching: dict[str, float] = field(default_factory=dict)  # geoms that touch the ground, and how deep
    limited: dict[str, float] = field(default_factory=dict)  # joints beyond their limits, and how far


@dataclass
class Verdict:
    """Of one attribute."""

    word: str
    ignore: str = ""  # the feature that `ignore` takes
    why: str = ""


def verdicts() -> dict[tuple[str, str], Verdict]:
    """By element and attribute, for every attribute of the schema. Defaults are judged as what they fill in."""
    found: dict[tuple[str, str | None], Verdict] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_assets(Path(folder))
        for probe in probes():
            found[probe.element, probe.attribute] = judge(probe, Path(folder))
    out = {}
    for path, attributes in schema().items():
        for name in attributes:
            out[path, name] = _of(found, path, name)
    return out


def table(found: dict[tuple[str, str], Verdict]) -> str:
    """In Markdown: attributes with the same answer in one row, and elements whose attributes have the same answers."""
    elements: dict[str, dict[str, tuple[str, str]]] = {}
    for (path, name), verdict in found.items():
        if not path.startswith("default"):
            elements.setdefault(_family(path), {}).setdefault(name, (verdict.word, verdict.ignore))
            same = elements[_family(path)][name] == (verdict.word, verdict.ignore)
            assert same, f"{path} {name} is not like the others of {_family(path)}"
    lines = ["| element | attributes | what becomes of it | `ignore` |", "| --- | --- | --- | --- |"]
    for path, answers in elements.items():
        groups = {answer: [n for n in answers if answers[n] == answer] for answer in answers.values()}
        for answer, names in sorted(groups.items(), key=lambda pair: len(pair[1])):
            most = len(names) > 12 and len(names) == max(map(len, groups.values()))
            told = ("all others" if len(groups) > 1 else "all") if most or len(groups) == 1 else ""
            word, ignore = answer
            cells = told or ", ".join(f"`{name}`" for name in names), word, ignore and f"`{ignore}`"
            lines.append(f"| `{path}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _family(path: str) -> str:
    """One name for elements of a kind: sensors, actuators, plugins wherever they are."""
    top, *inside = path.split("/")
    if "plugin" in inside and top != "sensor":
        return "**/plugin"
    if top in ("sensor", "actuator", "visual", "custom") and inside:
        return f"{top}/*"
    return "/".join([top, *inside[:1], *(["**"] if len(inside) > 1 else [])])


def _of(found: dict[tuple[str, str | None], Verdict], path: str, name: str) -> Verdict:
    at = path.removeprefix("default/")
    if at != path and (at, name) not in found:  # default/joint fills in body/joint, and so on
        rooms = ("body", "asset", "contact", "actuator", "equality", "tendon")
        at = next((f"{room}/{at}" for room in rooms if _covered(found, f"{room}/{at}", name)), at)
    if path.startswith("default/") and at in ("equality", "tendon"):
        at = {"equality": "equality/weld", "tendon": "tendon/fixed"}[at]
    if path in ("default", "mujoco") and (path, name) not in found:
        return Verdict(NO_EFFECT)
    if (at, name) in found:
        return found[at, name]
    parts = at.split("/")
    for size in range(len(parts), 0, -1):
        if (whole := ("/".join(parts[:size]), None)) in found:
            return found[whole]
    raise LookupError(f"no probe of {path} {name}")


def _covered(found: dict[tuple[str, str | None], Verdict], path: str, name: str) -> bool:
    return (path, name) in found or any((path[: len(p)], None) == (p, a) for p, a in found if a is None)


def judge(probe: Probe, folder: Path) -> Verdict:
    """Refused, or what it changes and whether both backends agree on it."""
    path = folder / "probe.xml"
    path.write_text(probe.mjcf)
    try:
        robot = RobotModel.from_mjcf(path)
    except ValueError as error:
        assert path.name in str(error), error
        return _ignorable(path, str(error), REFUSED)
    before, after = base_motion(), mujoco_motion(robot)
    changed = after.flight.shape != before.flight.shape or not torch.equal(after.flight, before.flight)
    changed |= after.touching != before.touching or after.limited != before.limited
    law = changed or not (torch.equal(after.beyond, before.beyond) and torch.equal(after.ground, before.ground))
    try:
        backend = make_backend("warp", robot, ROWS, threads=1)
    except UnsupportedRobot as error:
        assert path.name in str(error), error
        return _ignorable(path, str(error), BY_WARP)
    warp = _frame(backend, *_flight(robot))
    error = float((warp - after.flight).abs().max() / after.flight.abs().max())
    assert error < ALIKE, f"{probe.element} {probe.attribute}: warp and mujoco differ by {error:.2g} of a frame"
    assert _touching(robot) == pytest.approx(after.touching, abs=1e-5), f"{probe.element} {probe.attribute}: contacts"
    own = probe.attribute in SOLVER or (probe.element, probe.attribute) in {("option", o) for o in OPTIONS}
    own |= probe.element == "option/flag" and probe.attribute in FLAGS
    if own:
        return Verdict(OWN_LAW)
    assert changed or not law, f"{probe.element} {probe.attribute}: changes contacts or limits of mujoco alone"
    if probe.element.startswith(COMPILER) or (probe.element, probe.attribute) in OF_THE_COMPILER:
        return Verdict(COMPILED)
    return Verdict(SIMULATED if changed else NO_EFFECT)


def _ignorable(path: Path, why: str, word: str) -> Verdict:
    """The feature by which it is refused; left out, both backends must move alike."""
    names = [name for name in FEATURES if f"'{name}'" in why.partition("ignore=")[2].partition("]")[0]]
    if not names:
        return Verdict(word, why=why)
    robot = RobotModel.from_mjcf(path, ignore=names)
    assert set(robot.ignored) == set(names) and not robot.features
    warp = make_backend("warp", robot, ROWS, threads=1)
    assert warp.facts["ignored"] == list(robot.ignored)
    flight = mujoco_motion(robot).flight
    assert (_frame(warp, *_flight(robot)) - flight).abs().max() < ALIKE * flight.abs().max()
    return Verdict(word, " ".join(names), why)


@cache
def base_motion() -> Motion:
    """Of the robot as it is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.xml"
        path.write_text(BASE)
        return mujoco_motion(RobotModel.from_mjcf(path))


def mujoco_motion(robot: RobotModel) -> Motion:
    """On MuJoCo, with whatever features the robot has."""
    backend = make_backend("mujoco", robot, ROWS, threads=1)
    flight, beyond, ground = (_frame(backend, *state) for state in (_flight(robot), _beyond(robot), _ground(robot)))
    motion = Motion(flight, beyond, ground)
    m, data = robot.mj_model, mujoco.MjData(robot.mj_model)
    for q, qd in zip(*_ground(robot), strict=True):
        data.qpos[:], data.qvel[:] = q.numpy(), qd.numpy()
        mujoco.mj_forward(m, data)
        for c in data.contact:
            if c.dist < c.includemargin and robot.ground in c.geom:
                geom = m.geom(max(c.geom)).id
                key = str(geom)
                motion.touching[key] = min(motion.touching.get(key, 0.0), round(float(c.dist - c.includemargin), 6))
    for q, qd in zip(*_beyond(robot), strict=True):
        data.qpos[:], data.qvel[:] = q.numpy(), qd.numpy()
        mujoco.mj_forward(m, data)
        limits = data.efc_type == mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT
        for joint, far in zip(data.efc_id[limits], data.efc_pos[limits], strict=True):
            motion.limited[str(joint)] = round(float(far), 6)
    return motion


def _touching(robot: RobotModel) -> dict[str, float]:
    """The same of the candidates, which `warp` takes."""
    backend = make_backend("warp", robot, ROWS, threads=1)
    backend.reset(torch.ones(ROWS, dtype=torch.bool), *_ground(robot))
    names = {robot.mj_model.geom(g).name or f"geom_{g}": g for g in range(robot.mj_model.ngeom)}
    deepest = backend.contacts.distance.amin(0).tolist() if robot.candidates.names else []
    out: dict[str, float] = {}
    for label, distance in zip(robot.candidates.names, deepest, strict=True):
        geom = str(names[label.partition(":")[0]])
        if distance < 0:
            out[geom] = min(out.get(geom, 0.0), distance)
    return out


def _frame(backend: Backend, q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
    """Change of speed in a frame under small forces."""
    backend.reset(torch.ones(ROWS, dtype=torch.bool), q, qd)
    backend.step(torch.full((ROWS, backend.robot.nj), 0.3))
    assert backend.healthy.all()
    return backend.qd - qd


def _flight(robot: RobotModel) -> tuple[torch.Tensor, torch.Tensor]:
    """High up, turned, moving, joints within their limits."""
    rng = np.random.default_rng(0)
    q = np.tile(robot.mj_model.qpos0, (ROWS, 1))
    q[:, 2] = 8.0
    q[:, 3:7] = rng.normal(size=(ROWS, 4))
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    q[:, 7:] += rng.uniform(-0.01, 0.01, (ROWS, robot.nj))
    qd = rng.uniform(-1, 1, (ROWS, robot.nv))
    return torch.tensor(q, dtype=torch.float32), torch.tensor(qd, dtype=torch.float32)


def _beyond(robot: RobotModel) -> tuple[torch.Tensor, torch.Tensor]:
    """The same with joints where their limits are, or beyond."""
    q, qd = _flight(robot)
    q[:, 7:] = torch.as_tensor(robot.mj_model.qpos0[7:]) + torch.tensor([0.65, 0.06])[: robot.nj]
    return q, qd


def _ground(robot: RobotModel) -> tuple[torch.Tensor, torch.Tensor]:
    """Upright, a bit deeper in every row."""
    q, qd = _flight(robot)
    q[:, 3:7] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    q[:, 2] = torch.linspace(0.3, 0.08, ROWS)
    return q, 0.1 * qd
