"""Learned models on disk: facts of every age are held to the same bounds."""

import pytest

from nerd_gym.dynamics.models.checkpoint import PRETRAINED, load_model, save_model
from nerd_gym.utils.files import load_tensors
from tests.support.grid import robot


@pytest.mark.parametrize("name", ["looks", "pose_updates"])
@pytest.mark.parametrize(
    ("value", "why"), [(10**9, "pose_updates = 1000000000"), (0, "valid: 1 to"), ("2", "type int")]
)
def test_the_number_of_pose_updates_is_bounded_under_either_name(name, value, why, tmp_path):
    tensors, facts = load_tensors(PRETRAINED / "ant-warp.safetensors")
    del facts["looks"]
    save_model(tmp_path / "odd.safetensors", tensors, facts | {name: value})
    with pytest.raises(ValueError, match=r"odd\.safetensors has") as error:
        load_model(tmp_path / "odd.safetensors", robot("ant"))
    assert why in str(error.value)
