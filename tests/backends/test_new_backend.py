"""A new backend is one file and one row: the contract suite, comparisons, timings and the command line take it."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from nerd_gym.backends import BACKENDS
from nerd_gym.cli import main
from nerd_gym.compare import compare
from nerd_gym.envs.throughput import bench
from tests.support.grid import ROOT, robot
from tests.support.states import backend_at
from tests.support.toy_backend import ENTRY, NAME, ToyBackend

SUITE = ("tests/backends/test_contract.py", "tests/contract")
CARTPOLE = "NeRD/Cartpole-v0"


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(BACKENDS, NAME, ENTRY)


def run_pytest(*words: str) -> subprocess.CompletedProcess:
    """In a process of its own, with the row in the table before tests are collected."""
    plugins = ["-p", "tests.support.toy_backend", "-p", "no:cacheprovider", "-n", "0"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *words, *SUITE]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_contract_suite_runs_over_a_new_row_and_passes():
    collected = run_pytest("--collect-only").stdout.splitlines()
    count = {name: sum(re.search(rf"[\[-]{name}[-\]]", line) is not None for line in collected) for name in BACKENDS}
    toys = sum(re.search(rf"[\[-]{NAME}[-\]]", line) is not None for line in collected)
    assert toys >= count["warp"] > 50, count
    run = run_pytest("-k", NAME, "--durations=0")
    assert run.returncode == 0, run.stdout[-3000:]
    summary = run.stdout.strip().splitlines()[-1]
    assert f"{toys} passed" in summary and "failed" not in summary and "skipped" not in summary, summary


def test_it_is_compared_timed_and_listed(toy, capsys):
    result = compare(CARTPOLE, "zero", ["warp", NAME], episodes=8)
    assert NAME in result.verdicts and result.verdicts[NAME].word != "agree"  # a pole without gravity
    (row,) = bench([CARTPOLE], [NAME], (4,), 1, 0.02)
    assert row["engine"] == f"nerd_gym {NAME}" and row["env_steps_per_s"] > 0
    assert main(["list"]) == 0
    assert f"{NAME} " in (text := capsys.readouterr().out) and ENTRY.summary in text


def test_a_damped_joint_and_a_falling_base_move_as_formulas_say(toy):
    """Under a constant force the rate tends to force / damping; a base falls g t and turns by omega t."""
    model = robot("ant")
    q = torch.as_tensor(model.mj_model.qpos0, dtype=torch.float32).repeat(2, 1)
    qd = torch.zeros(2, model.nv)
    qd[1, 5] = 2.0
    backend = backend_at(NAME, model, q, qd)
    frames = 60
    for _ in range(frames):
        backend.step(torch.full((2, model.nj), 10.0))
    seconds = frames * model.frame_dt
    rate = 10.0 / backend.damping * (1 - torch.exp(torch.tensor(-backend.damping * seconds)))
    torch.testing.assert_close(backend.qd[:, 6:], rate.expand(2, model.nj), rtol=1e-2, atol=0)
    torch.testing.assert_close(backend.qd[:, 2], torch.full((2,), -9.81 * seconds), rtol=1e-4, atol=0)
    half = torch.tensor(seconds)  # of the angle 2 t
    expected = torch.stack([torch.cos(half), torch.tensor(0.0), torch.tensor(0.0), torch.sin(half)])
    torch.testing.assert_close(backend.q[1, 3:7], expected, rtol=0, atol=1e-4)


def test_nested_state_of_a_backend_goes_along_with_its_rows():
    class Windy(ToyBackend):
        def __init__(self, *args):
            super().__init__(*args)
            self.wind = {"force": torch.arange(self.num_envs), "gusts": np.eye(self.num_envs)}

        def _extra_state(self):
            return {"wind": dict(self.wind)}

    backend = Windy(robot("ant"), 4)
    chosen = backend.select_rows(backend.snapshot(), torch.tensor([3, 3, 1]))["extra"]["wind"]
    assert chosen["force"].tolist() == [3, 3, 1] and (chosen["gusts"] == np.eye(4)[[3, 3, 1]]).all()
