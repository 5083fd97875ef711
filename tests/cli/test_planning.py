"""`nerd-gym plan`."""

import json

from nerd_gym.cli import main


def test_plan_writes_what_it_found_and_checks_it_elsewhere(tmp_path, capsys):
    out = tmp_path / "plan"
    words = ["plan", "NeRD/Franka-v0", "--backend", "warp", "--method", "cem", "--horizon", "6", "--iterations", "3"]
    words += ["--candidates", "16", "--option", "control=torque", "--check", "mujoco", "neural", "--video"]
    assert main([*words, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "best return" in printed and "warp (planned)" in printed and "mujoco" in printed
    told = json.loads((out / "plan.json").read_text())
    assert told["options"] == {"control": "torque"} and told["config"]["method"] == "cem"
    assert [e["backend"] for e in told["check"]] == ["mujoco", "neural"]
    assert all(e["steps"] == 6 for e in told["check"]) and len(told["actions"]) == 6
    assert sorted(path.name for path in out.iterdir()) == ["plan.json", "plan.mp4", "plan.png"]


def test_a_missing_package_is_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "cmaes", None)
    words = ["plan", "NeRD/Cartpole-v0", "--candidates", "4", "--iterations", "1", "--out", str(tmp_path / "made")]
    assert main(words) == 2
    assert "this needs cmaes, not installed: pip install 'nerd-gym[plan]'" in capsys.readouterr().err
    assert main([*words, "--method", "cem"]) == 0
