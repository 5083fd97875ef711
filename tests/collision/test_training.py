"""Datasets that resume, training on them, samples from files, evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from nerd_gym import cli
from nerd_gym.collision import CollisionModel
from nerd_gym.collision.training import dataset
from nerd_gym.collision.training.dataset import CollisionPlan, generate, load, make_block
from nerd_gym.collision.training.evaluate import unseen
from nerd_gym.collision.training.samples import read_samples


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(dataset, "BLOCK", 64)


def arrays(path):
    with h5py.File(path) as file:
        return {name: np.asarray(file[name]) for name in ("pre", "post")}


def test_an_interrupted_run_makes_the_same_file(tmp_path, monkeypatch):
    plan = CollisionPlan("square", 200, seed=3)
    generate(plan, tmp_path / "whole.h5", threads=1)
    calls = []

    def stop_at_the_third(*words):
        calls.append(words)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return make_block(*words)

    monkeypatch.setattr(dataset, "make_block", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        generate(plan, tmp_path / "cut.h5", threads=1)
    assert not (tmp_path / "cut.h5").exists()
    monkeypatch.setattr(dataset, "make_block", make_block)
    assert generate(plan, tmp_path / "cut.h5", threads=2) == 200 - 2 * 64
    for name, values in arrays(tmp_path / "whole.h5").items():
        np.testing.assert_array_equal(arrays(tmp_path / "cut.h5")[name], values)
        assert len(values) == 200
    assert generate(plan, tmp_path / "cut.h5") == 0 and not list(tmp_path.glob("*.parts"))


def test_a_file_of_another_plan_is_refused(tmp_path):
    path = tmp_path / "made.h5"
    generate(CollisionPlan("square", 70), path, threads=1)
    with pytest.raises(ValueError, match=r"made with seed = 0, not 1"):
        generate(CollisionPlan("square", 70, seed=1), path)
    with pytest.raises(ValueError, match="holds collisions of shape 'square' in one simulator; asked for 'triangle'"):
        load(path, "triangle", False)
    with pytest.raises(ValueError, match="perturbed simulators"):
        load(path, "square", True)


def test_unseen_collisions_are_in_no_dataset(tmp_path):
    generate(CollisionPlan("square", 70, seed=500), tmp_path / "made.h5", threads=1)
    speeds = arrays(tmp_path / "made.h5")["pre"][:, 0]
    assert not np.isin(unseen("square", 70, 500, threads=1)["speed"].astype(np.float32), speeds).any()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_from_generation_to_evaluation(folder, capsys):
    """Every command, on little data; a few steps learn enough to beat a tenth of the strikes."""
    assert cli.main(["collision", "generate", "square", "--collisions", "600", "--threads", "1"]) == 0
    assert cli.main(["collision", "generate", "square", "--collisions", "300", "--wide", "--threads", "1"]) == 0
    train = "collision train square --wide-data out/collision/square-wide.h5 --steps 60 --batch 128 --width 32"
    assert cli.main(train.split()) == 0
    rows = unseen("square", 12, 1, threads=1)
    np.savez("strikes.npz", **{name: rows[name] for name in ("speed", "point", "direction", "vn", "vt", "omega")})
    model = "--model out/collision/square.safetensors"
    assert cli.main(f"collision identify square --samples strikes.npz {model}".split()) == 0
    assert "not determined" in capsys.readouterr().out
    assert cli.main(f"collision finetune square --samples strikes.npz {model} --out adapted.safetensors".split()) == 0
    assert cli.main(f"collision evaluate square {model} adapted.safetensors --collisions 100".split()) == 0
    found = json.loads(Path("out/collision/square-evaluation/evaluation.json").read_text())
    assert found["square"]["samples"] == 100 and found["adapted"]["adapted"]["recipe"] == "mix"
    assert Path("out/collision/square-evaluation/evaluation.png").stat().st_size > 10_000
    assert json.loads(Path("adapted.json").read_text())["adapted"]["samples"] == 12
    facts = CollisionModel.load("out/collision/square.safetensors").facts
    assert facts["trained"]["base"]["data"]["collisions"] == 600 and "wide" in facts["trained"]
    assert not list(Path("out/collision").glob("*.ckpt"))


def test_csv_and_npz_hold_the_same(folder):
    columns = {"speed": np.array([0.1, 0.2]), "vn": np.array([0.3, 0.4])}
    np.savez("samples.npz", **columns)
    Path("samples.csv").write_text("speed, vn\n0.1,0.3\n0.2,0.4\n")
    for path in ("samples.npz", "samples.csv"):
        found = read_samples(Path(path))
        assert all(np.array_equal(found[name], values) for name, values in columns.items())


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.csv", "speed,vn\n1,2\n3\n", "1 numbers in line 3; its first line has 2 names"),
        ("a.csv", "speed,vn\n1,fast\n", "column 'vn' that is not numbers"),
        ("a.csv", "speed,speed\n1,2\n", "a column twice"),
        ("a.csv", "speed,vn\n", "1 lines"),
        ("a.npz", "no archive", "not an NPZ of plain arrays"),
        ("a.txt", "speed", "read from .csv, .npz, .h5"),
        ("a.h5", "no hdf5", "a.h5"),
    ],
)
def test_bad_files_of_samples_are_named(name, text, told, folder):
    Path(name).write_text(text)
    with pytest.raises(ValueError, match=told):
        read_samples(Path(name))


def test_pickled_arrays_are_not_read(folder):
    np.savez("a.npz", speed=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="not an NPZ of plain arrays"):
        read_samples(Path("a.npz"))


@pytest.mark.slow
def test_the_published_recipe_learns_too(folder):
    assert cli.main(["collision", "generate", "square", "--collisions", "20k"]) == 0
    assert cli.main(["collision", "train", "square", "--recipe", "plain"]) == 0
    trained = CollisionModel.load("out/collision/square.safetensors").facts["trained"]["base"]
    assert trained["within"]["0.1"] > 0.9 and torch.isfinite(torch.tensor(trained["median_error"]))
