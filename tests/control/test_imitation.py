"""The network that imitates the QP: its files, its training and its forces."""

import sys

import pytest
import torch

from nerd_gym.control.forces import MpcForces
from nerd_gym.control.gait import TrotConfig
from nerd_gym.control.imitation import INPUTS, OUTPUTS, PRETRAINED, NetworkForces, imitate, record
from nerd_gym.policies.agents import load_agent
from nerd_gym.policies.policy import Policy
from nerd_gym.robots.model import RobotModel
from tests.support.states import make_vec

ANYMAL = "NeRD/Anymal-v0"
COMMAND = torch.tensor([0.5, 0.0, 0.0])


@pytest.fixture(scope="module")
def robot():
    return RobotModel.named("anymal")


def changed(tmp_path, inputs: int = INPUTS, outputs: int = OUTPUTS, **facts):
    """A file with the packaged network's facts but for some, and of other sizes."""
    known = Policy.load(PRETRAINED).facts
    layers = [(torch.zeros(8, inputs), torch.zeros(8)), (torch.zeros(outputs, 8), torch.zeros(outputs))]
    network = Policy(torch.zeros(inputs), torch.ones(inputs), layers, "elu", facts=known | facts)
    network.save(tmp_path / "net.safetensors")
    return tmp_path / "net.safetensors"


def test_the_packaged_network_is_as_described(robot):
    network = NetworkForces.load(PRETRAINED, robot).network
    sizes = [tuple(weight.shape) for weight, _ in network.layers]
    assert sizes == [(192, 41), (192, 192), (12, 192)] and network.activation == "elu"
    assert PRETRAINED.stat().st_size < 250_000


def test_its_forces_are_those_of_the_qp(robot):
    env = make_vec(ANYMAL, 2, backend="mujoco")
    teacher = MpcForces(robot, env.task.actuation["pose"])
    network = NetworkForces.load(PRETRAINED, robot)
    inputs, labels = record(env, teacher, network, COMMAND, 60, seed=4321)
    stance = inputs[:, -16:-12].repeat_interleave(3, 1).bool()
    found = network.network.facts["scale"] * network.network.act(inputs)
    assert not labels[~stance].any()
    assert (found - labels)[stance].square().mean().sqrt() < 20 < labels[stance].square().mean().sqrt() / 5


@pytest.mark.parametrize("sizes", [(INPUTS - 1, OUTPUTS), (INPUTS, OUTPUTS + 1)])
def test_wrong_shapes_are_refused(robot, tmp_path, sizes):
    told = rf"net.safetensors holds a network of {sizes[0]} inputs and {sizes[1]} outputs; it must have 41 and 12"
    with pytest.raises(ValueError, match=told):
        NetworkForces.load(changed(tmp_path, *sizes), robot)


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"kind": "policy"}, "is of kind 'policy'; it must be of kind 'trot_forces'"),
        ({"robot": "cow", "robot_hash": "0"}, "was learned from robot 'cow'"),
        ({"frame_dt": 0.5}, "has frames of 0.5 s"),
        ({"gait": {"period": 3.0}}, r"was made for the gait \{'period': 3.0\}; this is .*'period': 0.4"),
        ({"scale": "large"}, "has the fact scale = 'large'"),
    ],
)
def test_files_of_something_else_are_refused(robot, tmp_path, facts, told):
    assert NetworkForces.load(changed(tmp_path), robot)
    with pytest.raises(ValueError, match=f"net.safetensors {told}"):
        NetworkForces.load(changed(tmp_path, **facts), robot)


def test_a_short_training_gives_a_file_that_plays(tmp_path):
    env, told = make_vec(ANYMAL, 2, backend="mujoco"), []
    given = {"steps": 300, "rounds": 1, "epochs": 3}
    network = imitate([env], COMMAND.expand(2, 2, 3), **given, report=told.append)
    network.save(tmp_path / "net.safetensors")
    assert len(told) == 2 and {key: network.facts[key] for key in given} == given
    agent = load_agent(f"mpc-net:model={tmp_path}/net.safetensors", env)
    assert agent.act(env.reset(seed=0)[0]).shape == (2, 12)


def test_the_network_needs_no_osqp(monkeypatch):
    monkeypatch.setitem(sys.modules, "osqp", None)
    env = make_vec(ANYMAL, 1, backend="mujoco")
    assert load_agent("mpc-net", env).act(env.reset(seed=0)[0]).shape == (1, 12)


def test_another_gait_is_another_network(robot):
    with pytest.raises(ValueError, match=r"this is .*'period': 0\.5"):
        NetworkForces.load(PRETRAINED, robot, TrotConfig(period=0.5))
