"""Surrogate reality: apart from the methods, and another physics than theirs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from nerd_gym.collision import CollisionModel
from nerd_gym.collision.training.evaluate import errors_of
from tests.support.grid import ROOT

SCRIPT = ROOT / "benchmarks" / "surrogate_reality.py"


def measured(path, *words):
    subprocess.run([sys.executable, str(SCRIPT), *words, "--out", str(path)], check=True, cwd=ROOT)
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_the_package_does_not_know_it():
    for path in (ROOT / "nerd_gym").rglob("*.py"):
        assert "surrogate_reality" not in path.read_text(), path


@pytest.mark.parametrize("shape", ["semicylinder", "triangle"])
def test_only_samples_leave_it(shape, tmp_path):
    rows = measured(tmp_path / "a.npz", "B1", "--shape", shape, "--samples", "12", "--slide")
    final = {"final_n", "final_t", "final_theta"}
    assert rows.keys() == {"speed", "point", "direction", "vn", "vt", "omega"} | final
    assert all(values.shape == (12,) and np.isfinite(values).all() for values in rows.values())
    assert (rows["vn"] > 0).all() and (rows["final_n"] > 0).all()
    again = measured(tmp_path / "b.npz", "B1", "--shape", shape, "--samples", "12", "--slide")
    assert all(np.array_equal(rows[name], again[name]) for name in rows)


def test_an_unknown_setting_is_named(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "Z9"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode and "unknown setting 'Z9'; valid: A1, A2" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["B2", "N1"])
def test_ten_samples_adapt_a_packaged_model(setting, tmp_path):
    rows = measured(tmp_path / "a.npz", setting, "--samples", "110", "--seed", "7")
    train, held = ({name: values[part] for name, values in rows.items()} for part in (slice(10), slice(10, None)))
    model = CollisionModel.packaged("semicylinder")
    before, after = (errors_of(m, held)[0] for m in (model, model.finetune(train, train)))
    assert after.mean() < 0.8 * before.mean() and (after <= 0.1).float().mean() >= 0.9
