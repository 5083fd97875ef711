"""A step of the `mlp` model by the kernels of fused.py, with its network in torch between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor, nn

from ..backends.warp import Slices, init_warp
from ..robots.contacts import Contacts
from ..robots.kinematics import Kinematics
from ..robots.model import HINGE, RobotModel
from .fused import Body, Scale, Sizes, Views, advance_kernel, see_kernel
from .model import Motion
from .network_model import NetworkModel, Normaliser
from .symmetry import Canonical


class Shown(NamedTuple):
    """What a model tells its network."""

    gravity: bool
    distinct: np.ndarray  # candidates
    entries: Tensor  # of the joints' view
    limited: Tensor  # joints
    limits: Tensor  # [2, limited]
    canonical: Canonical


class FusedStep:
    """What :meth:`MlpModel.predict` does. Weights and normaliser are used where they are, so that both may change."""

    def __init__(self, model: NetworkModel, shown: Shown):
        init_warp()
        self._model = model
        self.sizes = sizes_of(model, shown)
        views = make_views(shown.canonical, model.device)
        self._constants = [make_body(model, shown), views, make_scale(model.normaliser)]
        self._batch: Batch | None = None

    def __call__(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Motion:
        """The state a frame later; the contacts are told their distances, which are found on the way."""
        batch = self.see(state, joint_force, contacts)
        run_network(self._model.module, batch.inputs, batch.hidden, batch.outputs)
        batch.slices.run(batch.advance)
        return Motion(batch.q.clone(), batch.qd.clone())

    def see(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Batch:
        """The batch with inputs and elements filled in."""
        if self._batch is None or len(self._batch.q) != len(state.q):
            self.close()
            with torch.inference_mode(False):  # or nobody could write to them outside that mode later
                self._batch = Batch(self._model, self.sizes, self._constants, len(state.q))
        batch = self._batch
        given = (*state, joint_force, contacts.ground_point, contacts.ground_normal)
        for mine, theirs in zip((batch.q, batch.qd, batch.force, batch.point, batch.normal), given, strict=True):
            mine.copy_(theirs)
        batch.slices.run(batch.see)
        if self.sizes.ground:
            contacts.distance = batch.distances.clone()
        return batch

    def close(self) -> None:
        """Give back the threads."""
        if self._batch is not None:
            self._batch.slices.close()
            self._batch = None


class Batch:
    """The tensors of N rows that kernels and network work on, and the kernels' launches."""

    def __init__(self, model: NetworkModel, sizes: Sizes, constants: list, rows: int):
        robot, device = model.robot, model.device

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self.q, self.qd, self.force = empty(rows, robot.nq), empty(rows, robot.nv), empty(rows, robot.nj)
        self.point, self.normal = empty(rows, 3), empty(rows, 3)
        self.inputs, self.outputs = empty(rows, sizes.inputs), empty(rows, 2 * robot.nv)
        self.element = empty(rows, dtype=torch.int32)
        self.distances = empty(rows, sizes.candidates)
        self.hidden = [empty(rows, layer.out_features) for layer in linear_layers(model.module)[:-1]]
        self.slices = Slices(rows, device, model.threads)
        q, qd, force, inputs, outputs, element, distances = (
            wp.from_torch(x)
            for x in (self.q, self.qd, self.force, self.inputs, self.outputs, self.element, self.distances)
        )
        ground = [wp.from_torch(x, dtype=wp.vec3) for x in (self.point, self.normal)]
        seen = [q, qd, force, *ground, *constants, inputs, element, distances]
        self.see = self.slices.record(see_kernel(sizes), seen)
        self.advance = self.slices.record(advance_kernel(sizes), [outputs, element, *constants, q, qd])


def linear_layers(module: nn.Module) -> list[nn.Linear]:
    """Of an `Mlp`, in order."""
    return [layer for layer in module if isinstance(layer, nn.Linear)]


def run_network(module: nn.Module, inputs: Tensor, hidden: list[Tensor], outputs: Tensor) -> None:
    """An `Mlp` without a tensor made on the way."""
    x = inputs
    for layer, out in zip(linear_layers(module), [*hidden, outputs], strict=True):
        torch.addmm(layer.bias, x, layer.weight.t(), out=out)
        x = out if out is outputs else nn.functional.silu(out, inplace=True)


