"""Import, command line, drift."""

import json
import subprocess
import sys
from statistics import median

import pytest

from docs.make_pictures import drift
from nerd_gym.cli import main
from nerd_gym.registration import ENVS, PACKAGED
from nerd_gym.utils.optional import require

HEAVY = (
    "torch",
    "warp",
    "newton",
    "mujoco",
    "rl_games",
    "stable_baselines3",
    "rsl_rl",
    "skrl",
    "torchrl",
    "matplotlib",
)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light():
    loaded = run(f"import sys, nerd_gym; print([m for m in {HEAVY} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_import_takes_little_more_than_gymnasiums():
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    times = {"gymnasium": [], "nerd_gym": []}
    for _ in range(7):
        for name in times:
            times[name].append(float(run(code.format(name))))
    assert median(times["nerd_gym"]) <= 1.3 * median(times["gymnasium"]), times


def test_lazy_names_and_wrong_ones():
    import nerd_gym

    assert nerd_gym.RobotModel.named("ant").nj == 8
    with pytest.raises(AttributeError, match=r"no attribute 'Robot'.*RobotModel"):
        nerd_gym.Robot  # noqa: B018


def test_missing_optional_package_names_the_extra():
    with pytest.raises(ImportError, match=r"needs no_such_package.*nerd-gym\[video\]"):
        require("no_such_package", extra="video")


def test_horizons_of_table_and_tasks_agree():
    assert all(spec.horizon == spec.task_class().horizon for spec in ENVS.values())


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(env_id in text for env_id in ENVS)
    assert "warp" in text and "mujoco" in text and "run|spin|spin_track" in text


def test_play_films_and_reports(tmp_path, capsys):
    film = tmp_path / "ant.mp4"
    args = ["play", "NeRD/Ant-v0", "--backend", "mujoco", "--agent", "zero", "--steps", "5", "--video", str(film)]
    assert main([*args, "--option", "task=spin"]) == 0
    assert film.stat().st_size > 1000 and "return" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["NeRD/Dog-v0"], "unknown environment 'NeRD/Dog-v0'; valid: NeRD/Cartpole-v0"),
        (["NeRD/Ant-v0", "--backend", "bullet"], "unknown backend 'bullet'"),
        (["NeRD/Ant-v0", "--agent", "genius"], "unknown agent 'genius'; valid: zero, random"),
        (["NeRD/Ant-v0", "--option", "task"], "option 'task' is not KEY=VALUE"),
        (["NeRD/Ant-v0", "--video", "film.avi"], "valid endings: .mp4, .gif"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(args, message, capsys):
    assert main(["play", *args, "--steps", "1"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("nerd-gym: ") and message in error


def test_drift_writes_figures_and_plot(tmp_path):
    drift(tmp_path / "drift.json", tmp_path / "drift.png", num_envs=8)
    figures = json.loads((tmp_path / "drift.json").read_text())["drift"]
    assert set(figures["mujoco"]) == set(figures["neural"]) == set(PACKAGED)
    for backend in ("mujoco", "neural"):
        assert figures[backend]["NeRD/Cartpole-v0"]["100"]["joints"] < 1e-2
        assert figures[backend]["NeRD/Franka-v0"]["100"]["joints"] < 1e-2
    assert figures["mujoco"]["NeRD/Ant-v0"]["10"]["position"] < 0.1
    assert (tmp_path / "drift.png").stat().st_size > 10_000


def test_bench_reports_a_row_per_combination(tmp_path):
    out = tmp_path / "bench.json"
    args = [
        "bench",
        "NeRD/Cartpole-v0",
        "--num-envs",
        "1",
        "4",
        "--repeats",
        "1",
        "--seconds",
        "0.02",
        "--out",
        str(out),
    ]
    assert main(args) == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 6 and all(row["env_steps_per_s"] > 0 for row in rows)
