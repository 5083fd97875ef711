"""Learned models on disk: facts of every age are held to the same bounds."""

import pytest
import torch

from nerd_gym.dynamics.models.base import open_model
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


TRUTH = (0.02, 1.0, 0.95, 0.6, 0.02, 1.0, 0.95)


@pytest.mark.parametrize(
    ("law", "gains", "why"),
    [
        ("constraint", (*TRUTH[:2], 1.0, *TRUTH[3:]), "valid: 7 numbers"),  # an impedance of 1 divides by zero
        ("constraint", (0.0, *TRUTH[1:]), "valid: 7 numbers"),
        ("constraint", (*TRUTH[:3], -0.1, *TRUTH[4:]), "valid: 7 numbers"),
        ("constraint", TRUTH[:6], "valid: 7 numbers"),
        ("constraint", None, "no 'prior.constraint'"),
        ("penalty", TRUTH, "a 'prior.constraint'"),
        ("glue", None, "valid: penalty, constraint"),
        (3, None, "type"),
    ],
)
def test_a_contact_law_outside_its_bounds_is_refused(law, gains, why, tmp_path):
    tensors, facts = load_tensors(PRETRAINED / "ant-warp.safetensors")
    more = {} if gains is None else {"prior.constraint": torch.tensor(gains, dtype=torch.float64)}
    save_model(tmp_path / "odd.safetensors", tensors | more, facts | {"contact_law": law})
    with pytest.raises(ValueError, match=r"odd\.safetensors has") as error:
        load_model(tmp_path / "odd.safetensors", robot("ant"))
    assert why in str(error.value)


@pytest.mark.parametrize(
    "pairing", [[0, 2, 1], [1, 0, *range(2, 9)], [0, 2, 3, 1, *range(4, 9)], [0, 99, *range(2, 9)]]
)
def test_inertias_of_other_links_are_swapped_in_pairs_or_refused(pairing, tmp_path):
    """Too few, the base, three in a ring, a link that is not there."""
    tensors, facts = load_tensors(PRETRAINED / "ant-warp.safetensors")
    save_model(tmp_path / "odd.safetensors", tensors, facts | {"inertia_of": pairing})
    with pytest.raises(ValueError, match=r"odd\.safetensors .* valid: pairs of links 1 to 8"):
        open_model(tmp_path / "odd.safetensors", robot("ant"))
    swapped = [0, 3, 4, 1, 2, *range(5, 9)]
    save_model(tmp_path / "even.safetensors", tensors, facts | {"inertia_of": swapped})
    open_model(tmp_path / "even.safetensors", robot("ant"))[0].close()
