"""Trained actors of RL libraries as policies.

An actor is run once, and every layer is watched. Followed back from the action, the layers that passed it on must be
linear ones with one activation between them, up to the normalised observation; anything else is refused by name. So a
library's classes need not be known one by one, and nothing that an actor does besides is overlooked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from nerd_gym.utils.files import check_numbers, strip_prefix
from nerd_gym.utils.optional import require

from .policy import ACTIVATIONS, Layers, Policy, numbered_layers
from .torch_file import read_torch_file

Facts = dict[str, Any]
Normaliser = tuple[Tensor, Tensor, float | None]  # mean, std, clip
VALID = ", ".join(["Linear", *(kind.__name__ for kind in ACTIVATIONS.values())])


def from_sb3(model: Any, vec_normalize: Any = None, facts: Facts | None = None) -> Policy:
    """An actor of Stable-Baselines3, with the statistics of a VecNormalize."""
    policies = require("stable_baselines3.common.policies", extra="sb3")
    sac = require("stable_baselines3.sac.policies", extra="sb3")
    actor = model.policy
    squashed = isinstance(actor, sac.SACPolicy)
    if not (squashed or isinstance(actor, policies.ActorCriticPolicy)) or hasattr(actor, "lstm_actor"):
        valid = "ActorCriticPolicy, as PPO and A2C have it, SACPolicy"
        raise ValueError(f"cannot convert a {type(actor).__name__}; valid: {valid}")
    size = _size(model.observation_space, model.action_space)
    vec_normalize = vec_normalize or model.get_vec_normalize_env()
    normaliser = _identity(size)
    if vec_normalize is not None and vec_normalize.norm_obs:
        mean, var = (torch.as_tensor(np.array(x)) for x in (vec_normalize.obs_rms.mean, vec_normalize.obs_rms.var))
        normaliser = mean, torch.sqrt(var + vec_normalize.epsilon), vec_normalize.clip_obs
    # The statistics are the environment's: the actor itself sees normalised observations.
    actor = actor.actor if squashed else actor  # SAC's has critics beside it

    def act(obs: Tensor) -> Tensor:
        return actor.get_action_dist_params(obs)[0] if squashed else actor._predict(obs, deterministic=True)

    network = _follow(actor, act, _identity(size), actor.device)
    known = {"library": "stable-baselines3", "steps": model.num_timesteps, "seed": model.seed} | (facts or {})
    return Policy(*normaliser[:2], *network, normaliser[2], known, output="tanh" if squashed else "clip")


def from_rl_games(agent: Any, facts: Facts | None = None) -> Policy:
    """An actor of rl-games: an agent or a player."""
    model = getattr(agent.model, "_orig_mod", agent.model)  # as it was before torch.compile
    scaler = model.running_mean_std if model.normalize_input else None
    size = _size(agent.env_info["observation_space"], agent.env_info["action_space"])
    known = {"library": "rl-games"} | ({"steps": int(agent.frame)} if hasattr(agent, "frame") else {}) | (facts or {})
    if model.is_rnn():
        return _recurrent_rl_games(model, size, known)
    normaliser = _identity(size)
    if scaler is not None:
        normaliser = scaler.running_mean, torch.sqrt(scaler.running_var.float() + scaler.epsilon), 5.0

    def act(obs: Tensor) -> Tensor:
        return model({"is_train": False, "prev_actions": None, "obs": obs, "rnn_states": None})["mus"]

    network = _follow(model, act, normaliser, next(model.parameters()).device)
    return Policy(*normaliser[:2], *network, normaliser[2], known)


def _recurrent_rl_games(model: Any, size: int, facts: Facts) -> Policy:
    """Read from the weights, and compared over a few steps: layers tell less of a recurrent network."""
    network = model.a2c_network
    own: str = network.activation
    activation = {"swish": "silu"}.get(own, own)
    policy = _from_weights(model.state_dict(), activation, facts, "the agent", size)
    device, names = next(model.parameters()).device, [type(m).__name__ for m in (network.mu_act, network.actor_cnn)]
    if not network.is_rnn_before_mlp or names != ["Identity", "Sequential"]:
        raise ValueError("cannot convert this recurrent network; valid: before_mlp, no CNN, mu_activation None")
    state = tuple(torch.zeros(len(s), 8, s.shape[2], device=device) for s in model.get_default_rnn_state())
    for obs in policy.mean + 3 * policy.std * torch.randn(4, 8, size, generator=torch.Generator().manual_seed(0)):
        with _evaluating(model):
            out = model({"is_train": False, "prev_actions": None, "obs": obs.to(device), "rnn_states": state})
        state = out["rnn_states"]
        if not torch.allclose(out["mus"].cpu().clamp(-1, 1), policy.act(obs), rtol=1e-4, atol=1e-4):
            raise ValueError("cannot convert this recurrent network: its weights alone give other actions")
    policy.reset()
    return policy


def from_rl_games_file(path: str | Path, activation: str | None, facts: Facts | None = None) -> Policy:
    """A .pth of rl-games (torch_file.py). It tells no activations: the output is taken to have none."""
    if activation is None:
        raise ValueError(
            f"an rl-games file does not tell its activation ({path}); give one of {', '.join(ACTIVATIONS)}"
        )
    name, checkpoint = Path(path).name, read_torch_file(path)
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        raise ValueError(f"{name} is not an rl-games checkpoint: it has no model")
    odd = [key for key, value in checkpoint["model"].items() if not isinstance(value, Tensor) or type(key) is not str]
    if odd:
        raise ValueError(f"{name} is not an rl-games checkpoint: its model has {odd[0]!r}, which is no tensor")
    weights = {key.replace("_orig_mod.", ""): value for key, value in checkpoint["model"].items()}
    check_numbers(name, weights)
    known: Facts = {"library": "rl-games"}
    steps = checkpoint.get("frame")
    if isinstance(steps, (int, float)) and 0 <= steps < 2**53:
        known["steps"] = int(steps)
    try:
        policy = _from_weights(weights, activation, known | (facts or {}), name)
        policy.check_bounded()
    except (ValueError, RuntimeError, TypeError, IndexError, KeyError) as error:
        raise ValueError(f"{name} is not a whole policy: {error}") from error
    return policy


RL_GAMES_NAMES = re.compile(
    r"(running_mean_std|value_mean_std)\..*"
    r"|a2c_network\.((actor|critic)_mlp\.\d+|mu|sigma|value|([ac]_)?rnn\.rnn|([ac]_)?layer_norm)(\.\w+)?"
)


def _from_weights(
    weights: dict[str, Tensor], activation: str, facts: Facts, source: str, size: int | None = None
) -> Policy:
    """From the state_dict of an rl-games model; `size` of the observation, if the shapes need not tell it."""
    odd = [name for name in weights if not RL_GAMES_NAMES.fullmatch(name)]
    if odd or not {"a2c_network.mu.weight", "a2c_network.mu.bias"} <= weights.keys():
        raise ValueError(f"{source} is not a continuous policy of linear layers: it has {', '.join(odd) or 'no mu'}")
    memory = {}
    for own in ("", "a_"):  # one for actor and critic, or the actor's
        memory |= {f"rnn.{name}": value for name, value in strip_prefix(weights, f"a2c_network.{own}rnn.rnn.").items()}
        memory |= {
            f"norm.{name}": value for name, value in strip_prefix(weights, f"a2c_network.{own}layer_norm.").items()
        }
    layers = numbered_layers(weights, "a2c_network.actor_mlp.")
    layers.append((weights["a2c_network.mu.weight"], weights["a2c_network.mu.bias"]))
    inputs = memory["rnn.weight_ih_l0"] if memory else layers[0][0]
    normalised = "running_mean_std.running_mean" in weights
    if memory and size is None and (not normalised or layers[0][0].shape[-1] == inputs.shape[-1]):
        raise ValueError(f"{source} does not tell whether its memory stands before or after the MLP; give the agent")
    normaliser = _identity(inputs.shape[-1])
    if normalised:
        mean, var = (weights[f"running_mean_std.running_{name}"] for name in ("mean", "var"))
        normaliser = mean, torch.sqrt(var.float() + 1e-5), 5.0
    return Policy(*normaliser[:2], layers, activation, normaliser[2], facts, memory)


def from_rsl_rl(source: Any, facts: Facts | None = None) -> Policy:
    """The actor of an rsl_rl runner, or an actor."""
    modules = require("rsl_rl.modules", extra="rsl-rl")
    TensorDict = require("tensordict", extra="rsl-rl").TensorDict
    actor = source.alg.actor if hasattr(source, "alg") else source
    if getattr(actor, "is_recurrent", True):
        raise ValueError(f"cannot convert a {type(actor).__name__}; valid: MLPModel")
    if len(actor.obs_groups) != 1:
        raise ValueError(f"cannot convert an actor of observation groups {actor.obs_groups}; valid: one group")
    scaler, normaliser = actor.obs_normalizer, _identity(actor.obs_dim)
    if isinstance(scaler, modules.EmpiricalNormalization):
        normaliser = scaler.mean, scaler.std + scaler.eps, None

    def act(obs: Tensor) -> Tensor:
        return actor(TensorDict({actor.obs_groups[0]: obs}, batch_size=[len(obs)]))

    network = _follow(actor.mlp, act, normaliser, next(actor.parameters()).device)
    known = {"library": "rsl_rl"}
    if source is not actor:
        known |= {"iteration": source.current_learning_iteration}  # rsl_rl counts no steps without a log
    return Policy(*normaliser[:2], *network, normaliser[2], known | (facts or {}))


def from_skrl(agent: Any, facts: Facts | None = None) -> Policy:
    """The Gaussian policy of a skrl agent."""
    scalers = require("skrl.resources.preprocessors.torch", extra="skrl")
    actor = agent.policy
    scaler: Any = getattr(agent, "_observation_preprocessor", None)
    size = _size(actor.observation_space, actor.action_space)
    normaliser = _identity(size)
    if isinstance(scaler, scalers.RunningStandardScaler):
        std = torch.sqrt(scaler.running_variance.float()) + scaler.epsilon
        normaliser = scaler.running_mean, std, scaler.clip_threshold

    def act(obs: Tensor) -> Tensor:
        seen = obs if scaler is None else scaler(obs)
        return actor.compute({"observations": seen, "states": None}, "policy")[0]

    network = _follow(actor, act, normaliser, actor.device)
    return Policy(*normaliser[:2], *network, normaliser[2], {"library": "skrl"} | (facts or {}))


def _identity(size: int) -> Normaliser:
    return torch.zeros(size), torch.ones(size), None


def _size(observations: gymnasium.Space, actions: gymnasium.Space) -> int:
    """Length of an observation, if the spaces are such as this suite's environments have."""
    box = gymnasium.spaces.Box
    if not isinstance(observations, box) or len(observations.shape) != 1:
        raise ValueError(f"cannot convert a policy of observations {observations}; valid: a Box of one dimension")
    if not isinstance(actions, box) or not (np.all(actions.low == -1) and np.all(actions.high == 1)):
        raise ValueError(f"cannot convert a policy of actions {actions}; valid: a Box from -1 to 1")
    return observations.shape[0]


