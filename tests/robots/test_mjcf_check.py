"""MJCFs that ask too much of MuJoCo's compiler are refused by name before it reads them."""

import pytest

from nerd_gym import RobotModel

HEAD = "<mujoco><worldbody><geom type='plane' size='0 0 1'/>"
BODY = "<body><joint/><geom size='0.1' contype='0' conaffinity='0'/></body>"
TOO_MUCH = {
    "replicate": "<replicate count='100'><replicate count='101'><geom size='1'/></replicate></replicate>",
    "composite": "<body><composite count='99999999 1 1' type='cable' prefix='c' curve='s' size='1'/></body>",
    "deep": "<body>" * 300 + "</body>" * 300,
    "entity": "<replicate count='&#50;0000000'><geom size='1'/></replicate>",
}
BESIDE = {
    "texture": "<asset><texture name='t' type='2d' builtin='flat' width='100000' height='100000'/></asset>",
    "hfield": "<asset><hfield name='h' nrow='100000' ncol='100000' size='1 1 1 1'/></asset>",
    "memory": "<size memory='100G'/>",
    "device": "<asset><mesh name='m' file='/dev/zero'/></asset>",
    "device by folder": "<compiler meshdir='/dev'/><asset><mesh name='m' file='zero'/></asset>",
    "included device": "<include file='/dev/zero'/>",
    "itself": "<asset><model name='m' file='stranger.xml'/></asset>",  # MuJoCo's stack overflows
    "numeric": "<custom><numeric name='n' size='2000000000'/></custom>",
}


@pytest.mark.parametrize("what", [*TOO_MUCH, *BESIDE])
def test_too_much_is_refused(what, tmp_path):
    path = tmp_path / "stranger.xml"
    path.write_text(f"{HEAD}{BODY}{TOO_MUCH.get(what, '')}</worldbody>{BESIDE.get(what, '')}</mujoco>")
    with pytest.raises(ValueError, match=r"stranger\.xml"):
        RobotModel.from_mjcf(path)


def test_two_files_that_name_each_other_are_refused(tmp_path):
    for own, other in (("stranger", "second"), ("second", "stranger")):
        asset = f"<asset><model name='m' file='{other}.xml'/></asset>"
        (tmp_path / f"{own}.xml").write_text(f"{HEAD}{BODY}</worldbody>{asset}</mujoco>")
    with pytest.raises(ValueError, match=r"stranger\.xml.* itself"):
        RobotModel.from_mjcf(tmp_path / "stranger.xml")


def test_moderate_ones_are_read(tmp_path):
    """Included files, copies, comments with anything in them, what the parser of others would not take."""
    (tmp_path / "more.xml").write_text("<mujoco><custom><text name='friction_law' data='huber'/></custom></mujoco>")
    path = tmp_path / "own.xml"
    copies = (
        "<replicate count='20' offset='1 0 0'><site size='0.1'/></replicate><!-- <replicate count='9999999'> -- -->"
    )
    path.write_text(f"{HEAD}{BODY}{copies}</worldbody><include file='more.xml'/></mujoco>")
    robot = RobotModel.from_mjcf(path)
    assert robot.friction_law == "huber" and robot.mj_model.nsite == 20


@pytest.mark.parametrize("name", ["%s%n", "&#37;n", "<!--%n-->", "100%"])
def test_text_that_mujoco_would_take_for_a_format_is_refused(tmp_path, name):
    """A class that does not exist is printed as the format of its own message."""
    path = tmp_path / "robot.xml"
    path.write_text(f'<mujoco><worldbody><body><joint class="{name}"/><geom size="1"/></body></worldbody></mujoco>')
    with pytest.raises(ValueError, match=r"robot\.xml has class=.*without %"):
        RobotModel.from_mjcf(path)


def test_comments_may_have_percent_signs(tmp_path):
    path = tmp_path / "robot.xml"
    body = '<body><joint/><geom size="1"/></body>'
    path.write_text(f"<mujoco><!-- 50 % heavier than 'before' --><worldbody>{body}</worldbody></mujoco>")
    assert RobotModel.from_mjcf(path).nj == 1
