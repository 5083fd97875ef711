"""Every attribute of MuJoCo's schema is simulated alike, refused by name, or left out knowingly."""

import re
import subprocess
import sys

import mujoco
import numpy as np
import pytest
import torch

from nerd_gym import RobotModel, make_backend
from nerd_gym.backends import backends_for
from nerd_gym.robots.features import FEATURES, UnsupportedRobot
from nerd_gym.robots.links import read_links
from tests.support.grid import ALL_ROBOTS, ROBOTS, ROOT, robot
from tests.support.mjcf_probes import BASE
from tests.support.mjcf_verdicts import BY_WARP, OWN_LAW, REFUSED, SIMULATED, table, verdicts

GUIDE = ROOT / "docs" / "guide" / "mjcf.md"


@pytest.fixture(scope="module")
def found():
    return verdicts()


@pytest.fixture
def write(tmp_path):
    def from_text(text, ignore=()):
        path = tmp_path / "mine.xml"
        path.write_text(text)
        return RobotModel.from_mjcf(path, ignore)

    return from_text


def test_every_attribute_of_the_schema_has_an_answer(found):
    """Within, every probe that both backends take moved alike on both, and touched the ground alike."""
    words = {word: sum(v.word == word for v in found.values()) for word in {v.word for v in found.values()}}
    assert len(found) > 1800 and sum(words.values()) == len(found)
    for word in (SIMULATED, OWN_LAW, REFUSED, BY_WARP):
        assert words[word] > 10, words
    for path, name, ignore in [
        ("body", "gravcomp", "gravcomp"),
        ("option", "density", "fluid"),
        ("option", "wind", "fluid"),
        ("body/geom", "conaffinity", "self_collision"),
        ("body/geom", "hfield", "static_geometry"),
        ("default/geom", "conaffinity", "self_collision"),
    ]:
        assert (found[path, name].word, found[path, name].ignore) == (BY_WARP, ignore)


def test_every_feature_is_met_by_an_attribute(found):
    met = {name for verdict in found.values() for name in verdict.ignore.split()}
    # A free joint has no such attributes by its short name; a tree is none; the last is for what is not known yet.
    assert met | {"plugin", "base", "trees", "other"} == set(FEATURES)


def test_the_guide_has_the_table(found):
    _, told, after = GUIDE.read_text().partition("<!-- table -->\n")
    assert told and after.partition("<!-- end -->")[0] == table(found), "python -m tests.robots.test_features writes it"


def test_packaged_robots_have_no_features_but_the_one_of_strike():
    assert set(ALL_ROBOTS) - set(ROBOTS) == {"strike_semicylinder"}
    assert set(robot("strike_semicylinder").features) == {"gravcomp", "pair", "trees"}
    assert all(robot(name).ignored == () for name in ALL_ROBOTS)


def test_a_second_tree_beside_a_free_base_is_for_mujoco_alone(write):
    tree = '<body name="ball" pos="0 0 3"><joint name="drop" type="slide" axis="0 0 1"/>'
    tree += '<geom size="0.1" contype="0" conaffinity="0"/></body>'
    model = write(BASE.replace("</worldbody>", tree + "</worldbody>"))
    assert model.features == {"trees": ["joint 'drop'"]} and backends_for(model) == ("mujoco",)
    backend = make_backend("mujoco", model, 1)
    backend.step(torch.zeros(1, model.nj))
    assert backend.qd[0, -1].item() == pytest.approx(-9.81 * model.frame_dt, rel=1e-5)
    with pytest.raises(UnsupportedRobot, match="a second moving tree beside the free base"):
        read_links(model)


def test_refusal_names_everything_at_once_and_what_to_do(write):
    text = BASE.replace('name="leg" pos', 'name="leg" gravcomp="0.5" pos').replace("<option", '<option density="1.2"')
    model = write(text)
    assert set(model.features) == {"gravcomp", "fluid"} and backends_for(model) == ("mujoco",)
    with pytest.raises(UnsupportedRobot) as error:
        make_backend("warp", model, 1)
    for word in ("mine.xml", "'leg': 0.5", "density 1.2", "ignore=['gravcomp', 'fluid']", "'warp'"):
        assert word in str(error.value)


