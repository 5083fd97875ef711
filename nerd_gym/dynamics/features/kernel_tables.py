"""What the feature kernels are told of a robot, its symmetries and a normaliser, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import warp as wp

from nerd_gym.physics.warp.launch import filled

from .canonical import Canonical
from .normaliser import Normaliser

# What a network corrects, as kernels tell it apart.
PRIORS = CONSTANT_VELOCITY, FREE_FALL, FROZEN_POSE = "constant_velocity", "free_fall", "frozen_pose"


class Sizes(NamedTuple):
    """What kernels are made for."""

    joints: int  # nj
    free: bool
    gravity: bool
    ground: bool
    candidates: int  # C
    distinct: int  # S of them that a network sees
    shown: int  # entries of the joints' view that it sees
    limited: int  # L joints with limits
    elements: int  # G of the symmetry group
    prior: str  # one of PRIORS
    near: int  # features of a distance: 1, the one predicted for the frame's end; 4, or 5 with that one

    @property
    def view(self) -> int:
        """V, the entries that the canonical choice looks at."""
        return 4 * self.joints + 3 * (self.gravity + self.ground + self.free)

    @property
    def inputs(self) -> int:
        """D of the network."""
        own = self.view - 4 * self.joints + self.shown + self.near * (self.distinct + 2 * self.limited)
        return own + (self.joints + 6 if self.prior == FROZEN_POSE else 3 * self.distinct)


@wp.struct
class Body:
    """A robot's candidates and limits."""

    slot: wp.array(dtype=wp.int32)  # [C], its number among the distinct ones, or -1
    distinct: wp.array(dtype=wp.int32)  # [S], the other way round
    unlimited: wp.array(dtype=wp.int32)  # [nj], 1 for a hinge that turns all the way round
    shown: wp.array(dtype=wp.int32)  # which entries of the joints' view [4, nj] the network sees
    limited: wp.array(dtype=wp.int32)  # [L]
    lower: wp.array(dtype=wp.float32)  # [L]
    upper: wp.array(dtype=wp.float32)  # [L]
    gravity: wp.vec3  # unit vector
    fall: wp.float32  # m/s in a frame
    dt: wp.float32


@wp.struct
class Views:
    """The symmetry group, as :class:`Canonical` has it."""

    permutation: wp.array2d(dtype=wp.int32)  # [G, nj]
    joint_sign: wp.array2d(dtype=wp.float32)  # [G, 4 nj]
    sign: wp.array2d(dtype=wp.float32)  # [G, nj]
    vector: wp.array(dtype=wp.mat33)  # [G], to multiply columns from the left
    pseudo: wp.array(dtype=wp.mat33)
    candidates: wp.array2d(dtype=wp.int32)  # [G, S]
    inverse: wp.array(dtype=wp.int32)  # [G]


@wp.struct
class Scale:
    """A normaliser's tensors, in its own memory."""

    input_mean: wp.array(dtype=wp.float32)
    input_std: wp.array(dtype=wp.float32)
    output_mean: wp.array(dtype=wp.float32)
    output_std: wp.array(dtype=wp.float32)
    output_limit: wp.array(dtype=wp.float32)


def make_views(canonical: Canonical, device: torch.device) -> Views:
    """The symmetry group as Warp arrays."""
    tables = {name: table.cpu() for name, table in canonical.tables().items() if name != "functional"}
    types = {torch.int64: wp.int32, torch.float32: wp.float32}
    matrices = dict.fromkeys(("vector", "pseudo"), wp.mat33)
    values = {name: (table, matrices.get(name, types[table.dtype])) for name, table in tables.items()}
    return filled(Views(), values, wp.device_from_torch(device))


def make_functional(canonical: Canonical, device: torch.device) -> wp.array:
    """[V] vectors of the G elements' weights."""
    values = canonical.tables()["functional"].cpu().numpy()
    return wp.array(values, dtype=wp.types.vector(values.shape[1], wp.float32), device=wp.device_from_torch(device))


def make_scale(normaliser: Normaliser) -> Scale:
    """The normaliser's own tensors."""
    scale = Scale()
    for name, tensor in normaliser.named_buffers():
        setattr(scale, name, wp.from_torch(tensor))
    return scale


@wp.func
def matrix_of(w: float, x: float, y: float, z: float) -> wp.mat33:
    """Of a unit quaternion."""
    return wp.mat33(
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - w * z),
        2.0 * (x * z + w * y),
        2.0 * (x * y + w * z),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - w * x),
        2.0 * (x * z - w * y),
        2.0 * (y * z + w * x),
        1.0 - 2.0 * (x * x + y * y),
    )


def kernel_of(function: Callable, name: str, sizes: Sizes) -> wp.Kernel:
    """A function as a kernel in a module of its own."""
    key = "_".join([name, *(size if isinstance(size, str) else str(int(size)) for size in sizes)])
    module = wp.get_module(f"nerd_gym.fused.{key}")
    module.options["enable_backward"] = False
    module.options["max_unroll"] = 3
    return wp.Kernel(function, key=key, module=module)
