"""Launching kernels over the rows of a batch: on all threads of a CPU, or on the stream of an accelerator."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import cast

import numpy as np
import torch
import warp as wp
from torch import Tensor

from nerd_gym.utils.threads import cpu_threads

SHARD = 32  # environments in a launch at least, or handing it to a thread costs more than it saves
SHARDS_PER_THREAD = 8  # small launches taken from one queue keep all cores busy when one of them is slowed
WIDEST = 8  # rows that a thread takes at most, the floats in a register of AVX2; slices begin at multiples of it


def lanes_on(device: torch.device) -> int:
    """Robots that a thread moves: as many as the registers of a CPU hold; one where threads are what is many."""
    return WIDEST if device.type == "cpu" else 1


class Launcher:
    """Runs a frame kernel, of which a thread takes `width` rows, over a batch in place.

    The arrays stay where they are for the launcher's life.
    """

    def __init__(
        self,
        kernel: wp.Kernel,
        width: int,
        constants: list,
        nj: int,
        q: Tensor,
        qd: Tensor,
        ground_point: Tensor,
        ground_normal: Tensor,
        threads: int | None = None,
    ):
        self._force = torch.zeros(len(q), nj, device=q.device)
        self.slices = Slices(len(q), q.device, threads)
        arrays = [
            wp.from_torch(q),
            wp.from_torch(qd),
            wp.from_torch(self._force),
            wp.from_torch(ground_point, dtype=wp.vec3),
            wp.from_torch(ground_normal, dtype=wp.vec3),
        ]
        self._launches = self.slices.record(kernel, [*arrays, *constants], width)

    def __call__(self, joint_force: Tensor) -> None:
        """One frame under joint_force [N, nj]."""
        self._force.copy_(joint_force)
        self.slices.run(self._launches)

    def close(self) -> None:
        """Give back the threads."""
        self.slices.close()


class Slices:
    """Runs kernels over the rows of a batch, on all threads of a CPU or on torch's CUDA stream.

    One recorded launch per slice of the rows; a kernel's last argument is the first row of the slice.
    """

    def __init__(self, rows: int, device: torch.device, threads: int | None = None):
        self._device = device
        threads = cpu_threads(threads) if device.type == "cpu" else 1
        shards = 1 if threads == 1 else max(1, min(SHARDS_PER_THREAD * threads, rows // SHARD))
        inner = np.linspace(0, rows, shards + 1)[1:-1].astype(int) // WIDEST * WIDEST
        self._edges = [0, *inner.tolist(), rows]
        self._helpers = min(threads, shards) - 1
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(self._helpers, "nerd-gym-warp") if self._helpers else None

    def record(self, kernel: wp.Kernel, inputs: list, width: int = 1) -> list[wp.Launch]:
        """Prepare a kernel, of which a thread takes `width` rows.

        Its arrays must stay where they are as long as the launches are used.
        """
        device = wp.device_from_torch(self._device)
        load_with_notice(kernel, device)
        launches = [
            wp.launch(kernel, dim=-(-(end - start) // width), inputs=[*inputs, start], device=device, record_cmd=True)
            for start, end in pairwise(self._edges)
        ]
        return cast("list[wp.Launch]", launches)  # nothing but these is returned with record_cmd

    def run(self, launches: list[wp.Launch]) -> None:
        """All slices of a kernel."""
        if self._device.type == "cuda":
            launches[0].launch(stream=wp.stream_from_torch(torch.cuda.current_stream(self._device)))
            return
        if self._process != os.getpid():  # a fork, into which threads do not come along
            self._start()
        queue = iter(launches)

        def work() -> None:
            for launch in queue:  # taking the next from a list's iterator is atomic
                launch.launch()

        others = [self._pool.submit(work) for _ in range(self._helpers)] if self._pool else []
        work()
        for other in others:
            other.result()

    def close(self) -> None:
        """Give back the threads."""
        if self._pool and self._process == os.getpid():
            self._pool.shutdown()


def filled(struct, values: dict[str, tuple], device: wp.Device):
    """A Warp struct with arrays made of (values, dtype)."""
    for name, (value, dtype) in values.items():
        array = np.ascontiguousarray(value, np.int32 if dtype is wp.int32 else np.float32)
        if not array.size and dtype in (wp.vec3, wp.mat33):
            array = array.reshape(0, *dtype._shape_)
        setattr(struct, name, wp.array(array, dtype=dtype, device=device))
    return struct


def load_with_notice(kernel: wp.Kernel, device: wp.Device) -> None:
    """Load a kernel; if it must be compiled, say so and show the time that passes."""
    done = threading.Event()

    def notice() -> None:
        start = time.monotonic()
        if done.wait(1.5):
            return
        line = f"nerd_gym: compiling the Warp kernel {kernel.key} (once; kept in {wp.config.kernel_cache_dir})"
        live = sys.stderr.isatty()
        print(line, file=sys.stderr, end="" if live else "\n", flush=True)
        while not done.wait(0.5):
            if live:
                print(f"\r{line} {time.monotonic() - start:4.0f} s", file=sys.stderr, end="", flush=True)
        if live:
            print(file=sys.stderr)

    watcher = threading.Thread(target=notice, daemon=True)
    watcher.start()
    try:
        kernel.module.load(device, block_dim=256 if device.is_cuda else 1)
    finally:
        done.set()
        watcher.join()
