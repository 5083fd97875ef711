"""Kernels are compiled once, whoever asks first."""

import os
import subprocess
import sys

MOVE = """
import sys, torch
from nerd_gym import RobotModel, make_backend
backend = make_backend("warp", RobotModel.named("pendulum_contact"), 3)
for _ in range(3):
    backend.step(torch.ones(3, 2))
print(backend.q.numpy().tobytes().hex(), backend.contacts.distance.shape[1])
"""


def start(folder) -> subprocess.Popen:
    environment = os.environ | {"WARP_CACHE_PATH": str(folder)}
    command = [sys.executable, "-c", MOVE]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_with_an_empty_cache_do_not_spoil_it(tmp_path):
    """Both compile at once and move alike; a third finds the kernels whole."""
    both = [start(tmp_path) for _ in range(2)]
    ends = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    third = start(tmp_path)
    out, told = third.communicate(timeout=300)
    assert third.returncode == 0 and out == ends[0][0] == ends[1][0]
    compiled = sorted(path.name for path in tmp_path.rglob("*.o"))
    assert len(compiled) == 2, compiled  # frame and distances, each once
    assert "compiling" not in told
