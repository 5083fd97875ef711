"""What a newcomer meets: a tree that tells where things are, and a step that can be followed."""

import sys
from pathlib import Path

import torch

import nerd_gym
from tests.support.states import make_vec

PACKAGE = Path(nerd_gym.__file__).parent


def files_of(call) -> set[str]:
    """Files of the package whose functions run in a call."""
    found = set()

    def trace(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            found.add(str(path.relative_to(PACKAGE)))

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return found


def test_a_step_of_ant_on_neural_touches_few_files():
    """With an autoreset in it."""
    env = make_vec("NeRD/Ant-v0", 4, backend="neural", max_episode_steps=3)
    env.reset(seed=0)
    actions = torch.zeros(env.action_space.shape)
    steps = [files_of(lambda: env.step(actions)) for _ in range(6)]
    assert "envs/random.py" in steps[5] and "envs/random.py" not in steps[4]
    assert len(steps[4]) <= 11 and len(steps[5]) <= 12, (sorted(steps[4]), sorted(steps[5]))


def test_every_module_has_a_room():
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == ["__init__.py", "registration.py"]
