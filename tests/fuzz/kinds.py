"""The kinds of files that the suite opens: seeds to mutate, and how each is opened and used."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from nerd_gym import RobotModel, make_backend
from nerd_gym.collision.models.model import PRETRAINED as COLLISIONS
from nerd_gym.collision.models.model import CollisionModel
from nerd_gym.collision.models.rigid import RigidLaw
from nerd_gym.collision.training.samples import read_samples
from nerd_gym.data.reader import Data
from nerd_gym.dynamics.models.checkpoint import PRETRAINED
from nerd_gym.policies import Policy
from nerd_gym.policies.onnx import OnnxPolicy, onnx_model
from nerd_gym.rl.configs import load_config
from nerd_gym.robots.kinematics import Kinematics
from tests.fuzz.hdf5_mutations import HDF5
from tests.fuzz.mutations import CHECKPOINTS, SAFETENSORS, TEXT, Mutation
from tests.fuzz.onnx_mutations import ONNX
from tests.fuzz.pickle_mutations import PICKLES
from tests.fuzz.text_mutations import XML, YAML
from tests.support.collisions import planar_impacts
from tests.support.grid import ROOT
from tests.support.policies import recurrent_policy, small_policy


class NotFinite(Exception):
    """A file was accepted that gives numbers which are none."""


@dataclass(frozen=True)
class Kind:
    """How files of a kind are made and opened."""

    share: float  # of all files: less where one takes long
    suffix: str
    seeds: Callable[[], list[bytes]]
    open: Callable[[Path], None]
    structured: list[Mutation]


def warm_up(kind: Kind) -> list[bytes]:
    """The seeds, each opened once here, so that no child spends its time on imports and kernels."""
    seeds = kind.seeds()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"seed{kind.suffix}"
        for content in seeds:
            path.write_bytes(content)
            kind.open(path)
    return seeds


def _policy_seeds() -> list[bytes]:
    shipped = (ROOT / "policies" / "cartpole" / "swingup-warp-seed0.safetensors").read_bytes()
    return [shipped, *(_written(recurrent_policy(kind).save) for kind in (torch.nn.LSTM, torch.nn.GRU))]


def _open_policy(path: Path) -> None:
    policy = Policy.load(path, "relu" if path.suffix == ".pth" else None)
    for obs in _observations(policy.obs_size):
        _finite(policy.act(obs))


def _observations(size: int) -> torch.Tensor:
    """Two steps of two robots: at rest, and somewhere."""
    return torch.stack([torch.zeros(2, size), torch.linspace(-100, 100, 2 * size).reshape(2, size)])


def _model_seeds() -> list[bytes]:
    return [(PRETRAINED / "cartpole-warp.safetensors").read_bytes()]


@cache
def _cartpole() -> RobotModel:
    return RobotModel.named("cartpole")


def _network_seeds() -> list[bytes]:
    """A `residual` and an `mlp`."""
    return [(PRETRAINED / f"ant-{teacher}.safetensors").read_bytes() for teacher in ("warp", "mujoco")]


@cache
def _ant() -> RobotModel:
    return RobotModel.named("ant")


def _open_model(path: Path) -> None:
    _step_model(path, _cartpole())


def _open_network(path: Path) -> None:
    _step_model(path, _ant())


def _step_model(path: Path, robot: RobotModel) -> None:
    """A state that is no number must be held and reported, as of any backend."""
    backend = make_backend("neural", robot, 2, model=path, threads=1)
    for _ in range(3):
        backend.step(torch.zeros(2, robot.nj))
        _finite(torch.cat([backend.q, backend.qd], 1))
        _finite(backend.info()["model_trust"])


def _checkpoint_seeds() -> list[bytes]:
    """As rl-games has them."""
    linear = {"weight": torch.randn(8, 5), "bias": torch.zeros(8)}
    model = {f"a2c_network.actor_mlp.0.{name}": value for name, value in linear.items()}
    model |= {"a2c_network.mu.weight": torch.randn(1, 8), "a2c_network.mu.bias": torch.zeros(1)}
    model |= {"running_mean_std.running_mean": torch.zeros(5, dtype=torch.float64)}
    model |= {"running_mean_std.running_var": torch.ones(5, dtype=torch.float64)}
    return [_written(lambda path: torch.save({"model": model, "epoch": 3, "frame": np.float64(1e6)}, path))]


def _onnx_seeds() -> list[bytes]:
    policies = [small_policy(), recurrent_policy(torch.nn.LSTM), recurrent_policy(torch.nn.GRU)]
    return [onnx_model(policy).SerializeToString() for policy in policies]


def _open_onnx(path: Path) -> None:
    policy = OnnxPolicy.load(path)
    for obs in _observations(policy.obs_size):
        try:
            _finite(policy.act(obs))
        except ValueError:  # a network may overflow far away, and says so
            return


def _yaml_seeds() -> list[bytes]:
    return [(ROOT / "nerd_gym" / "rl" / name).read_bytes() for name in ("rl_games.yaml", "sb3.yaml")]


def _open_yaml(path: Path) -> None:
    load_config("sb3", "NeRD/Ant-v0", {"task": "run"}, path)


def _mjcf_seeds() -> list[bytes]:
    return [(ROOT / "examples" / name).read_bytes() for name in ("critter.xml", "three_link_arm.xml")]


def _open_mjcf(path: Path) -> None:
    robot = RobotModel.from_mjcf(path)
    _finite(Kinematics(robot).poses(torch.as_tensor(robot.mj_model.qpos0, dtype=torch.float32)[None]))
    assert robot.hash


def _dataset_seeds() -> list[bytes]:
    robot = _cartpole()
    shapes = {"q": (4, 6, 2), "qd": (4, 6, 2), "force": (4, 5, 2), "ground_point": (4, 3), "ground_normal": (4, 3)}
    facts = {"format": 1, "robot": "cartpole", "robot_hash": robot.hash, "frame_dt": robot.frame_dt, "backend": "warp"}
    facts |= {"backend_options": "{}", "preset": "wide", "seed": 0, "frames": 5, "blocks": 1, "policies": "[]"}

    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file.attrs.update(facts)
            for name, shape in shapes.items():
                file.create_dataset(name, data=np.zeros(shape, np.float32), chunks=shape, maxshape=(None, *shape[1:]))

    first = _written(write)
    later = io.BytesIO()
    with h5py.File(io.BytesIO(first)) as old, h5py.File(later, "w", libver="latest") as new:
        new.attrs.update(old.attrs)
        for name in shapes:
            new.create_dataset(name, data=old[name][()], compression="gzip", shuffle=True)
    return [first, later.getvalue()]


def _open_dataset(path: Path) -> None:
    data = Data.load(path, _cartpole())
    for arrays in (data.train, data.held):
        for value in arrays.values():
            _finite(value)
    assert data.command()


def _collision_seeds() -> list[bytes]:
    """A packaged model of strikes, and rigid laws adapted to a few impacts."""
    law = RigidLaw()
    pre = planar_impacts(law, 6)
    post = law.from_frame(pre, 0.9 * law.relative(pre, torch.tensor([[0.5, 0.2]]))[0] * law.scale(pre))
    packaged = COLLISIONS / "square.safetensors"
    return [packaged.read_bytes(), _written(CollisionModel.rigid().finetune(pre, post).save)]


def _open_collision(path: Path) -> None:
    model = CollisionModel.load(path)
    rows = planar_impacts(RigidLaw(), 4) if model.shape is None else torch.tensor([[0.5, 0.01, 0.1], [0.2, 0.0, -0.3]])
    _finite(model.predict(rows[:, : len(model.columns)]))


def _contacts_seeds() -> list[bytes]:
    """A network, and MuJoCo's constraints."""
    return [(COLLISIONS / f"contacts-ant-{teacher}.safetensors").read_bytes() for teacher in ("warp", "mujoco")]


