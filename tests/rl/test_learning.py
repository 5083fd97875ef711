"""Shortened trainings: every library learns Cartpole in the learned model, and the policy holds in the simulator."""

from __future__ import annotations

import pytest

from nerd_gym.cli import main
from nerd_gym.rl.evaluate import evaluate
from nerd_gym.rl.trainer import LIBRARIES

LEARNED = 900  # return on warp; an untrained policy has about -200, a trained one 1200


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_cartpole_is_learned_in_neural_and_holds_on_warp(library, tmp_path):
    words = ["--lib", library, "--backend", "neural", "--steps", "1.2M", "--out", str(tmp_path / "run")]
    assert main(["rl", "train", "NeRD/Cartpole-v0", *words]) == 0
    rows = evaluate([tmp_path / "run" / "policy.safetensors"], ["warp", "neural"], episodes=128)
    on_warp, on_neural = (row["return"]["mean"] for row in rows)
    assert on_warp > LEARNED
    assert on_neural == pytest.approx(on_warp, rel=0.02)
