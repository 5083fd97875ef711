"""Forward kinematics in torch: one description, every backend and every device.

A joint's transform is linear in 1, sin q, 1 - cos q and q, so that all of a robot's joint transforms come
from three products with constant matrices; then one matrix product per level of the tree.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .features import FREE, HINGE
from .model import RobotModel, rotation_matrix
from .rotations import quat_to_matrix


class Kinematics:
    """Poses of a robot's bodies and of points fixed to them."""

    def __init__(self, robot: RobotModel, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32):
        m = robot.mj_model
        self.robot = robot
        self.free = robot.free_base
        parents: list[int] = []  # per frame; -1 is the world
        constants: list[np.ndarray] = []  # per frame: [4 (1, sin, 1-cos, q), 4, 4]
        columns: list[int] = []  # per frame: index into q, -1 for a welded body
        last: dict[int, int] = {0: -1}  # body -> frame that carries it
        for body in range(1, m.nbody):
            local = _transform(rotation_matrix(m.body_quat[body]), m.body_pos[body])
            parent = last[int(m.body_parentid[body])]
            joints = range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body])
            if not len(joints):
                parents.append(parent)
                constants.append(np.stack([local, *np.zeros((3, 4, 4))]))
                columns.append(-1)
            for j in joints:
                parents.append(parent)
                columns.append(int(m.jnt_qposadr[j]))
                if m.jnt_type[j] == FREE:
                    constants.append(np.zeros((4, 4, 4)))
                else:
                    constants.append(local @ _joint_terms(m, j))
                parent, local = len(parents) - 1, np.eye(4)
            last[body] = len(parents) - 1
        self.frame_of_body = last
        moving = [f for f, c in enumerate(columns) if c >= 0]
        self._base = sum(p < 0 for p in parents[: moving[0]])  # the free base's local in the first level
        reference = m.qpos0.copy()
        reference[: 7 if self.free else 0] = 0.0

        def tensor(x: np.ndarray) -> Tensor:
            return torch.as_tensor(x, device=device).to(dtype if np.asarray(x).dtype.kind == "f" else torch.long)

        stack = np.stack(constants)
        self._one, self._sin, self._cos, self._lin = (tensor(stack[:, k]) for k in range(4))
        self._any_slide = bool(np.any(stack[:, 3]))
        self._columns = tensor(np.maximum(columns, 0))
        self._reference = tensor(reference)
        self._levels = self._make_levels(parents, tensor)
        self._device, self._dtype = device, dtype

    @staticmethod
    def _make_levels(parents: list[int], tensor) -> list[tuple[Tensor, Tensor]]:
        """Frames grouped by depth: (frames of the level, where each frame's parent stands in the level above)."""
        depth: list[int] = []
        for p in parents:
            depth.append(0 if p < 0 else depth[p] + 1)
        levels, above = [], {-1: 0}
        for d in range(max(depth) + 1):
            frames = [f for f in range(len(parents)) if depth[f] == d]
            levels.append((tensor(np.array(frames)), tensor(np.array([above[parents[f]] for f in frames]))))
            above = {f: k for k, f in enumerate(frames)}
        order = np.concatenate([frames.cpu().numpy() for frames, _ in levels])
        levels.append((tensor(np.argsort(order)), tensor(np.zeros(0, int))))
        return levels

    def poses(self, q: Tensor) -> Tensor:
        """[N, nq] -> [N, F, 4, 4] world poses of the frames; see :meth:`points` for using them."""
        angle = (q - self._reference)[:, self._columns, None, None]
        local = self._one + torch.sin(angle) * self._sin + (1 - torch.cos(angle)) * self._cos
        if self._any_slide:
            local = local + angle * self._lin
        *levels, (restore, _) = self._levels
        world = []
        for d, (frames, parent) in enumerate(levels):
            here = local[:, frames]
            if d == 0 and self.free:
                top = torch.cat([quat_to_matrix(q[:, 3:7]), q[:, :3, None]], -1)
                bottom = top.new_zeros(len(q), 1, 4)
                bottom[..., 3] = 1
                here[:, self._base] = torch.cat([top, bottom], 1)  # indexing by a tensor made `here` a copy
            world.append(here if d == 0 else world[-1][:, parent] @ here)
        return torch.cat(world, 1)[:, restore]

    def fixed_points(self, bodies: np.ndarray, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Prepare points given in MuJoCo bodies' frames for :meth:`points`."""
        frames = [self.frame_of_body[int(b)] for b in bodies]
        homogeneous = np.concatenate([positions, np.ones((len(positions), 1))], 1)
        return (
            torch.as_tensor(frames, dtype=torch.long, device=self._device),
            torch.as_tensor(homogeneous, device=self._device).to(self._dtype)[..., None],
        )

    def site(self, name: str) -> tuple[Tensor, Tensor]:
        """A named site of the MJCF as a prepared point."""
        m = self.robot.mj_model
        names = [m.site(s).name for s in range(m.nsite)]
        if name not in names:
            raise ValueError(f"{self.robot.name} has no site {name!r}; it has {', '.join(names) or 'none'}")
        s = names.index(name)
        return self.fixed_points(np.array([m.site_bodyid[s]]), m.site_pos[s : s + 1])

    def points(self, poses: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """World positions [N, P, 3] of P prepared points."""
        frames, local = prepared
        return (poses[:, frames, :3] @ local)[..., 0]


def _transform(rotation: np.ndarray, position: np.ndarray) -> np.ndarray:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = rotation, position
    return out


def _joint_terms(m, j: int) -> np.ndarray:
    """[4, 4, 4]: the joint's transform as a sum over 1, sin q, 1 - cos q and q."""
    x, y, z = axis = m.jnt_axis[j]
    terms = np.zeros((4, 4, 4))
    terms[0] = np.eye(4)
    if m.jnt_type[j] == HINGE:
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        for k, part in ((1, cross), (2, cross @ cross)):
            terms[k, :3, :3] = part
            terms[k, :3, 3] = -part @ m.jnt_pos[j]
    else:
        terms[3, :3, 3] = axis
    return terms
