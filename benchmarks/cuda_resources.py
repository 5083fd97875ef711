"""Registers, stack and spills of every kernel on CUDA, on paper: Warp's PTX through ptxas, without a GPU.

The package `nvidia-cuda-nvcc` carries a ptxas that reads Warp's PTX.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import tyro
import warp as wp

from nerd_gym import RobotModel
from nerd_gym.backends import backends_for
from nerd_gym.dynamics.features.advance_kernel import advance_kernel
from nerd_gym.dynamics.features.encode_kernel import encode_kernel
from nerd_gym.dynamics.models.base import open_model
from nerd_gym.dynamics.models.checkpoint import packaged_model
from nerd_gym.physics.warp.distance import distance_kernel
from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.physics.warp.frozen_pose import frozen_pose_kernel
from nerd_gym.physics.warp.tree import shape_of
from nerd_gym.registration import PACKAGED
from nerd_gym.robots.links import read_links
from nerd_gym.utils.timing import save
from nerd_gym.utils.warp import init_warp

RESULT = Path(__file__).parent / "results" / "cuda_resources.json"
ARCHITECTURES = (86, 90)
REGISTERS, THREADS = 65_536, {86: 1536, 90: 2048}  # of a multiprocessor


def kernels_of(robot: RobotModel) -> Iterator[tuple[str, wp.Kernel]]:
    """Every kernel that the backends launch for a robot, as CUDA has them: a robot per thread."""
    links = read_links(robot)
    shape = shape_of(robot, links)
    yield "frame", frame_kernel(shape, 1)
    yield "frame, published", frame_kernel(shape, 1, published=True)
    if shape.contacts:
        yield "contact distance", distance_kernel(shape, 1)
    if robot.free_base:
        yield "frozen pose", frozen_pose_kernel(shape, 1)
        yield "frozen pose, constraints", frozen_pose_kernel(shape, 1, constraint=True)
        sizes = open_model(packaged_model(robot, "warp"), robot, "cpu", 1)[0].fused.sizes
        yield "encode", encode_kernel(sizes)
        yield "advance", advance_kernel(sizes)


def resources(kernel: wp.Kernel, arch: int, ptxas: str) -> dict[str, int]:
    """Of one thread."""
    with tempfile.TemporaryDirectory() as folder:
        wp.compile_aot_module(kernel.module, device=None, arch=arch, module_dir=folder, use_ptx=True)
        [source] = Path(folder).rglob("*.ptx")
        clean = Path(folder) / "kernel.ptx"
        clean.write_bytes(source.read_bytes().rstrip(b"\0"))
        command = [ptxas, "-v", f"-arch=sm_{arch}", str(clean), "-o", str(Path(folder) / "kernel.cubin")]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    # A module has one kernel; the largest figures are its own.
    found = {
        "registers": re.findall(r"Used (\d+) registers", told),
        "stack": re.findall(r"(\d+) bytes stack frame", told),
        "spilled": re.findall(r"(\d+) bytes spill stores", told),
    }
    figures = {name: max(map(int, values), default=0) for name, values in found.items()}
    granted = -(-figures["registers"] // 8) * 8  # registers are given out by eights
    figures["threads"] = min(THREADS[arch], REGISTERS // (granted * 32) * 32)
    return figures


def find_ptxas() -> str:
    """In the package nvidia-cuda-nvcc, or wherever the shell finds it."""
    package = find_spec("nvidia")
    for folder in (package.submodule_search_locations or []) if package else []:
        for path in Path(folder).rglob("bin/ptxas"):
            return str(path)
    found = shutil.which("ptxas")
    if found is None:
        raise FileNotFoundError("no ptxas: pip install nvidia-cuda-nvcc")
    return found


@dataclass
class Args:
    """Registers, stack and spills of the kernels on CUDA."""

    out: Path = RESULT
    """Where to write the json."""


def main(args: Args) -> None:
    """Print and write a row per robot, kernel and architecture."""
    init_warp()
    ptxas, rows = find_ptxas(), []
    for name in [spec.robot({}).name for spec in PACKAGED.values() if "warp" in backends_for(spec.robot({}))]:
        for what, kernel in kernels_of(RobotModel.named(name)):
            for arch in ARCHITECTURES:
                rows.append({"robot": name, "kernel": what, "arch": f"sm_{arch}", **resources(kernel, arch, ptxas)})
                print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    save(args.out, {"rows": rows})


if __name__ == "__main__":
    main(tyro.cli(Args))
