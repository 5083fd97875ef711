"""`SolverNeRD`: a learned model as a solver of Newton, in a scene of copies of one robot, one in each world.

The solver takes whole frames: give it the robot's frame time as dt, and no substeps. Of the scene it reads where the
robots stand, the ground and gravity. Masses, damping and contact gains of the scene say nothing to it, because the
model has learned them from its teacher; nor do joint targets and forces on bodies: it is driven by ``joint_f`` alone.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import newton
import numpy as np
import torch
import warp as wp
from newton.solvers import SolverBase
from torch import Tensor

from nerd_gym.dynamics.models.base import open_model
from nerd_gym.dynamics.models.checkpoint import DEFAULT_TEACHER, packaged_model
from nerd_gym.dynamics.models.trust import Trust
from nerd_gym.physics.warp.newton_state import from_newton, to_newton
from nerd_gym.robots.contacts import ContactFinder
from nerd_gym.robots.features import FREE
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.rotations import quat_to_matrix
from nerd_gym.robots.state import Motion, rows_within

DT_TOLERANCE = 1e-6  # s
POSE_TOLERANCE = 1e-3  # m, and sine of an angle
GRAVITY_TOLERANCE = 1e-3  # m/s^2


class SolverNeRD(SolverBase):
    """Moves the robots of a scene by the model that backend `neural` uses.

    path: the model's file; None stands for the packaged model of this robot and teacher. After a step
    ``model_trust`` [worlds] tells from 0 to 1 how far it may be believed, ``healthy`` [worlds] which robots stayed in
    the model's stated range (the others stand where they were), and ``facts`` where the model comes from.
    """

    def __init__(
        self, model: newton.Model, robot: RobotModel, path: str | Path | None = None, teacher: str = DEFAULT_TEACHER
    ):
        super().__init__(model)
        self.robot, self.worlds = robot, model.world_count
        self._device = wp.device_to_torch(model.device)
        self._kinematics = Kinematics(robot, self._device)
        self._find_contacts = ContactFinder(robot, self._kinematics)
        reference = np.where(np.arange(robot.nq) < robot.nq - robot.nj, 0.0, robot.mj_model.qpos0)
        self._reference = torch.as_tensor(reference, dtype=torch.float32, device=self._device)
        self._bodies = check_joints(model, robot)
        self._read_scene()
        path = packaged_model(robot, teacher) if path is None else path
        self.dynamics, tensors = open_model(path, robot, self._device)
        self.facts = self.dynamics.facts
        self.history = self.dynamics.new_history(self.worlds)
        self._trust = Trust(robot, tensors, self._device)
        self._limits = self._trust.healthy_range()
        self.model_trust = torch.ones(self.worlds, device=self._device)
        self.healthy = torch.ones(self.worlds, dtype=torch.bool, device=self._device)

    def step(
        self,
        state_in: newton.State,
        state_out: newton.State,
        control: newton.Control | None,
        contacts: newton.Contacts | None,
        dt: float,
        *,
        observables: SolverBase.Observables | None = None,
    ) -> None:
        """One frame; both states may be the same. Newton's contacts are not used: the model finds its own."""
        if abs(dt - self.robot.frame_dt) > DT_TOLERANCE:
            raise ValueError(
                f"dt is {dt:g} s; the model of {self.robot.name!r} takes whole frames of {self.robot.frame_dt:g} s "
                "(step once in a frame, without substeps)"
            )
        self.validate_observables(observables, contacts)
        if control is None:
            control = self.model.control(clone_variables=False)
        device = self.model.device
        # On CUDA torch works on Warp's stream, so that neither waits for the other.
        with torch.cuda.stream(wp.stream_to_torch(device)) if device.is_cuda else nullcontext():
            state = self._get(state_in)
            force = self._rows(control.joint_f)[:, self.robot.joint_qd]
            found = self._find_contacts(state.q, *self.ground)
            after = self.dynamics.predict(state, force, found, self.history)
            self.model_trust = self._trust(*state, force, found, self.dynamics.last_network_inputs())
            self._set(state_out, self._held(state, after))
        newton.eval_fk(self.model, allocated(state_out.joint_q), allocated(state_out.joint_qd), state_out)

    def reset(
        self,
        state: newton.State,
        world_mask: wp.array | None = None,
        flags: newton.StateFlags | int | None = None,
    ) -> None:
        """Forget the past of the masked worlds (Newton's mask [worlds + 1] bool, None for all).

        To be called when a state is set from outside; the state itself stays as it is.
        """
        mask = self._normalize_reset_world_mask(world_mask)
        if self.history is None:
            return
        everyone = torch.ones(self.worlds, dtype=torch.bool, device=self._device)
        self.history.forget(everyone if mask is None else wp.to_torch(mask)[: self.worlds])

    def notify_model_changed(self, flags: newton.ModelFlags | int) -> None:
        """Read places, ground and gravity anew if they may have changed."""
        kinds = newton.ModelFlags
        if int(flags) & int(kinds.JOINT_PROPERTIES | kinds.SHAPE_PROPERTIES | kinds.MODEL_PROPERTIES):
            self._read_scene()

    def close(self) -> None:
        """Give back threads."""
        self.dynamics.close()

    def _rows(self, array: wp.array | None) -> Tensor:
        """A row per world, in Newton's own memory."""
        return wp.to_torch(allocated(array), requires_grad=False).view(self.worlds, -1)

    def _held(self, before: Motion, after: Motion) -> Motion:
        """`after`, but for worlds that would leave the model's healthy range: they stay, as in the backend."""
        self.healthy = rows_within(*after, *self._limits)
        if self.history is not None:
            self.history.forget(~self.healthy)
        return Motion(*(torch.where(self.healthy[:, None], new, old) for new, old in zip(after, before, strict=True)))

    def _get(self, state: newton.State) -> Motion:
        q, qd = from_newton(self.robot, self._rows(state.joint_q), self._rows(state.joint_qd))
        return Motion(q + self._reference, qd)

    def _set(self, state: newton.State, motion: Motion) -> None:
        q, qd = to_newton(self.robot, motion.q - self._reference, motion.qd)
        self._rows(state.joint_q).copy_(q)
        self._rows(state.joint_qd).copy_(qd)

    def _read_scene(self) -> None:
        """Ground [worlds, 3] as point and normal in each robot's own coordinates; gravity must be the robot's."""
        places = self._places()
        turn, place = places[:, :3, :3], places[:, :3, 3]
        expected = torch.as_tensor(self.robot.mj_model.opt.gravity, dtype=torch.float32, device=self._device)
        gravity = torch.einsum("nij,ni->nj", turn, wp.to_torch(allocated(self.model.gravity))[: self.worlds])
        off = (gravity - expected).abs().amax(-1)
        if off.max() > GRAVITY_TOLERANCE:
            raise ValueError(
                f"gravity is {gravity[off.argmax()].tolist()} for the robot in world {int(off.argmax())}; the model "
                f"of {self.robot.name!r} has learned {expected.tolist()} (Newton does not read it from an MJCF: "
                "say ModelBuilder(gravity=...))"
            )
        point, normal = torch.zeros_like(place), torch.zeros_like(place)
        normal[:, 2] = 1
        if self.robot.ground is not None:
            point, normal = (torch.as_tensor(x, device=self._device) for x in ground_planes(self.model))
            point, normal = (torch.einsum("nij,ni->nj", turn, x) for x in (point - place, normal))
        self.ground = point, normal

    def _places(self) -> Tensor:
        """Poses [worlds, 4, 4] of the robots' own origins: where a scene has put them.

        Found by comparing all bodies in a pose that tells joints apart, which also shows whether the scene is made
        of this robot.
        """
        robot, n = self.robot, self.worlds
        q = torch.as_tensor(robot.mj_model.qpos0, dtype=torch.float32, device=self._device).repeat(n, 1)
        q[:, robot.joint_q] += torch.linspace(0.2, 0.9, robot.nj, device=self._device)
        state = self.model.state(requires_grad=False)
        self._set(state, Motion(q, torch.zeros(n, robot.nv, device=self._device)))
        newton.eval_fk(self.model, allocated(state.joint_q), allocated(state.joint_qd), state)
        theirs = wp.to_torch(allocated(state.body_q))[
            torch.as_tensor(self._bodies, device=self._device)
        ]  # [worlds, B, 7], w last
        m = robot.mj_model
        frames = [self._kinematics.frame_of_body[b] for b in range(1, m.nbody) if m.body_jntnum[b]]
        ours = self._kinematics.poses(q)[:, frames]
        turn = quat_to_matrix(theirs[..., [6, 3, 4, 5]].flatten(0, 1)).view(*theirs.shape[:2], 3, 3)
        turn = turn @ ours[..., :3, :3].mT
        place = theirs[..., :3] - (turn @ ours[..., :3, 3:])[..., 0]
        places = torch.cat([turn, place[..., None]], -1)
        off = (places - places[:, :1]).abs().amax((-1, -2))
        if off.max() > POSE_TOLERANCE:
            name = m.body([b for b in range(1, m.nbody) if m.body_jntnum[b]][int(off.amax(0).argmax())]).name
            raise ValueError(
                f"in the scene, body {name!r} stands {float(off.max()):.2g} off its place in robot {robot.name!r}: "
                f"build the scene from {robot.path.name}, unscaled"
            )
        return places[:, 0]