def _open_contacts(path: Path) -> None:
    """Robots on the ground, who feel its forces."""
    robot = _ant()
    backend = make_backend("hybrid", robot, 2, model=path, threads=1)
    q, qd = backend.q.clone(), backend.qd.clone()
    q[:, 2] -= backend.contacts.distance.amin(1) + 0.005
    backend.reset(torch.ones(2, dtype=torch.bool), q, qd)
    for _ in range(3):
        backend.step(torch.zeros(2, robot.nj))
        _finite(torch.cat([backend.q, backend.qd], 1))
        _finite(backend.info()["model_trust"])


def _strikes_seeds() -> list[bytes]:
    table = {name: np.linspace(0.1, 1, 5) for name in ("speed", "point", "direction", "vn", "vt", "omega")}
    lines = [",".join(table), *(",".join(f"{value:.3f}" for value in row) for row in zip(*table.values(), strict=True))]
    return ["\n".join(lines).encode()]


def _open_strikes(path: Path) -> None:
    for values in read_samples(path).values():
        assert values.dtype == np.float64 and values.ndim == 1


def _finite(value: torch.Tensor) -> None:
    if not bool(value.isfinite().all()):
        raise NotFinite


def _written(write: Callable[[Path], Any]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed"
        write(path)
        return path.read_bytes()


KINDS = {
    "policy": Kind(0.19, ".safetensors", _policy_seeds, _open_policy, SAFETENSORS),
    "model": Kind(0.02, ".safetensors", _model_seeds, _open_model, SAFETENSORS),
    "network": Kind(0.01, ".safetensors", _network_seeds, _open_network, SAFETENSORS),
    "checkpoint": Kind(0.2, ".pth", _checkpoint_seeds, _open_policy, CHECKPOINTS + PICKLES),
    "onnx": Kind(0.19, ".onnx", _onnx_seeds, _open_onnx, ONNX),
    "yaml": Kind(0.18, ".yaml", _yaml_seeds, _open_yaml, TEXT + YAML),
    "mjcf": Kind(0.19, ".xml", _mjcf_seeds, _open_mjcf, TEXT + XML),
    "collision": Kind(0.01, ".safetensors", _collision_seeds, _open_collision, SAFETENSORS),
    "contacts": Kind(0.01, ".safetensors", _contacts_seeds, _open_contacts, SAFETENSORS),
    "strikes": Kind(0.05, ".csv", _strikes_seeds, _open_strikes, TEXT),
    "dataset": Kind(0.03, ".h5", _dataset_seeds, _open_dataset, HDF5),
}
