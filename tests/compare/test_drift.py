"""How far backends drift apart."""

import json

from docs.make_pictures import drift
from tests.support.grid import GRID


def test_drift_writes_figures_and_plot(tmp_path):
    drift(tmp_path / "drift.json", tmp_path / "drift.png", num_envs=8)
    figures = json.loads((tmp_path / "drift.json").read_text())["drift"]
    assert set(figures["mujoco"]) == set(figures["neural"]) == {env_id for env_id, backend in GRID if backend == "warp"}
    for backend in ("mujoco", "neural"):
        assert figures[backend]["NeRD/Cartpole-v0"]["100"]["joints"] < 1e-2
        assert figures[backend]["NeRD/Franka-v0"]["100"]["joints"] < 1e-2
    assert figures["mujoco"]["NeRD/Ant-v0"]["10"]["position"] < 0.1
    assert (tmp_path / "drift.png").stat().st_size > 10_000
