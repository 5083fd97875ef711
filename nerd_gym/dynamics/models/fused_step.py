"""A step of the `mlp` model by the feature kernels, with its network in torch between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import warp as wp
from torch import Tensor, nn

from nerd_gym.dynamics.features.kernel_tables import (
    Body,
    Shown,
    Sizes,
    make_functional,
    make_scale,
    make_views,
)
from nerd_gym.dynamics.features.kernels import advance_kernel, encode_kernel
from nerd_gym.physics.warp.distance import DistanceFinder
from nerd_gym.physics.warp.launch import Slices, filled
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.state import Motion
from nerd_gym.utils.warp import init_warp

from .networks import Mlp

if TYPE_CHECKING:
    from .mlp import MlpModel


class FusedStep:
    """What :meth:`MlpModel.predict` does. Weights and normaliser are used where they are, so that both may change."""

    def __init__(self, model: MlpModel, shown: Shown):
        init_warp()
        self._model = model
        self.sizes = sizes_of(model, shown)
        views = make_views(shown.canonical, model.device)
        self._constants = [make_body(model, shown), views, make_scale(model.normaliser)]
        self._functional = make_functional(shown.canonical, model.device)
        self._buffers: StepBuffers | None = None

    def __call__(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Motion:
        """The state a frame later; the contacts are told their distances if they are found here."""
        buffers = self.encode(state, joint_force, contacts)
        run_network(self._model.module, buffers.inputs, buffers.hidden, buffers.outputs)
        buffers.slices.run(buffers.advance)
        return Motion(buffers.q.clone(), buffers.qd.clone())

    def encode(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> StepBuffers:
        """The batch with inputs and elements filled in."""
        buffers = self._of(len(state.q))
        buffers.q.copy_(state.q)
        buffers.qd.copy_(state.qd)
        buffers.force.copy_(joint_force)
        buffers.point.copy_(contacts.ground_point)
        buffers.normal.copy_(contacts.ground_normal)
        if buffers.prior is not None:
            buffers.slices.run(buffers.prior)
        if buffers.motion is not None:
            buffers.slices.run(buffers.motion)
        buffers.slices.run(buffers.encode)
        if self.sizes.ground and not self.sizes.has_prior:
            contacts.distance = buffers.distances.clone()
        return buffers

    def last_inputs(self) -> Tensor:
        """[N, D], normalised, of the last batch that was encoded."""
        if self._buffers is None:
            raise RuntimeError("no batch was encoded yet")
        return self._buffers.inputs.clone()

    def distances(self, q: Tensor, ground_point: Tensor, ground_normal: Tensor) -> Tensor:
        """[N, C] of the candidates."""
        buffers = self._of(len(q))
        buffers.q.copy_(q)
        buffers.point.copy_(ground_point)
        buffers.normal.copy_(ground_normal)
        buffers.slices.run(buffers.contact_distance)
        return buffers.distances.clone()

    def _of(self, rows: int) -> StepBuffers:
        if self._buffers is None or len(self._buffers.q) != rows:
            self.close()
            with torch.inference_mode(False):  # or nobody could write to them outside that mode later
                self._buffers = StepBuffers(self._model, self.sizes, self._constants, self._functional, rows)
        return self._buffers

    def close(self) -> None:
        """Give back the threads."""
        if self._buffers is not None:
            self._buffers.slices.close()
            self._buffers = None


class StepBuffers:
    """The tensors of N rows that kernels and network work on, and the kernels' launches."""

    def __init__(self, model: MlpModel, sizes: Sizes, constants: list, functional: wp.array, rows: int):
        robot, device = model.robot, model.device

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self.q, self.qd, self.force = empty(rows, robot.nq), empty(rows, robot.nv), empty(rows, robot.nj)
        self.point, self.normal = empty(rows, 3), empty(rows, 3)
        self.inputs, self.outputs = empty(rows, sizes.inputs), empty(rows, 2 * robot.nv)
        self.element = empty(rows, dtype=torch.int32)
        self.gate = empty(rows)
        self.distances = empty(rows, sizes.candidates)
        # Of the candidates' motion, which a prior has in itself.
        without = rows if not sizes.has_prior else 1
        self.speeds, self.slips = empty(without, sizes.candidates), empty(without, 3 * sizes.candidates)
        self.turned = empty(without, 9)
        # Of the prior, if there is one.
        with_prior = rows if sizes.has_prior else 1
        self.step, self.change = empty(with_prior, robot.nv), empty(with_prior, robot.nv)
        self.ahead = empty(with_prior, sizes.candidates)
        self.hidden = [empty(rows, layer.out_features) for layer in linear_layers(model.module)[:-1]]
        self.slices = Slices(rows, device, model.threads)
        names = ("q", "qd", "force", "inputs", "outputs", "element", "gate", "step", "change", "ahead")
        arrays = (wp.from_torch(getattr(self, name)) for name in names)
        q, qd, force, inputs, outputs, element, gate, step, change, ahead = arrays
        ground = [wp.from_torch(x, dtype=wp.vec3) for x in (self.point, self.normal)]
        motion = [self.distances, self.speeds, self.slips, self.turned]
        encoded = [q, qd, force, *ground, *constants, functional, change, ahead, inputs, element, gate]
        encoded += map(wp.from_torch, motion)
        self.prior: list[wp.Launch] | None = None
        if model.prior is not None:
            self.prior = model.prior.record(self.slices, [q, qd, force, *ground], [step, change, ahead])
        self.encode = self.slices.record(encode_kernel(sizes), encoded)
        finder = DistanceFinder(robot, device)
        self.contact_distance = finder.record(self.slices, self.q, self.point, self.normal, self.distances)
        self.motion: list[wp.Launch] | None = None
        if not sizes.has_prior:
            self.motion = finder.record_motion(self.slices, self.q, self.qd, self.point, self.normal, *motion)
        moved = [outputs, element, gate, step, change, *constants, q, qd]
        self.advance = self.slices.record(advance_kernel(sizes), moved)


