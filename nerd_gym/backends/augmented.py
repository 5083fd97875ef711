"""`augmented`: the suite's own engine with networks inside it (NeuralSim), and with identified parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import warp as wp
from torch import Tensor

from nerd_gym.augmented.models.file import load_augmented
from nerd_gym.augmented.models.fused import LINKS, FusedNets, fused_nets
from nerd_gym.augmented.models.model import AugmentedModel
from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.physics.warp.tree import Networks, make_tree, shape_of
from nerd_gym.robots.links import Links, read_links
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import file_hash

from .warp import WarpBackend


class AugmentedBackend(WarpBackend):
    """Without a model it is `warp` to the bit. With one, networks change what is computed in every substep.

    Networks that add to joint forces and contact forces run in the fused kernel; any other wiring, contact model or
    parameter runs in the torch engine, some hundred times slower. ``facts["stepped_in"]`` tells which it is.
    """

    name = "augmented"
    learned = False  # unless it has a model
    options = {
        "model": "path of an augmented engine, as `nerd-gym augment` writes it (default: none, which is `warp`)",
        "substeps": "physics steps in a frame (default: the robot's)",
        "threads": "CPU threads of the kernel (default: all); the torch engine uses as many as torch does",
        "fused": "False: the torch engine steps even what the fused kernel could",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        model: str | Path | AugmentedModel | None = None,
        substeps: int | None = None,
        threads: int | None = None,
        fused: bool = True,
    ):
        if type(fused) is not bool:
            raise ValueError(f"fused is {fused!r}; valid: True, False")
        super().__init__(robot, num_envs, device, substeps=substeps, threads=threads)
        self.model: AugmentedModel | None = None
        self._torch = False
        self._time = torch.zeros(num_envs, device=self.device)
        if model is None:
            self.facts["stepped_in"] = "fused kernel"
            return
        self.learned = True
        if isinstance(model, AugmentedModel):
            if model.robot.hash != robot.hash:
                raise ValueError(f"the model is of robot {model.robot.name!r}; this is {robot.name!r}")
            self.model = model
        else:
            self.model, facts = load_augmented(model, robot)
            self.facts |= facts | {"hash": file_hash(Path(model))}
        nets = fused_nets(self.model) if fused else None
        self._torch = nets is None
        self.facts["stepped_in"] = "torch engine" if nets is None else "fused kernel"
        if nets is None:
            # A sum over links may be another in a batch of another size.
            self.rows_exact = False
            self._engine = self.model.engine(torch.float32, self.device)
            self._networks = self.model.float_copy(self.device)
            self._law = self._networks.contact_law(self._engine)
        else:
            self._augment_kernel(nets)

    def _augment_kernel(self, nets: FusedNets) -> None:
        """Put networks and parameters into the fused kernel."""
        assert self.model is not None
        robot, values = self.robot, self.model.values
        links: Links = read_links(robot)
        for name in (*LINKS, "armature", "damping"):
            if name in values:
                links[name] = values[name].detach().cpu().numpy()
        device = wp.device_from_torch(self.device)
        self._networks_in_kernel = Networks()
        sizes = {}
        for name in ("torque", "contact"):
            if (net := getattr(nets, name)) is not None:
                packed, sizes[f"{name}_scalars"] = net
                setattr(self._networks_in_kernel, name, wp.array(packed.numpy(), dtype=wp.vec4, device=device))
        self._kernel = frame_kernel(shape_of(robot, links), self._width, **sizes)
        self._tree = make_tree(links, robot, device)
        self.params = changed_params(self.params, values)
        self._launcher.close()
        self._launcher = self._make_launcher()

    def _kernel_networks(self) -> Any:
        return getattr(self, "_networks_in_kernel", None) or Networks()

    def _advance(self, joint_force: Tensor) -> None:
        if not self._torch:
            super()._advance(joint_force)
        else:
            ground = self.ground_point, self.ground_normal
            with torch.no_grad():
                q, qd = self._engine.frame(
                    self.q,
                    self.qd,
                    joint_force,
                    ground,
                    self._law,
                    augment=self._networks.augment,
                    substeps=self.substeps,
                    time=self._time,
                )
            self.q.copy_(q)
            self.qd.copy_(qd)
        self._time += self.frame_dt

    def _advance_rows(self, joint_force: Tensor, rows: Tensor, frames: int) -> None:
        before = self._time.clone()
        super()._advance_rows(joint_force, rows, frames)
        torch.where(rows, before + frames * self.frame_dt, before, out=self._time)

    def _rows_written(self, mask: Tensor) -> None:
        super()._rows_written(mask)
        self._time.masked_fill_(mask, 0.0)

    def _extra_state(self) -> dict[str, Any]:
        return {"time": self._time.clone()}

    def _restore_extra(self, state: dict[str, Any]) -> None:
        self._time.copy_(state["time"])


def changed_params(params: Any, values: Any) -> Any:
    """The scalars of a kernel with a model's own."""
    if "contact_gains" in values:
        params.ke, params.kd, params.kf, params.mu = values["contact_gains"].tolist()
    if "limit_gains" in values:
        params.limit_ke, params.limit_kd = values["limit_gains"].tolist()
    if "gravity" in values:
        params.gravity = wp.vec3(*values["gravity"].tolist())
    return params
