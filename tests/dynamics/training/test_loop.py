"""Training: one seed one result, killed runs go on, processes train together, wrong files are named."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from nerd_gym.cli import main
from nerd_gym.compare.demo import POLICIES
from nerd_gym.data.dataset import DatasetPlan, generate
from nerd_gym.dynamics.models.checkpoint import load_model
from nerd_gym.dynamics.training.loop import Recipe, make_optimiser
from nerd_gym.utils.files import file_hash
from tests.support.grid import ROOT, robot
from tests.support.states import make_vec
from tests.support.training import quadratic

SMALL = ["--model", "mlp", "--size", "width=16", "depth=2", "--batch", "64"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "cartpole.h5"
    generate(DatasetPlan(robot("cartpole"), "warp", 40_000, frames=40), path)
    return path


def command(data: Path, out: Path, *more: str) -> list[str]:
    return ["train", "cartpole", "--data", str(data), "--out", str(out), *SMALL, *more]


def test_a_killed_training_goes_on_to_the_same_weights(data, tmp_path):
    steps = ["--steps", "200"]
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut" / "cut.safetensors"
    assert main(command(data, whole, *steps)) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "nerd_gym.cli", *command(data, cut, *steps)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    checkpoint = cut.with_suffix(".checkpoint")
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert checkpoint.exists() and not cut.exists()
    reached = torch.load(checkpoint, weights_only=True)["step"]
    assert 0 < reached < 200
    assert main(command(data, cut, *steps)) == 0
    (a, facts_a), (b, facts_b) = (load_model(path, robot("cartpole")) for path in (whole, cut))
    assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
    assert facts_a == facts_b and not checkpoint.exists()
    assert list((tmp_path / "runs").rglob("events.out.tfevents.*"))
    assert facts_a["curve"][-1]["rollout"] < 0.8 * facts_a["curve"][0]["rollout"]
    env = make_vec("NeRD/Cartpole-v0", 4, backend="neural", model=whole)
    env.reset(seed=0)
    info = env.step(torch.zeros(4, 1))[-1]
    assert ((info["model_trust"] >= 0) & (info["model_trust"] <= 1)).all()


def test_a_model_is_refined_where_a_policy_goes(tmp_path, capsys):
    """Recorded on the teacher, trained further from the old weights; the same command goes on or has nothing to do."""
    policy = POLICIES / "ant" / "run-warp-seed0.safetensors"
    data, first, out = tmp_path / "ant.h5", tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    generate(DatasetPlan(robot("ant"), "warp", 5000, frames=10), data)
    plain = ["train", "ant", "--data", str(data), "--batch", "64", "--steps", "20", "--transitions", "1000"]
    assert main([*plain, "--size", "width=16", "depth=2", "--out", str(first)]) == 0
    words = [*plain, "--refine", str(policy), "--start", str(first), "--new-transitions", "5k"]
    assert main([*words, "--out", str(first)]) == 2
    assert "is the model to start from" in capsys.readouterr().err
    assert main([*words, "--newest", "1.5", "--out", str(out)]) == 2 and not out.exists()
    assert "newest is 1.5; it must be from 0 to 1" in capsys.readouterr().err
    assert main([*words, "--out", str(out)]) == 0
    (old, was), (new, facts) = (load_model(path, robot("ant")) for path in (first, out))
    assert facts["network"] == was["network"] and facts["start"] == {
        "hash": file_hash(first),
        "command": was["command"],
    }
    assert torch.equal(old["normaliser.input_mean"], new["normaliser.input_mean"])
    assert (new["normaliser.output_limit"] >= old["normaliser.output_limit"]).all()
    assert not torch.equal(old["network.0.weight"], new["network.0.weight"])
    assert policy.name in facts["data_command"] and set(facts["r2"]) == {"linear", "angular", "joints"}
    [recorded] = tmp_path.glob("second-*.h5")
    with h5py.File(recorded) as file:
        assert file.attrs["model"] == file_hash(first) and np.isfinite(file["q"][:]).all()
    written = recorded.stat().st_mtime_ns
    assert main([*words, "--out", str(out)]) == 0 and recorded.stat().st_mtime_ns == written


def test_wrong_files_are_named_and_kept(data, tmp_path, capsys):
    out = tmp_path / "model.safetensors"
    checkpoint = out.with_suffix(".checkpoint")
    checkpoint.write_bytes(b"not a checkpoint")
    assert main(command(data, out, "--steps", "20")) == 2
    assert "is not a checkpoint" in capsys.readouterr().err and checkpoint.read_bytes() == b"not a checkpoint"
    checkpoint.unlink()
    broken = tmp_path / "broken.h5"
    broken.write_bytes(data.read_bytes()[:5000])
    assert main(command(broken, out)) == 2
    assert "is not a dataset" in capsys.readouterr().err
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(b"\x08\x00\x00")
    with pytest.raises(ValueError, match="damaged"):
        make_vec("NeRD/Cartpole-v0", 1, backend="neural", model=torn)
    for args, message in (
        (["--steps", "0"], "steps is 0"),
        (["--optimiser", "sgd"], "unknown optimiser 'sgd'; valid: soap, adamw"),
        (["--size", "heads=3"], "mlp has no size 'heads'; valid: width, depth"),
    ):
        assert main(command(data, out, *args)) == 2
        assert message in capsys.readouterr().err
    assert main(["train", "cartpole", "--data", str(data), "--model", "magic"]) == 2
    assert "unknown kind of model 'magic'; valid: structured, residual, mlp, transformer" in capsys.readouterr().err
    assert main(["train", "franka", "--data", str(data)]) == 2
    assert "holds motion of robot 'cartpole'" in capsys.readouterr().err
    assert not out.exists() and not checkpoint.exists()


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    loop = quadratic(tmp_path / "a.checkpoint", Recipe(steps=10, batch=4, warmup=1))
    loop.step = 3
    loop.save_checkpoint()
    with pytest.raises(ValueError, match=r"recipe = .*finish that one"):
        quadratic(tmp_path / "a.checkpoint", Recipe(steps=11, batch=4, warmup=1)).run()


@pytest.mark.parametrize("optimiser", ["soap", "adamw"])
def test_optimisers_polish_and_average(optimiser, tmp_path):
    """Both learn; the polish finishes what is quadratic."""
    recipe = Recipe(steps=150, batch=64, optimiser=optimiser, lr=3e-2, warmup=10, ema=0.9)
    curve = quadratic(tmp_path / "c", recipe).run()
    assert curve[-1]["error"] < 0.1 * curve[0]["error"]
    polished = quadratic(tmp_path / "d", Recipe(**vars(recipe) | {"polish": 80, "polish_batch": 512})).run()
    assert polished[-1]["error"] < 1e-3 * curve[-1]["error"]
    assert type(make_optimiser(nn.Linear(2, 2), recipe)).__name__.lower() == optimiser


TOGETHER = """
import sys, torch
from pathlib import Path
from nerd_gym.utils.files import file_hash
from nerd_gym.dynamics.training.loop import Recipe, processes
from tests.support.training import quadratic
with processes() as rank:
    loop = quadratic(Path(sys.argv[1]) / "checkpoint", Recipe(steps=20, batch=8, optimiser="adamw", warmup=1))
    loop.run()
    torch.save(loop.module.state_dict(), Path(sys.argv[1]) / f"rank{rank}.pt")
"""


def test_two_processes_train_as_one_with_both_batches(tmp_path):
    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([*run, str(tmp_path)], check=True, env=env, capture_output=True, timeout=300)
    first, second = (torch.load(tmp_path / f"rank{k}.pt", weights_only=True) for k in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    alone = quadratic(tmp_path / "alone", Recipe(steps=20, batch=8, optimiser="adamw", warmup=1))
    draw, seeds = alone.sample, alone.generator
    alone.generator = lambda rank: alone.step  # the draws of both ranks, in one batch of twice the size

    def both(step, size):
        return torch.cat([draw(seeds(rank), size) for rank in range(2)])

    alone.sample = both
    alone.run()
    for key, value in alone.module.state_dict().items():
        torch.testing.assert_close(value, first[key], atol=1e-6, rtol=1e-5)
