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


def test_hybrid_is_evaluated_beside_its_teacher(tmp_path):
    main(["evaluate", "cartpole", "--backend", "hybrid", "--rollouts", "8", "--no-video", "--out", str(tmp_path)])
    facts = json.loads((tmp_path / "evaluation.json").read_text())
    assert "--backend hybrid" in facts["command"] and facts["models"]["hybrid"]["teacher"] == "warp"
    for students in facts["results"].values():
        at = {name: students[name]["hinges"]["10"]["mean"] for name in ("hybrid", "half the substeps")}
        assert at["hybrid"] < 0.1 * at["half the substeps"], at


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--backend", "warp"], "backend 'warp' has no learned models; valid: neural, hybrid"),
        (["--backend", "hybrid", "--reference"], "'hybrid' has no models of the published simulator; valid: neural"),
    ],
)
def test_backends_without_such_models_are_refused(words, told, tmp_path, capsys):
    assert main(["evaluate", "cartpole", *words, "--out", str(tmp_path / "nothing")]) != 0
    assert told in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
