import os
import pickle

import pytest
import torch
from torch import nn

from nerd_gym.policies.onnx import OnnxPolicy, onnx_model
from nerd_gym.policies.policy import ACTIVATIONS, Policy
from nerd_gym.policies.torch_file import UnsafePolicy, read_torch_file
from tests.support.policies import recurrent_policy, small_policy
from tests.support.recorded import published_policy


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("clip", [2.0, None])
def test_save_and_load_give_the_same_actions(activation, clip, tmp_path):
    policy = small_policy(activation, clip)
    policy.save(tmp_path / "p.safetensors", {"env": "NeRD/Ant-v0"})
    obs = 10 * torch.randn(1000, 5)
    again = Policy.load(tmp_path / "p.safetensors")
    assert torch.equal(again.act(obs), policy.act(obs))
    assert again.facts == {"seed": 3, "env": "NeRD/Ant-v0"}
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


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_memory_is_kept_and_forgotten_by_row(kind, tmp_path):
    policy = recurrent_policy(kind)
    policy.save(tmp_path / "p.safetensors")
    again = Policy.load(tmp_path / "p.safetensors")
    first, second = torch.randn(2, 4, 5)
    fresh = policy.act(second)
    policy.reset()
    assert torch.equal(policy.act(first), again.act(first))
    policy.reset(torch.tensor([True, False, False, True]))
    action = policy.act(second)
    torch.testing.assert_close(action[[0, 3]], fresh[[0, 3]])
    remembered = again.act(second)
    torch.testing.assert_close(action[[1, 2]], remembered[[1, 2]])
    assert (remembered - fresh).abs().max() > 1e-3
    with pytest.raises(ValueError, match="remembers 4 rows, not 2"):
        policy.act(second[:2])


def test_cut_files_are_refused(tmp_path):
    small_policy().save(tmp_path / "p.safetensors")
    torch.save({"model": {"a2c_network.mu.weight": torch.zeros(2, 3)}}, tmp_path / "p.pth")
    for name in ("p.safetensors", "p.pth"):
        data = (tmp_path / name).read_bytes()
        for size in (0, 7, len(data) // 2, len(data) - 8):
            (tmp_path / f"cut-{name}").write_bytes(data[:size])
            with pytest.raises(ValueError, match=f"cut-{name}.*(damaged|refused)"):
                Policy.load(tmp_path / f"cut-{name}", "relu")


def test_layers_that_do_not_fit_are_refused():
    layers = [(torch.zeros(4, 5), torch.zeros(4)), (torch.zeros(2, 3), torch.zeros(2))]
    with pytest.raises(ValueError, match=r"layers \[\(4, 5\), \(2, 3\)\] do not follow one another from 5"):
        Policy(torch.zeros(5), torch.ones(5), layers, "relu")
    with pytest.raises(ValueError, match="do not follow"):
        Policy(torch.zeros(5), torch.ones(5), [(torch.zeros(4, 5), torch.zeros(1))], "relu")


def test_published_file_needs_its_activation_told():
    path = published_policy("Cartpole_seed0")
    with pytest.raises(ValueError, match="does not tell its activation"):
        Policy.load(path)
    policy = Policy.load(path, "tanh")
    checkpoint = read_torch_file(path)["model"]
    obs = torch.tensor([[0.3, -0.2, 0.5, 1.0]])
    mean, var = (checkpoint[f"running_mean_std.running_{k}"].float() for k in ("mean", "var"))
    hidden = ((obs - mean) / torch.sqrt(var + 1e-5)).clamp(-5, 5)
    for layer in ("actor_mlp.0", "actor_mlp.2"):
        w, b = (checkpoint[f"a2c_network.{layer}.{k}"] for k in ("weight", "bias"))
        hidden = torch.tanh(hidden @ w.T + b)
    expected = hidden @ checkpoint["a2c_network.mu.weight"].T + checkpoint["a2c_network.mu.bias"]
    torch.testing.assert_close(policy.act(obs), expected.clamp(-1, 1))


@pytest.mark.parametrize("fact", ["[" * 5000 + "]" * 5000, "9" * 5000], ids=["deep", "long"])
def test_facts_of_an_onnx_that_cannot_be_read_are_refused_by_name(tmp_path, fact):
    model = onnx_model(small_policy())
    model.metadata_props.add(key="odd", value=fact)
    path = tmp_path / "odd.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"odd\.onnx has facts"):
        OnnxPolicy.load(path)


@pytest.mark.parametrize("clip", [0.0, -1.0, 1e308, float("nan")])
def test_a_clip_that_bounds_nothing_is_refused(clip):
    weight, bias = torch.zeros(1, 2), torch.zeros(1)
    with pytest.raises(ValueError, match="clip is"):
        Policy(torch.zeros(2), torch.ones(2), [(weight, bias)], "relu", clip)


def test_a_memory_without_its_first_layer_is_refused_by_name(tmp_path):
    path = tmp_path / "forgetful.safetensors"
    recurrent_policy(nn.GRU).save(path)
    path.write_bytes(path.read_bytes().replace(b"rnn.weight_hh_l0", b"rnn.weight_hh_l9"))
    with pytest.raises(ValueError, match=r"forgetful\.safetensors"):
        Policy.load(path)
