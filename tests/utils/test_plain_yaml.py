"""Configs of strangers: plain values, small in memory if they are small on disk."""

import pytest

from nerd_gym.utils.plain_yaml import load_yaml


def test_plain_values_are_read(tmp_path):
    (tmp_path / "a.yaml").write_text("default: {run: {steps: 3, rate: 1.0e-3}}\nnames: [a, true, null]\n")
    assert load_yaml(tmp_path / "a.yaml") == {
        "default": {"run": {"steps": 3, "rate": 1e-3}},
        "names": ["a", True, None],
    }


BOMB = "a0: &a0 [x]\n" + "\n".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 12))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, "line 2 repeats *a0"),
        ("a: &a [*a]", "repeats *a"),
        ("[" * 100_000, "nested more than 20"),
        ("a: " * 30, "is not a plain yaml file"),
        ("a: !!python/object/apply:os.system ['id']", "could not determine a constructor"),
        ("a: [1, 2", "expected ',' or ']'"),
        ("a: \x00", "not a plain yaml file"),
        ("{[1]: 2}", "unhashable key"),
    ],
)
def test_others_are_refused_and_named(text, why, tmp_path):
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"odd\.yaml is not a plain yaml file") as error:
        load_yaml(tmp_path / "odd.yaml")
    assert why in str(error.value)


def test_a_large_file_is_refused(tmp_path):
    (tmp_path / "large.yaml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ValueError, match=r"large\.yaml has 1048577 bytes"):
        load_yaml(tmp_path / "large.yaml")
