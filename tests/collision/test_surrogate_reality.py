"""Surrogate reality: apart from the methods, and another physics than theirs."""

from __future__ import annotations

import importlib
import re
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
        assert not {"surrogate_reality", "surrogate_strikes"} & set(re.findall(r"\w+", path.read_text())), path


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


@pytest.fixture
def surrogate(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("surrogate_strikes").SurrogateReality


@pytest.mark.parametrize(("setting", "shape"), [("A2", "semicylinder"), ("H2", "triangle")])
def test_strikes_end_in_poses_that_do_not_depend_on_where_the_block_was(setting, shape, surrogate):
    action = np.array([[0.1, 0.3, 0.2], [-0.2, -0.5, -0.4], [0.05, 0.8, 0.0]])
    pose, moved = np.zeros((3, 3)), np.array([[0.4, -0.2, 1.1]] * 3)
    ends = []
    for start in (pose, moved):
        with surrogate(setting, shape) as reality:
            ends.append(reality.strike(start, action))
    c, s = np.cos(1.1), np.sin(1.1)
    expected = ends[0][:, :2] @ np.array([[c, s], [-s, c]]) + moved[:, :2]
    np.testing.assert_allclose(ends[1][:, :2], expected, atol=1e-9)
    np.testing.assert_allclose(ends[1][:, 2], ends[0][:, 2] + 1.1, atol=1e-9)
    travelled = np.linalg.norm(ends[0][:, :2], axis=1)
    assert (travelled > 0.001).all() and travelled[2] > 2 * travelled[1] and (travelled < 1).all()
    assert (ends[0][:, 0] < 0).all()  # away from the struck side, which is at +x


def test_strikes_on_other_faces_are_those_of_a_turned_block(surrogate):
    turn = 2 * np.pi / 4
    with surrogate("B1", "square") as first, surrogate("B1", "square") as second:
        end = first.strike(np.array([[0.0, 0.0, 0.0]]), np.array([[0.5 + 0.1, 0.0, 0.3]]))  # the face towards +y
        same = second.strike(np.array([[0.0, 0.0, turn]]), np.array([[0.1, 0.0, 0.3]]))
    np.testing.assert_allclose(end[0, :2], same[0, :2], atol=1e-4)
    assert end[0, 1] < -0.01 and end[0, 2] + turn == pytest.approx(same[0, 2], abs=0.01)


def test_wrong_strikes_are_named(surrogate):
    with pytest.raises(RuntimeError, match="N1 is a control, which has no slide"):
        surrogate("N1")
    with pytest.raises(ValueError, match="unknown shape 'ball'"):
        surrogate("A1", "ball")
    with surrogate("A1") as reality:
        with pytest.raises(ValueError, match=r"pose has shape \(2, 3\) and action \(1, 3\); both must be \[N, 3\]"):
            reality.strike(np.zeros((2, 3)), np.zeros((1, 3)))
        with pytest.raises(ValueError, match="action has a number that is not finite in row 1"):
            reality.strike(np.zeros((2, 3)), np.array([[0, 0, 0], [0, np.nan, 0]]))
        assert reality.strike(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["B2", "N1"])
def test_ten_samples_adapt_a_packaged_model(setting, tmp_path):
    rows = measured(tmp_path / "a.npz", setting, "--samples", "110", "--seed", "7")
    train, held = ({name: values[part] for name, values in rows.items()} for part in (slice(10), slice(10, None)))
    model = CollisionModel.packaged("semicylinder")
    before, after = (errors_of(m, held)[0] for m in (model, model.finetune(train, train)))
    assert after.mean() < 0.8 * before.mean() and (after <= 0.1).float().mean() >= 0.9