def _follow(
    actor: nn.Module, act: Callable[[Tensor], Tensor], normaliser: Normaliser, device: torch.device | str
) -> tuple[Layers, str]:
    """The linear layers and the activation between them, through which `act` takes an observation to an action."""
    mean, std, clip = normaliser
    mean, std = mean.detach().cpu().float(), std.detach().cpu().float()
    # Wide enough to reach the normaliser's limits.
    obs = mean + 3 * std * torch.randn(64, len(mean), generator=torch.Generator().manual_seed(0))
    calls = []
    leaves = [m for m in actor.modules() if not list(m.children()) and not isinstance(m, torch.jit.ScriptModule)]
    hooks = [m.register_forward_hook(lambda m, given, out: calls.append((m, given, out))) for m in leaves]
    try:
        with _evaluating(actor):
            action = tensor = act(obs.to(device))
    finally:
        for hook in hooks:
            hook.remove()
    chain: list[nn.Module] = []
    for module, given, out in reversed(calls):
        if isinstance(out, Tensor) and _same(out, tensor):
            tensor = given[0]
            if not isinstance(module, (nn.Identity, nn.Flatten, nn.Sequential)):
                chain.insert(0, module)
    layers, activation = _read(chain)
    seen = (obs - mean) / std
    seen = seen if clip is None else seen.clamp(-clip, clip)
    if tensor.shape != seen.shape or not torch.allclose(tensor.cpu().float(), seen, rtol=1e-4, atol=1e-4):
        raise ValueError(f"cannot convert a {type(actor).__name__} that does more than its layers {_names(chain)} do")
    expected = Policy(mean, std, layers, activation, clip).network(seen)
    if not torch.allclose(expected, action.cpu(), rtol=1e-4, atol=1e-4):
        raise ValueError(f"cannot convert a {type(actor).__name__}: its layers {_names(chain)} give other actions")
    return layers, activation


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """As it was afterwards, and random numbers too: a run may go on. A normaliser in training would learn."""
    modes = {m: m.training for m in module.modules()}
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            yield
    finally:
        for m, mode in modes.items():
            m.training = mode


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether both are one tensor, or views of all of it."""
    return a.data_ptr() == b.data_ptr() and a.numel() == b.numel()


def _read(chain: list[nn.Module]) -> tuple[Layers, str]:
    names = {kind: name for name, kind in ACTIVATIONS.items()}
    linear = [module for module in chain if isinstance(module, nn.Linear)]
    between = [type(module) for module in chain if not isinstance(module, nn.Linear)]
    odd = sorted({kind.__name__ for kind in between if kind not in names})
    if odd:
        raise ValueError(f"cannot convert layers {', '.join(odd)}; valid: {VALID}")
    ordered = all(isinstance(module, nn.Linear) == (k % 2 == 0) for k, module in enumerate(chain))
    if len(chain) % 2 == 0 or not ordered or len(set(between)) > 1:
        raise ValueError(
            f"cannot convert the layers {_names(chain)}; valid: linear layers with one activation between them, "
            "the last one's output unchanged"
        )
    layers = [(m.weight, torch.zeros(m.out_features) if m.bias is None else m.bias) for m in linear]
    return layers, names[between[0]] if between else "relu"


def _names(chain: list[nn.Module]) -> str:
    return f"({', '.join(type(module).__name__ for module in chain)})"
