"""Controllers as agents: what they play, their options, their errors."""

import sys

import pytest

from nerd_gym.cli import main
from nerd_gym.policies.agents import load_agent
from nerd_gym.wrappers.reference_observation import in_layout
from tests.support.states import make_vec


@pytest.fixture(scope="module")
def anymal():
    return make_vec("NeRD/Anymal-v0", 1, backend="mujoco")


def test_options_are_the_command(anymal):
    assert load_agent("mpc", anymal).command.tolist() == [0.5, 0.0, 0.0]
    command = load_agent("mpc-net:speed=-0.25,turn=0.125", anymal).command
    assert command.tolist() == [-0.25, 0.0, 0.125]


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("mpc:speed=3", r"speed is 3; agent 'mpc' takes -0.5 to 0.5"),
        ("mpc:side=left", r"side is 'left'; agent 'mpc' takes -0.2 to 0.2"),
        ("mpc:pace=1", r"unknown option 'pace' for agent 'mpc'; valid: speed, side, turn"),
        ("mpc-net:pace=1", r"unknown option 'pace' for agent 'mpc-net'; valid: speed, side, turn, model"),
        ("mpc:speed=0.1,turn", r"option 'turn' is not KEY=VALUE"),
        ("mpcs", r"unknown agent 'mpcs'; valid: zero, random, mpc, mpc-net, a policy"),
        ("mpc:function", r"agent 'mpc:function' cannot be imported"),
    ],
)
def test_wrong_options_are_named(anymal, agent, told):
    with pytest.raises(ValueError, match=told):
        load_agent(agent, anymal)


def test_a_missing_network_is_named(anymal):
    with pytest.raises(FileNotFoundError, match=r"no policy at gone.safetensors"):
        load_agent("mpc-net:model=gone.safetensors", anymal)


def test_other_tasks_are_refused(anymal):
    wanted = r"agent 'mpc' plays NeRD/Anymal-v0 with control='position'; this is "
    with pytest.raises(ValueError, match=wanted + "NeRD/Ant-v0$"):
        load_agent("mpc", make_vec("NeRD/Ant-v0", 1, backend="mujoco"))
    with pytest.raises(ValueError, match=wanted + "NeRD/Anymal-v0 with control='torque'"):
        load_agent("mpc", make_vec("NeRD/Anymal-v0", 1, backend="mujoco", control="torque"))
    with pytest.raises(ValueError, match="agent 'mpc' reads layout='native'; this is layout='reference'"):
        load_agent("mpc", in_layout(anymal, "reference"))


def test_the_command_line_plays_them(capsys, monkeypatch):
    play = ["play", "NeRD/Anymal-v0", "--backend", "mujoco", "--steps", "5", "--agent"]
    assert main([*play, "mpc"]) == 0 and main([*play, "mpc-net:speed=0.2"]) == 0
    monkeypatch.setitem(sys.modules, "osqp", None)
    assert main([*play, "mpc"]) != 0
    assert "pip install 'nerd-gym[mpc]'" in capsys.readouterr().err