def linear_layers(module: Mlp) -> list[nn.Linear]:
    """In order."""
    return [layer for layer in module if isinstance(layer, nn.Linear)]


def run_network(module: Mlp, inputs: Tensor, hidden: list[Tensor], outputs: Tensor) -> None:
    """The network without a tensor made on the way."""
    x = inputs
    for layer, out in zip(linear_layers(module), [*hidden, outputs], strict=True):
        torch.addmm(layer.bias, x, layer.weight.t(), out=out)
        x = out if out is outputs else nn.functional.silu(out, inplace=True)


def sizes_of(model: MlpModel, shown: Shown) -> Sizes:
    """What the kernels of a model are made for."""
    robot = model.robot
    return Sizes(
        joints=robot.nj,
        free=robot.free_base,
        gravity=shown.gravity,
        ground=robot.ground is not None,
        candidates=len(robot.candidates.radius),
        distinct=len(shown.distinct),
        shown=len(shown.entries),
        limited=len(shown.limited),
        elements=shown.canonical.size,
        free_fall_prior=model.free_fall_prior,
        predicted_distance=model.predicted_distance,
        has_prior=model.has_prior,
    )


def make_body(model: MlpModel, shown: Shown) -> Any:
    """The robot's candidates and limits as Warp arrays, in a Body."""
    robot = model.robot
    slot = np.full(len(robot.candidates.radius), -1)
    slot[shown.distinct] = np.arange(len(shown.distinct))
    values = {
        "slot": (slot, wp.int32),
        "distinct": (shown.distinct, wp.int32),
        "unlimited": (model.robot_centric.unlimited.cpu(), wp.int32),
        "shown": (shown.entries.cpu(), wp.int32),
        "limited": (shown.limited.cpu(), wp.int32),
        "lower": (shown.limits[0].cpu(), wp.float32),
        "upper": (shown.limits[1].cpu(), wp.float32),
    }
    body = filled(Body(), values, wp.device_from_torch(model.device))
    body.gravity = wp.vec3(*model.robot_centric.gravity.tolist())
    body.fall = robot.frame_dt * float(np.linalg.norm(robot.mj_model.opt.gravity))
    body.dt = robot.frame_dt
    return body
