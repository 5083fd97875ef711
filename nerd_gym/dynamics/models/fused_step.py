"""A step of the `mlp` model by the kernels of fused.py, with its network in torch between them."""

from __future__ import annotations

import torch
import warp as wp
from torch import Tensor, nn

from nerd_gym.dynamics.features.kernel_tables import (
    Shown,
    Sizes,
    make_body,
    make_functional,
    make_scale,
    make_views,
    sizes_of,
)
from nerd_gym.dynamics.features.kernels import advance_kernel, see_kernel, stand_kernel
from nerd_gym.physics.warp.launch import Slices
from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.state import Motion
from nerd_gym.utils.warp import init_warp

from .network_model import NetworkModel


class FusedStep:
    """What :meth:`MlpModel.predict` does. Weights and normaliser are used where they are, so that both may change."""

    def __init__(self, model: NetworkModel, shown: Shown):
        init_warp()
        self._model = model
        self.sizes = sizes_of(model, shown)
        views = make_views(shown.canonical, model.device)
        self._constants = [make_body(model, shown), views, make_scale(model.normaliser)]
        self._functional = make_functional(shown.canonical, model.device)
        self._batch: Batch | None = None

    def __call__(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Motion:
        """The state a frame later; the contacts are told their distances if they are found on the way."""
        batch = self.see(state, joint_force, contacts)
        run_network(self._model.module, batch.inputs, batch.hidden, batch.outputs)
        batch.slices.run(batch.advance)
        return Motion(batch.q.clone(), batch.qd.clone())

    def see(self, state: Motion, joint_force: Tensor, contacts: Contacts) -> Batch:
        """The batch with inputs and elements filled in."""
        batch = self._of(len(state.q))
        batch.q.copy_(state.q)
        batch.qd.copy_(state.qd)
        batch.force.copy_(joint_force)
        batch.point.copy_(contacts.ground_point)
        batch.normal.copy_(contacts.ground_normal)
        if batch.sketch is not None:
            batch.slices.run(batch.sketch)
        batch.slices.run(batch.see)
        if self.sizes.ground and not self.sizes.sketched:
            contacts.distance = batch.distances.clone()
        return batch

    def last_inputs(self) -> Tensor:
        """[N, D], normalised, of the last batch that was seen."""
        return self._batch.inputs.clone()

    def distances(self, q: Tensor, ground_point: Tensor, ground_normal: Tensor) -> Tensor:
        """[N, C] of the candidates."""
        batch = self._of(len(q))
        batch.q.copy_(q)
        batch.point.copy_(ground_point)
        batch.normal.copy_(ground_normal)
        batch.slices.run(batch.stand)
        return batch.distances.clone()

    def _of(self, rows: int) -> Batch:
        if self._batch is None or len(self._batch.q) != rows:
            self.close()
            with torch.inference_mode(False):  # or nobody could write to them outside that mode later
                self._batch = Batch(self._model, self.sizes, self._constants, self._functional, rows)
        return self._batch

    def close(self) -> None:
        """Give back the threads."""
        if self._batch is not None:
            self._batch.slices.close()
            self._batch = None


class Batch:
    """The tensors of N rows that kernels and network work on, and the kernels' launches."""

    def __init__(self, model: NetworkModel, sizes: Sizes, constants: list, functional: wp.array, rows: int):
        robot, device = model.robot, model.device

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self.q, self.qd, self.force = empty(rows, robot.nq), empty(rows, robot.nv), empty(rows, robot.nj)
        self.point, self.normal = empty(rows, 3), empty(rows, 3)
        self.inputs, self.outputs = empty(rows, sizes.inputs), empty(rows, 2 * robot.nv)
        self.element = empty(rows, dtype=torch.int32)
        self.quiet = empty(rows)
        self.distances = empty(rows, sizes.candidates)
        # Of the sketch, if there is one.
        sketched = rows if sizes.sketched else 1
        self.step, self.change = empty(sketched, robot.nv), empty(sketched, robot.nv)
        self.ahead = empty(sketched, sizes.candidates)
        self.hidden = [empty(rows, layer.out_features) for layer in linear_layers(model.module)[:-1]]
        self.slices = Slices(rows, device, model.threads)
        names = ("q", "qd", "force", "inputs", "outputs", "element", "quiet", "distances", "step", "change", "ahead")
        arrays = (wp.from_torch(getattr(self, name)) for name in names)
        q, qd, force, inputs, outputs, element, quiet, distances, step, change, ahead = arrays
        ground = [wp.from_torch(x, dtype=wp.vec3) for x in (self.point, self.normal)]
        seen = [q, qd, force, *ground, *constants, functional, change, ahead, inputs, element, quiet, distances]
        self.sketch = None
        if sizes.sketched:
            self.sketch = model.sketch.record(self.slices, [q, qd, force, *ground], [step, change, ahead])
        self.see = self.slices.record(see_kernel(sizes), seen)
        self.stand = self.slices.record(stand_kernel(sizes), [q, *ground, constants[0], distances])
        moved = [outputs, element, quiet, step, change, *constants, q, qd]
        self.advance = self.slices.record(advance_kernel(sizes), moved)


def linear_layers(module: nn.Module) -> list[nn.Linear]:
    """Of an `Mlp`, in order."""
    return [layer for layer in module if isinstance(layer, nn.Linear)]


def run_network(module: nn.Module, inputs: Tensor, hidden: list[Tensor], outputs: Tensor) -> None:
    """An `Mlp` without a tensor made on the way."""
    x = inputs
    for layer, out in zip(linear_layers(module), [*hidden, outputs], strict=True):
        torch.addmm(layer.bias, x, layer.weight.t(), out=out)
        x = out if out is outputs else nn.functional.silu(out, inplace=True)
