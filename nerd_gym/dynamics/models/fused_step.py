"""A step of a residual model by the kernels of prior and features, with its network in torch between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import warp as wp
from torch import Tensor, nn

from nerd_gym.dynamics.features.advance_kernel import advance_kernel
from nerd_gym.dynamics.features.encode_kernel import encode_kernel
from nerd_gym.dynamics.features.kernel_tables import (
    Body,
    Sizes,
    make_functional,
    make_scale,
    make_views,
)
from nerd_gym.dynamics.features.state_view import StateView
from nerd_gym.physics.warp.distance import DistanceFinder
from nerd_gym.physics.warp.launch import Slices, filled
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.state import Motion
from nerd_gym.utils.warp import init_warp

from .networks import Mlp

if TYPE_CHECKING:
    from .prior import Prior
    from .residual import ResidualModel


class FusedStep:
    """What :meth:`ResidualModel.predict` does. Weights and normaliser are used where they are: both may change."""

    def __init__(self, model: ResidualModel):
        init_warp()
        self._model = model
        self.sizes = sizes_of(model.prior)
        views = make_views(model.view.canonical, model.device)
        self._constants = [make_body(model.view), views, make_scale(model.normaliser)]
        self._functional = make_functional(model.view.canonical, model.device)
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
        buffers.slices.run(buffers.prior)
        buffers.slices.run(buffers.encode)
        if self.sizes.ground and "distances" in self._model.prior.writes:
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

    def __init__(self, model: ResidualModel, sizes: Sizes, constants: list, functional: wp.array, rows: int):
        robot, device = model.robot, model.device

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self.q, self.qd, self.force = empty(rows, robot.nq), empty(rows, robot.nv), empty(rows, robot.nj)
        self.point, self.normal = empty(rows, 3), empty(rows, 3)
        self.inputs, self.outputs = empty(rows, sizes.inputs), empty(rows, 2 * robot.nv)
        self.element = empty(rows, dtype=torch.int32)
        self.gate = empty(rows)
        self.distances = empty(rows, sizes.candidates)
        # What only some priors write has one row with the others.
        nv, candidates = robot.nv, sizes.candidates
        self.speeds, self.slips, self.turned, self.step, self.change, self.ahead = (
            empty(rows if name in model.prior.writes else 1, size)
            for name, size in {
                "speeds": candidates,
                "slips": 3 * candidates,
                "turned": 9,
                "step": nv,
                "change": nv,
                "ahead": candidates,
            }.items()
        )
        self.hidden = [empty(rows, layer.out_features) for layer in linear_layers(model.module)[:-1]]
        self.slices = Slices(rows, device, model.threads)
        inputs, outputs, element, gate = map(wp.from_torch, (self.inputs, self.outputs, self.element, self.gate))
        step, change, ahead = map(wp.from_torch, (self.step, self.change, self.ahead))
        motion = map(wp.from_torch, (self.distances, self.speeds, self.slips, self.turned))
        q, qd, *_ = state = self.state_arrays()
        encoded = [*state, *constants, functional, change, ahead, inputs, element, gate, *motion]
        self.finder = DistanceFinder(robot, device)
        self.prior = model.prior.record(self)
        self.encode = self.slices.record(encode_kernel(sizes), encoded)
        self.contact_distance = self.finder.record(self.slices, self.q, self.point, self.normal, self.distances)
        moved = [outputs, element, gate, step, change, *constants, q, qd]
        self.advance = self.slices.record(advance_kernel(sizes), moved)

    def state_arrays(self) -> list[wp.array]:
        """q, qd, force, ground point and normal."""
        ground = (wp.from_torch(x, dtype=wp.vec3) for x in (self.point, self.normal))
        return [*map(wp.from_torch, (self.q, self.qd, self.force)), *ground]


def linear_layers(module: Mlp) -> list[nn.Linear]:
    """In order."""
    return [layer for layer in module if isinstance(layer, nn.Linear)]


def run_network(module: Mlp, inputs: Tensor, hidden: list[Tensor], outputs: Tensor) -> None:
    """The network without a tensor made on the way."""
    x = inputs
    for layer, out in zip(linear_layers(module), [*hidden, outputs], strict=True):
        torch.addmm(layer.bias, x, layer.weight.t(), out=out)
        x = out if out is outputs else nn.functional.silu(out, inplace=True)


def sizes_of(prior: Prior) -> Sizes:
    """What the kernels of a model with this prior are made for."""
    robot, view = prior.robot, prior.view
    return Sizes(
        joints=robot.nj,
        free=robot.free_base,
        gravity=view.gravity,
        ground=robot.ground is not None,
        candidates=len(robot.candidates.radius),
        distinct=len(view.distinct),
        shown=len(view.shown),
        limited=len(view.limited),
        elements=view.canonical.size,
        prior=prior.kind,
        near=prior.near,
    )


def make_body(view: StateView) -> Any:
    """The robot's candidates and limits as Warp arrays, in a Body."""
    robot = view.robot
    slot = np.full(len(robot.candidates.radius), -1)
    slot[view.distinct] = np.arange(len(view.distinct))
    values = {
        "slot": (slot, wp.int32),
        "distinct": (view.distinct, wp.int32),
        "unlimited": (view.robot_centric.unlimited.cpu(), wp.int32),
        "shown": (view.shown.cpu(), wp.int32),
        "limited": (view.limited.cpu(), wp.int32),
        "lower": (view.limits[0].cpu(), wp.float32),
        "upper": (view.limits[1].cpu(), wp.float32),
    }
    body = filled(Body(), values, wp.device_from_torch(view.device))
    body.gravity = wp.vec3(*view.robot_centric.gravity.tolist())
    body.fall = view.fall
    body.dt = robot.frame_dt
    return body