def sizes_of(model: NetworkModel, shown: Shown) -> Sizes:
    """What the kernels of a model are made for."""
    robot = model.robot
    return Sizes(
        frames=len(model.kinematics.parents),
        frame=model.robot_frames.link,
        joints=robot.nj,
        free=robot.free_base,
        gravity=shown.gravity,
        ground=robot.ground is not None,
        candidates=len(robot.candidates.radius),
        distinct=len(shown.distinct),
        shown=len(shown.entries),
        limited=len(shown.limited),
        elements=shown.canonical.size,
    )


def make_body(model: NetworkModel, shown: Shown) -> Body:
    """The robot's frames, candidates and limits as Warp arrays."""
    robot, kinematics, candidates = model.robot, model.kinematics, model.robot.candidates
    slot = np.full(len(candidates.radius), -1)
    slot[shown.distinct] = np.arange(len(shown.distinct))
    values = frame_arrays(robot, kinematics) | {
        "carrier": ([kinematics.frame_of_body[int(b)] for b in candidates.body], wp.int32),
        "centre": (candidates.position, wp.vec3),
        "radius": (candidates.radius, wp.float32),
        "slot": (slot, wp.int32),
        "unlimited": (model.robot_frames.unlimited.cpu(), wp.int32),
        "shown": (shown.entries.cpu(), wp.int32),
        "limited": (shown.limited.cpu(), wp.int32),
        "lower": (shown.limits[0].cpu(), wp.float32),
        "upper": (shown.limits[1].cpu(), wp.float32),
    }
    body = filled(Body(), values, model.device)
    body.gravity = wp.vec3(*model.robot_frames.gravity.tolist())
    body.dt = robot.frame_dt
    return body


def frame_arrays(robot: RobotModel, kinematics: Kinematics) -> dict[str, tuple]:
    """The fields of :class:`Body` that are per frame."""
    m, columns = robot.mj_model, np.array(kinematics.columns)
    first = robot.nq - robot.nj
    joint = np.where(columns >= first, columns - first, -1)
    own = np.maximum(joint, 0) + m.njnt - robot.nj
    moving = (joint >= 0)[:, None]
    one, sin, cos, lin = np.moveaxis(kinematics.terms, 1, 0)
    return {
        "parent": (kinematics.parents, wp.int32),
        "joint": (joint, wp.int32),
        "hinge": (m.jnt_type[own] == HINGE, wp.int32),
        "zero": (np.where(joint >= 0, kinematics.reference[np.maximum(columns, 0)], 0.0), wp.float32),
        "turn": (one[:, :3, :3], wp.mat33),
        "turn_sin": (sin[:, :3, :3], wp.mat33),
        "turn_cos": (cos[:, :3, :3], wp.mat33),
        "place": (one[:, :3, 3], wp.vec3),
        "place_sin": (sin[:, :3, 3], wp.vec3),
        "place_cos": (cos[:, :3, 3], wp.vec3),
        "place_lin": (lin[:, :3, 3], wp.vec3),
        "axis": (moving * m.jnt_axis[own], wp.vec3),
        "anchor": (moving * m.jnt_pos[own], wp.vec3),
    }


def make_views(canonical: Canonical, device: torch.device) -> Views:
    """The symmetry group as Warp arrays."""
    tables = {name: table.cpu() for name, table in canonical.tables().items()}
    types = {torch.int64: wp.int32, torch.float32: wp.float32}
    matrices = dict.fromkeys(("vector", "pseudo"), wp.mat33)
    values = {name: (table, matrices.get(name, types[table.dtype])) for name, table in tables.items()}
    return filled(Views(), values, device)


def make_scale(normaliser: Normaliser) -> Scale:
    """The normaliser's own tensors."""
    scale = Scale()
    for name, tensor in normaliser.named_buffers():
        setattr(scale, name, wp.from_torch(tensor))
    return scale


def filled(struct, values: dict[str, tuple], device: torch.device):
    """A Warp struct with arrays made of (values, dtype)."""
    for name, (value, dtype) in values.items():
        kind = np.int32 if dtype is wp.int32 else np.float32
        array = np.ascontiguousarray(value, kind)
        if not array.size and dtype in (wp.vec3, wp.mat33):
            array = array.reshape(0, *dtype._shape_)
        setattr(struct, name, wp.array(array, dtype=dtype, device=wp.device_from_torch(device)))
    return struct
