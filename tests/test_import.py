"""The import is light and its names are lazy."""

import subprocess
import sys

import pytest

import nerd_gym

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


def test_import_loads_gymnasium_and_a_few_modules_of_our_own():
    """Counted, because the time of an import says more of what else the machine does."""
    code = (
        "import sys, gymnasium; before = set(sys.modules); import nerd_gym; print(*sorted(set(sys.modules) - before))"
    )
    added = run(code).split()
    assert all(name.split(".")[0] == "nerd_gym" for name in added) and len(added) <= 5, added


def test_lazy_names_and_wrong_ones():
    assert nerd_gym.RobotModel.named("ant").nj == 8
    with pytest.raises(AttributeError, match=r"no attribute 'Robot'.*RobotModel"):
        nerd_gym.Robot  # noqa: B018
