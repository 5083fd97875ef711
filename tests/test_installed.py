"""The package as a user has it: a wheel in an environment of its own, away from the checkout."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from nerd_gym.policies.shipped import shipped_policies
from tests.support.grid import ROOT
from tests.support.processes import run

SOURCES = ("nerd_gym", "policies", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
# Nothing of the checkout, and the packages that other tests gave to their processes, reaches the programs.
OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: a build leaves folders behind, and takes over what it finds in them."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source)
    (found,) = out.glob("nerd_gym-*.whl")
    return found


def test_the_wheel_has_the_package_and_the_policies_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    code = {str(path.relative_to(ROOT)) for path in (ROOT / "nerd_gym").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == code
    shipped = (ROOT / "policies").glob("*/*.safetensors")
    policies = {f"nerd_gym/shipped_policies/{path.parent.name}/{path.name}" for path in shipped}
    assert {name for name in names if "shipped_policies" in name} == policies and len(policies) == 40
    others = {Path(name).suffix for name in names - code - policies}
    assert others == {".xml", ".yaml", ".safetensors", ".json", ".typed"}


def test_an_installed_wheel_runs_the_demo_without_the_extra_for_pictures(wheel, tmp_path):
    """Dependencies are those of this environment; the package is not, and neither is what draws."""
    home, empty = tmp_path / "env", tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    bin_folder = home / ("Scripts" if os.name == "nt" else "bin")
    run(sys.executable, "-m", "pip", "--python", home, "install", "-q", "--no-deps", "--no-index", wheel)
    (packages,) = home.glob("**/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    hide = "import sys; sys.modules.update(dict.fromkeys(('matplotlib', 'imageio', 'imageio_ffmpeg')))"
    (packages / "no_pictures.pth").write_text(hide + "\n")
    empty.mkdir()

    def outside(program: str, *words: str) -> str:
        return run(bin_folder / program, *words, cwd=empty, env=OUTSIDE, timeout=300)

    where = "import nerd_gym, nerd_gym.policies.shipped as s; print(nerd_gym.__file__, s.shipped_policies(), sep='|')"
    places = outside("python", "-c", where).strip().splitlines()[-1].split("|")
    assert all(Path(place).is_relative_to(home) for place in places)
    assert outside("nerd-gym", "--version") == f"nerd-gym {wheel.name.split('-')[1]}\n"
    assert "NeRD/Robot-v0" in outside("nerd-gym", "list")
    printed = outside("nerd-gym", "demo", "--episodes", "8")
    assert printed.count("neural against warp") == 3 and "pip install 'nerd-gym[video]'" in printed
    assert "<table>" in (empty / "out/demo/demo.html").read_text()
    assert sorted(path.name for path in (empty / "out/demo").glob("cartpole*/*")) == ["compare.html", "compare.json"]
    assert [path.name for path in empty.iterdir()] == ["out"]


@pytest.mark.slow
def test_pip_installs_the_wheel_with_its_dependencies(wheel, tmp_path):
    """Some GB through the network; constraints as in CI."""
    home, empty = tmp_path / "env", tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    bin_folder = home / ("Scripts" if os.name == "nt" else "bin")
    pip = [bin_folder / "python", "-m", "pip"]
    reached = subprocess.run([*pip, "download", "-q", "--no-deps", "-d", tmp_path, "tqdm"], env=OUTSIDE)
    if reached.returncode:
        pytest.skip("pip reaches no index")
    run(*pip, "install", "-q", "-c", ROOT / "constraints.txt", f"{wheel}[video]", env=OUTSIDE, timeout=1800)
    empty.mkdir()
    printed = run(bin_folder / "nerd-gym", "demo", "--episodes", "8", cwd=empty, env=OUTSIDE, timeout=900)
    assert printed.count("neural against warp") == 3
    assert len(list((empty / "out/demo").glob("*/compare.mp4"))) == 3


def test_in_a_checkout_the_policies_are_beside_the_package():
    assert shipped_policies() == ROOT / "policies"


def test_no_requirement_is_written_twice():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lists = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    names = [re.split(r"[\[<>=~! ]", line)[0] for text in lists for line in text.split("\n") if line]
    assert [name for name, count in Counter(names).items() if count > 1 and name != "nerd-gym"] == []
