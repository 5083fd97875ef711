"""Training end to end: what was hidden in the data is found, and a stopped run goes on."""

from dataclasses import replace

import pytest
import torch

from nerd_gym.augmented import AugmentedModel, Blueprint, load_augmented
from nerd_gym.augmented.training.discovery import Lasso, lasso_path, search_wirings, sparsest, train_sparse
from nerd_gym.augmented.training.run import augment
from nerd_gym.augmented.training.train import Settings, Trainer, new_model
from nerd_gym.augmented.training.windows import cut, rolled
from nerd_gym.cli import main
from nerd_gym.data.dataset import DatasetPlan, generate
from tests.support.grid import robot

HIDDEN = torch.tensor([30.0, 3.0])  # of the cart-pole's joints: damping in the data, of which a plain engine knows none
SHORT = Settings(steps=4, held_frames=20, velocity=1.0, windows=200)


def moved(seed, count=6, frames=40):
    """Trajectories of a cart-pole with damping."""
    generator = torch.Generator().manual_seed(seed)
    model = AugmentedModel(robot("cartpole"), values={"damping": HIDDEN})
    q, qd = (torch.randn(count, 2, generator=generator).double() for _ in range(2))
    data = {"q": q[:, None].expand(-1, frames + 1, -1), "qd": qd[:, None].expand(-1, frames + 1, -1)}
    data |= {"force": q.new_zeros(count, frames, 2)} | {
        k: q.new_zeros(count, 3) for k in ("ground_point", "ground_normal")
    }
    windows = cut(data, frames)
    q, qd = rolled(model, windows)
    return windows | {"q": q, "qd": qd}


@pytest.fixture(scope="module")
def data():
    return moved(0), moved(1)


@pytest.mark.parametrize("optimiser", ["lbfgs", "gauss_newton"])
def test_damping_is_identified(data, tmp_path, optimiser):
    model = new_model(robot("cartpole"), None, cut(data[0], 1), identify=["damping"])
    told = Trainer(model, *data, replace(SHORT, optimiser=optimiser)).run(tmp_path / "x.checkpoint", {})
    torch.testing.assert_close(model.values["damping"].detach(), HIDDEN.double(), rtol=1e-3, atol=0)
    assert told["kept"] == "trained" and told["held_error"]["end"] < 1e-3 * told["held_error"]["start"]


@pytest.mark.parametrize("optimiser", ["lbfgs", "adamw"])
def test_a_network_learns_it_and_a_stopped_run_goes_on(data, tmp_path, optimiser):
    settings = Settings(steps=6, held_frames=20, windows=100, optimiser=optimiser, batch=50 * (optimiser == "adamw"))
    blueprint = Blueprint().wire("tau/*", "qd/@")

    def model():
        return new_model(robot("cartpole"), blueprint, cut(data[0], 1))

    whole, part = model(), model()
    told = Trainer(whole, *data, settings).run(tmp_path / "whole.checkpoint", {})
    assert told["held_error"]["end"] < (0.3 if optimiser == "lbfgs" else 1.0) * told["held_error"]["start"]
    trainer, loss = Trainer(part, *data, settings), Trainer.loss
    left = iter(range(70 if optimiser == "lbfgs" else 3))  # calls until somebody stops it

    def stopped(windows):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return loss(trainer, windows)

    trainer.loss = stopped
    with pytest.raises(KeyboardInterrupt):
        trainer.run(tmp_path / "part.checkpoint", {})
    part = model()
    Trainer(part, *data, settings).run(tmp_path / "part.checkpoint", {})
    for name, value in whole.state_dict().items():
        assert torch.equal(part.state_dict()[name], value), name


def test_a_lasso_keeps_the_rates_alone(data, tmp_path):
    blueprint = Blueprint()
    for joint in robot("cartpole").joint_names:
        blueprint.wire(f"tau/{joint}", ["q/*", "qd/*", "time"])
    model = new_model(robot("cartpole"), blueprint, cut(data[0], 1))
    settings = Settings(steps=8, held_frames=20, windows=200, position=0.0)
    told = train_sparse(model, *data, settings, Lasso(3e-3), tmp_path / "x.checkpoint").facts
    assert [list(one) for one in told["surviving"]] == [[f"qd/{name}"] for name in robot("cartpole").joint_names]
    zero = model.scalar_nets[0].linears[0].weight.detach().norm(dim=0) == 0
    assert zero.sum() == 4  # to the bit