def test_ignored_features_are_left_out_by_every_backend(write):
    text = BASE.replace('name="leg" pos', 'name="leg" gravcomp="1" pos')
    plain, whole, ignoring = write(BASE), write(text), write(text, ["gravcomp"])
    assert plain.hash == ignoring.hash != whole.hash
    motion = []
    for model in (plain, ignoring, whole):
        backend = make_backend("mujoco", model, 1)
        backend.step(torch.zeros(1, 2))
        motion.append(backend.qd.clone())
    assert torch.equal(motion[0], motion[1]) and not torch.equal(motion[0], motion[2])
    assert make_backend("mujoco", ignoring, 1).facts["ignored"] == ["gravcomp"]


def test_unknown_features_to_ignore_are_named(write):
    with pytest.raises(ValueError, match=r"'gravity'.*valid:.*gravcomp"):
        write(BASE, ["gravity"])
    with pytest.raises(ValueError, match=r"\['fluid'\]"):
        write(BASE, "fluid")


@pytest.mark.parametrize("name", ["damping", "armature", "stiffness"])
def test_a_free_joint_has_inertia_alone(write, name):
    model = write(BASE.replace('<freejoint name="root"/>', f'<joint type="free" {name}="1"/>'))
    assert set(model.features) == {"base"}


@pytest.mark.parametrize("attribute", ['stiffness="3 1"', 'damping="0.1 0.2"'])
def test_polynomial_springs_and_dampers_are_not_linear(write, attribute):
    name = attribute.partition("=")[0]
    model = write(re.sub(rf'(name="hip".*){name}="[^"]*"', rf"\1{attribute}", BASE))
    assert set(model.features) == {"nonlinear"}


def test_welded_bodies_add_up(write):
    """Against MuJoCo's own mass matrix: a bracket is merged about the common centre of mass."""
    model = write(BASE)
    m, data = model.mj_model, mujoco.MjData(model.mj_model)
    mujoco.mj_forward(m, data)
    inertia = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, data, inertia)
    backend = make_backend("warp", model, m.nv, threads=1)
    backend.change_params(gravity=(0.0, 0.0, 0.0))
    # A unit of joint force on the slide at rest: the acceleration is a column of the inverse.
    far = torch.tensor(data.qpos, dtype=torch.float32).repeat(m.nv, 1)
    far[:, 2] = 5.0
    backend.reset(torch.ones(m.nv, dtype=torch.bool), far, torch.zeros(m.nv, m.nv))
    force = torch.zeros(m.nv, 2)
    force[:, 1] = 1.0
    backend.step(force)
    expected = np.linalg.inv(inertia)[:, -1] * model.frame_dt
    np.testing.assert_allclose(backend.qd[0], expected, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("actuator", "limit"),
    [
        ('<motor joint="hip" gear="3" ctrlrange="-2 2"/>', 6.0),
        ('<motor joint="hip" gear="3" forcerange="-2 1"/>', 6.0),
        ('<general joint="hip" gainprm="5" ctrlrange="-1 1"/>', 5.0),
        ('<position joint="hip" kp="100" ctrlrange="-1 1" forcerange="-7 7"/>', 7.0),
        ('<motor joint="hip" ctrlrange="-2 2"/><motor joint="hip" ctrlrange="-1 1"/>', 3.0),
    ],
)
def test_force_limits_are_those_of_the_actuators(write, actuator, limit):
    model = write(re.sub(r"<actuator>.*</actuator>", f"<actuator>{actuator}</actuator>", BASE))
    assert model.force_limit[0] == pytest.approx(limit) and model.force_limit[1] == 0


def test_the_joint_bounds_its_actuators(write):
    assert write(BASE.replace('name="hip" axis', 'name="hip" actuatorfrcrange="-1 1" axis')).force_limit[0] == 1.0


def test_command_line_takes_features_to_ignore(tmp_path):
    path = tmp_path / "mine.xml"
    path.write_text(BASE.replace('name="leg" pos', 'name="leg" gravcomp="1" pos'))
    command = [sys.executable, "-m", "nerd_gym.cli", "generate", str(path), "--transitions", "200", "--frames", "5"]
    command += ["--out", str(tmp_path / "d.h5")]
    settings = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 300}
    refused = subprocess.run(command, **settings)
    assert refused.returncode == 2 and "gravity compensation" in refused.stderr and not (tmp_path / "d.h5").exists()
    taken = subprocess.run(
        [*command, "--ignore", "gravcomp"], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert taken.returncode == 0, taken.stderr


def main() -> None:
    """Write the table into the guide."""
    before, _, rest = GUIDE.read_text().partition("<!-- table -->\n")
    after = rest.partition("<!-- end -->")[2]
    GUIDE.write_text(f"{before}<!-- table -->\n{table(verdicts())}<!-- end -->{after}")


if __name__ == "__main__":
    main()
