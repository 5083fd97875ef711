import os
import pickle

import pytest
import torch

from nerd_gym.policies import Policy, UnsafePolicy, read_rl_games

from .conftest import REFERENCE


def small_policy():
    torch.manual_seed(0)
    layers = [(torch.randn(16, 5), torch.randn(16)), (torch.randn(3, 16), torch.randn(3))]
    return Policy(torch.randn(5), torch.rand(5) + 0.5, layers, "elu")


def test_save_and_load_give_the_same_actions(tmp_path):
    policy = small_policy()
    policy.save(tmp_path / "p.safetensors", {"env": "NeRD/Ant-v0"})
    obs = 10 * torch.randn(64, 5)
    again = Policy.load(tmp_path / "p.safetensors")
    torch.testing.assert_close(again.act(obs), policy.act(obs))
    assert policy.act(obs).abs().max() <= 1
    with pytest.raises(ValueError, match="takes 5 observations; it was given 4"):
        policy.act(torch.zeros(1, 4))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_file_that_asks_for_code_is_refused_and_nothing_is_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    def bare_pickle(value, path):
        path.write_bytes(pickle.dumps(value))

    for name, save, reason in (("a.pth", torch.save, r"it asks for posix\.mkdir"), ("b.pth", bare_pickle, "no plain")):
        save({"model": {}, "trap": Trap()}, tmp_path / name)
        with pytest.raises(UnsafePolicy, match=reason):
            Policy.load(tmp_path / name, "relu")
    assert not (tmp_path / "sprung").exists()


def test_wrong_files_are_named(tmp_path):
    (tmp_path / "x.onnx").touch()
    with pytest.raises(ValueError, match=r"'x.onnx'; valid endings: .safetensors, .pth"):
        Policy.load(tmp_path / "x.onnx")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Policy.load(tmp_path / "nowhere.pth")
    with pytest.raises(ValueError, match="unknown activation 'gelu'; valid: tanh, relu, elu"):
        Policy(torch.zeros(1), torch.ones(1), [(torch.zeros(1, 1), torch.zeros(1))], "gelu")


def test_published_file_needs_its_activation_told():
    path = REFERENCE / "policies" / "Cartpole_seed0.pth"
    if not path.exists():
        pytest.skip(f"no published policy at {path}; set NERD_GYM_REFERENCE")
    with pytest.raises(ValueError, match="does not tell its activation"):
        Policy.load(path)
    policy = Policy.load(path, "tanh")
    checkpoint = read_rl_games(path)["model"]
    obs = torch.tensor([[0.3, -0.2, 0.5, 1.0]])
    mean, var = (checkpoint[f"running_mean_std.running_{k}"].float() for k in ("mean", "var"))
    hidden = ((obs - mean) / torch.sqrt(var + 1e-5)).clamp(-5, 5)
    for layer in ("actor_mlp.0", "actor_mlp.2"):
        w, b = (checkpoint[f"a2c_network.{layer}.{k}"] for k in ("weight", "bias"))
        hidden = torch.tanh(hidden @ w.T + b)
    expected = hidden @ checkpoint["a2c_network.mu.weight"].T + checkpoint["a2c_network.mu.bias"]
    torch.testing.assert_close(policy.act(obs), expected.clamp(-1, 1))
