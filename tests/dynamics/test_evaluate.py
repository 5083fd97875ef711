"""An evaluation records the command that makes it again."""

import json
import shlex

import pytest

from nerd_gym.cli import main
from nerd_gym.dynamics.models.checkpoint import PRETRAINED

OWN = str(PRETRAINED / "pendulum_contact-warp.safetensors")


@pytest.mark.parametrize("words", [[], ["--model", OWN, "--teacher", "mujoco", "--seed", "7"]])
def test_the_recorded_command_reproduces_the_results(words, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    words = ["evaluate", "pendulum_contact", "--scenario", "passive, ground 3", "--rollouts", "4", *words]
    assert main([*words, "--no-video", "--out", str(first)]) == 0
    told = json.loads((first / "evaluation.json").read_text())
    program, *command = shlex.split(told["command"])
    assert program == "nerd-gym"
    assert main([*command, "--no-video", "--out", str(second)]) == 0
    assert json.loads((second / "evaluation.json").read_text()) == told