def test_a_large_penalty_leaves_nothing_and_the_path_tells(data, tmp_path):
    blueprint = Blueprint().wire("tau/*", ["q/@", "qd/@"])
    settings = Settings(steps=4, held_frames=20, windows=100, position=0.0)
    found = lasso_path(robot("cartpole"), blueprint, *data, settings, [1e-3, 1e3], tmp_path / "x.checkpoint")
    assert [one.facts["lasso"] for one in found] == [1e3, 1e-3]
    assert found[0].facts["surviving"] == [{}] and "qd/slider_to_cart" in found[1].facts["surviving"][0]
    assert sparsest(found) is found[1]


def test_a_search_over_wirings_takes_the_smallest_that_explains(data, tmp_path):
    texts = (["q/@"], ["q/@", "qd/@", "time"], ["qd/@"])
    blueprints = [Blueprint().wire("tau/*", inputs, hidden=(4,), activation="tanh") for inputs in texts]
    settings = Settings(steps=3, held_frames=20, windows=100)
    best, found = search_wirings(
        robot("cartpole"), blueprints, *data, settings, tmp_path / "x.checkpoint", tolerance=9.0
    )
    assert best is found[2] and len(found) == 3


def test_a_search_before_the_training_ends_no_worse(data, tmp_path):
    settings = Settings(steps=1, held_frames=20, windows=50, starts=3, hops=1, identify=("damping",))
    model = new_model(robot("cartpole"), None, cut(data[0], 1), identify=["damping"])
    told = Trainer(model, *data, settings).run(tmp_path / "x.checkpoint", {})
    assert told["held_error"]["end"] < 0.1 * told["held_error"]["start"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Motion of the packaged cart-pole."""
    path = tmp_path_factory.mktemp("data") / "cartpole.h5"
    generate(DatasetPlan(robot("cartpole"), "warp", 6400, 50, seed=0), path)
    return path


def test_the_command_writes_a_model_and_its_picture(file, tmp_path, capsys):
    out = tmp_path / "made.safetensors"
    words = ["augment", "cartpole", "--data", str(file), "--wire", "tau/*: q/@ qd/@", "--steps", "1"]
    assert main([*words, "--windows", "50", "--identify", "mass", "--out", str(out)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["made.png", "made.safetensors"]
    model, facts = load_augmented(out, robot("cartpole"))
    assert facts["command"].startswith("nerd-gym augment cartpole --data cartpole.h5 --wire") and "mass" in model.values
    assert f"written: {out}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"wires": [["tau/none", "qd/*"]]}, "tau/none"),
        ({"contact": "glue"}, "valid: penalty"),
        ({"wires": []}, "nothing to train"),
        ({"lasso": [0.0]}, "lasso is 0"),
        ({"lasso": [0.1], "wires": [["tau/*", "qd/*"]] * 2}, "takes one wiring"),
        ({"settings": {"starts": 2}, "contact": "impulses"}, "impulses"),
    ],
)
def test_wrong_words_are_told_before_data_are_read(tmp_path, options, words):
    blueprints = [Blueprint().wire(*wire) for wire in options.get("wires", [["tau/*", "qd/*"]])]
    settings = Settings(**options.get("settings", {}))
    with pytest.raises(ValueError, match=words):
        augment(
            robot("cartpole"), blueprints, [tmp_path / "none.h5"], tmp_path / "x.safetensors", settings,
            options.get("contact", "penalty"), options.get("lasso", ()),
        )  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"horizon": -1}, "horizon is -1"),
        ({"optimiser": "sgd"}, "valid: soap, adamw, lbfgs, gauss_newton"),
        ({"identify": ("colour",)}, "unknown parameter 'colour'"),
        ({"lr": float("nan")}, "lr is nan"),
    ],
)
def test_wrong_settings_are_told(settings, words):
    with pytest.raises(ValueError, match=words):
        Settings(**settings)


def test_data_of_another_robot_are_refused(file):
    with pytest.raises(ValueError, match="holds motion of robot 'cartpole'"):
        augment(robot("ant"), [Blueprint().wire("tau/*", "qd/@")], [file], file.with_suffix(".safetensors"), SHORT)


def test_data_that_are_no_numbers_are_refused(file, tmp_path):
    import h5py

    broken = tmp_path / "nan.h5"
    broken.write_bytes(file.read_bytes())
    with h5py.File(broken, "r+") as written:
        written["qd"][3, 5, 0] = float("nan")
    with pytest.raises(ValueError, match="qd"):
        augment(robot("cartpole"), [Blueprint().wire("tau/*", "qd/@")], [broken], tmp_path / "x.safetensors", SHORT)


def test_a_window_longer_than_a_trajectory_is_told(data):
    with pytest.raises(ValueError, match="valid: 1 to 40"):
        cut(data[0], 41)