def allocated(array: wp.array | None) -> wp.array:
    """An array of a scene, which Newton has as soon as its model is finalized."""
    if array is None:
        raise ValueError("an array of the scene is missing; make the model with ModelBuilder.finalize")
    return array


def check_joints(model: newton.Model, robot: RobotModel) -> np.ndarray:
    """Bodies [worlds, B] that the robot's joints move, if every world holds its joints and no others."""
    m, n = robot.mj_model, model.world_count
    moving = np.flatnonzero(allocated(model.joint_type).numpy() != int(newton.JointType.FIXED))
    size = model.joint_coord_count, model.joint_dof_count
    bodies = [b for b in range(1, m.nbody) if m.body_jntnum[b]]
    if size != (n * robot.nq, n * robot.nv) or len(moving) != n * len(bodies):
        raise ValueError(
            f"the scene has {n} worlds with {size[0]} joint coordinates and {size[1]} velocities in all; copies of "
            f"{robot.name!r}, one in each world, have {n * robot.nq} and {n * robot.nv}"
        )
    moving = moving.reshape(n, -1)
    world = allocated(model.joint_world).numpy()[moving]
    if (world != world[:, :1]).any() or len(np.unique(world[:, 0])) != n:
        raise ValueError(f"the scene's worlds hold different joints; each must hold one {robot.name!r}")
    for column, body in enumerate(bodies):
        joints = range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body])
        names = [m.joint(j).name for j in joints if m.jnt_type[j] != FREE]
        found = {model.joint_label[j].rsplit("/", 1)[-1] for j in moving[:, column]}
        # Newton joins the names of several joints between two bodies, and makes names for those that have none.
        if names and all(names) and found != {"_".join(names)}:
            raise ValueError(
                f"the scene has a joint {', '.join(sorted(found))!r} where robot {robot.name!r} has "
                f"{'_'.join(names)!r}; the robot's joints are {', '.join(robot.joint_names)}"
            )
    return allocated(model.joint_child).numpy()[moving].astype(np.int64)


def ground_planes(model: newton.Model) -> tuple[np.ndarray, np.ndarray]:
    """Point and normal [worlds, 3] of each world's ground: its own plane that collides, or one for all worlds.

    A plane's size is not looked at: the ground has no end.
    """
    n = model.world_count
    collides = (allocated(model.shape_flags).numpy() & int(newton.ShapeFlags.COLLIDE_SHAPES)) != 0
    still = allocated(model.shape_body).numpy() < 0
    planes = np.flatnonzero((allocated(model.shape_type).numpy() == int(newton.GeoType.PLANE)) & collides & still)
    world = allocated(model.shape_world).numpy()[planes]
    global_planes = planes[world < 0]
    chosen = np.full(n, -1)
    for w in range(n):
        own = [*planes[world == w], *global_planes]
        if len(own) != 1:
            labels = ", ".join(str(model.shape_label[p]) for p in own) or "none"
            raise ValueError(f"world {w} has {len(own)} ground planes ({labels}); the model needs exactly one")
        chosen[w] = own[0]
    poses = allocated(model.shape_transform).numpy()[chosen]
    x, y, z, w = poses[:, 3:].T
    normal = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], 1)
    return poses[:, :3].astype(np.float32), normal.astype(np.float32)
