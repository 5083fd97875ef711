"""`nerd-gym list`, `play` and `bench`."""

import json

import pytest

from nerd_gym.backends import BACKENDS, backends_for
from nerd_gym.cli import main
from nerd_gym.registration import ENVS
from tests.support.grid import robot


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(env_id in text for env_id in ENVS)
    assert all(name in text for name in BACKENDS) and "run|spin|spin_track" in text


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


def test_bench_reports_a_row_per_combination(tmp_path):
    out = tmp_path / "bench.json"
    words = ["bench", "NeRD/Cartpole-v0", "--num-envs", "1", "4", "--repeats", "1", "--seconds", "0.02"]
    assert main([*words, "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 * len(backends_for(robot("cartpole"))) and all(row["env_steps_per_s"] > 0 for row in rows)
