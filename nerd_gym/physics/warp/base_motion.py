"""A free base in world axes, as a Warp kernel: what tasks of legged robots ask for in every step, in one launch."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import warp as wp
from torch import Tensor

from nerd_gym.utils.warp import init_warp

from .launch import Slices


@lru_cache(maxsize=1)
def base_motion_kernel() -> wp.Kernel:
    """Angular velocity in world axes, z of the base's z axis and x of its x axis [N, 5] of environments `first`, ..."""

    def base_motion(
        q: wp.array2d(dtype=wp.float32), qd: wp.array2d(dtype=wp.float32), out: wp.array2d(dtype=wp.float32), first: int
    ):
        env = wp.tid() + first
        quat = wp.quat(q[env, 4], q[env, 5], q[env, 6], q[env, 3])
        omega = wp.quat_rotate(quat, wp.vec3(qd[env, 3], qd[env, 4], qd[env, 5]))
        for i in range(3):
            out[env, i] = omega[i]
        out[env, 3] = 1.0 - 2.0 * (quat[0] * quat[0] + quat[1] * quat[1])
        out[env, 4] = 1.0 - 2.0 * (quat[1] * quat[1] + quat[2] * quat[2])

    module = wp.get_module("nerd_gym.base_motion")
    module.options["enable_backward"] = False
    return wp.Kernel(base_motion, key="base_motion", module=module)


class BaseMotionLaunch(NamedTuple):
    """What `slices.run(launches)` writes to `out` [N, 5], of tensors that stay where they are."""

    slices: Slices
    launches: list[wp.Launch]
    out: Tensor


@torch.inference_mode(False)  # or nobody could write to `out` outside that mode later
def record_base_motion(q: Tensor, qd: Tensor) -> BaseMotionLaunch:
    """Of q [N, nq] and qd [N, nv]."""
    init_warp()
    out, slices = torch.zeros(len(q), 5, device=q.device), Slices(len(q), q.device, threads=1)
    return BaseMotionLaunch(slices, slices.record(base_motion_kernel(), [*map(wp.from_torch, (q, qd, out))]), out)
