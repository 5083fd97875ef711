"""The smallest PPO of each RL library: to train with, or to ask for the returns of one rollout of a known critic.

Each function takes an environment and the steps of a rollout. ``train`` gives the network's parameters before and
after; ``returns`` gives what PPO would regress its critic on, [steps, N], if that critic were weight * sum(obs) + bias.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

GAMMA, LAMBDA = 0.8, 0.9


def set_critic(linear: torch.nn.Linear, weight: float, bias: float) -> None:
    torch.nn.init.constant_(linear.weight, weight)
    torch.nn.init.constant_(linear.bias, bias)


def changed(module: torch.nn.Module, train) -> tuple[torch.Tensor, torch.Tensor]:
    def flat():
        return torch.cat([p.detach().flatten().clone() for p in module.parameters()])

    before = flat()
    train()
    return before, flat()


# Stable-Baselines3


def sb3_model(env, steps, lam=LAMBDA):
    from stable_baselines3 import PPO

    from nerd_gym.wrappers import Sb3VecEnv

    options = {"gamma": GAMMA, "gae_lambda": lam, "policy_kwargs": {"net_arch": []}, "device": "cpu", "seed": 3}
    return PPO("MlpPolicy", Sb3VecEnv(env), n_steps=steps, batch_size=steps * env.num_envs, n_epochs=2, **options)


def sb3_train(env, steps, iterations, folder):
    model = sb3_model(env, steps)
    return changed(model.policy, lambda: model.learn(iterations * steps * env.num_envs))


def sb3_returns(env, steps, weight, bias, lam, folder):
    model = sb3_model(env, steps, lam)
    set_critic(model.policy.value_net, weight, bias)
    _, callback = model._setup_learn(steps * env.num_envs)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, steps)
    return torch.as_tensor(model.rollout_buffer.returns)


# rl-games


def rl_games_runner(steps, num_envs, folder, lam=LAMBDA, iterations=1, network=None, **config):
    from rl_games.torch_runner import Runner

    runner = Runner()
    units = {"units": [8], "activation": "elu", "initializer": {"name": "default"}}
    space = {
        "mu_activation": "None",
        "sigma_activation": "None",
        "mu_init": {"name": "default"},
        "sigma_init": {"name": "const_initializer", "val": 0},
        "fixed_sigma": True,
    }
    runner.load_config(
        {
            "seed": 3,
            "torch_threads": 0,
            "algo": {"name": "a2c_continuous"},
            "model": {"name": "continuous_a2c_logstd"},
            "network": {
                "name": "actor_critic",
                "separate": False,
                "space": {"continuous": space},
                "mlp": units,
                **(network or {}),
            },
            "config": {
                "name": "test",
                "env_name": "nerd",
                "train_dir": str(folder),
                "device": "cpu",
                "device_name": "cpu",
                "torch_compile": False,
                "num_actors": num_envs,
                "horizon_length": steps,
                "seq_length": 1,
                "minibatch_size": steps * num_envs,
                "mini_epochs": 2,
                "max_epochs": iterations,
                "gamma": GAMMA,
                "tau": lam,
                "e_clip": 0.2,
                "critic_coef": 1.0,
                "entropy_coef": 0.0,
                "bounds_loss_coef": 1e-4,  # without it rl-games 1.6.5 fails on a loss that is an int
                "clip_value": False,
                "learning_rate": 1e-3,
                "lr_schedule": None,
                "grad_norm": 1.0,
                "truncate_grads": True,
                "normalize_input": False,
                "normalize_value": False,
                "normalize_advantage": True,
                "ppo": True,
                "reward_shaper": {"scale_value": 1.0},
                "score_to_win": 1e9,
                "save_best_after": 1000,
                "save_frequency": 0,
                **config,
            },
        }
    )
    return runner


def rl_games_agent(env, steps, folder, **options):
    from nerd_gym.wrappers import RlGamesVecEnv

    vec_env = RlGamesVecEnv(env)
    config = {"vec_env": vec_env, "env_info": vec_env.get_env_info()}
    runner = rl_games_runner(steps, env.num_envs, folder, **options, **config)
    return runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)


def rl_games_train(env, steps, iterations, folder):
    agent = rl_games_agent(env, steps, folder, iterations=iterations)
    return changed(agent.model, agent.train)


def rl_games_returns(env, steps, weight, bias, lam, folder):
    agent = rl_games_agent(env, steps, folder, lam=lam)
    get_action_values = agent.get_action_values

    # The value head sits on hidden units that the actor shares; the known critic takes its place.
    def critic(obs):
        return weight * obs["obs"].sum(-1, keepdim=True) + bias

    agent.get_action_values = lambda obs: get_action_values(obs) | {"values": critic(obs)}
    agent.get_values = critic
    agent.init_tensors()
    agent.obs = agent.env_reset()
    agent.set_eval()
    with torch.no_grad():
        flat = agent.play_steps()["returns"]  # row by row
    return flat.view(env.num_envs, steps).T


# rsl_rl


def rsl_rl_runner(env, steps, folder=None, lam=LAMBDA, **actor):
    from rsl_rl.runners import OnPolicyRunner

    from nerd_gym.wrappers import RslRlVecEnv

    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu", "obs_normalization": False}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    config = {
        "num_steps_per_env": steps,
        "save_interval": 1000,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**network, "distribution_cfg": gaussian, **actor},
        "critic": dict(network),
        "algorithm": {"class_name": "PPO", "gamma": GAMMA, "lam": lam, "num_mini_batches": 1},
    }
    return OnPolicyRunner(RslRlVecEnv(env, seed=3), config, log_dir=folder and str(folder), device="cpu")


def rsl_rl_train(env, steps, iterations, folder):
    runner = rsl_rl_runner(env, steps, folder)
    return changed(runner.alg.actor, lambda: runner.learn(iterations, init_at_random_ep_len=True))


def rsl_rl_returns(env, steps, weight, bias, lam, folder):
    runner = rsl_rl_runner(env, steps, lam=lam)
    alg = runner.alg
    alg.critic.forward = lambda obs, **_: weight * obs["policy"].sum(-1, keepdim=True) + bias
    obs = runner.env.get_observations()
    with torch.inference_mode():
        for _ in range(steps):
            obs, *rest = runner.env.step(alg.act(obs))
            alg.process_env_step(obs, *rest)
        alg.compute_returns(obs)
    return alg.storage.returns[..., 0].clone()


# skrl


def skrl_trainer(env, steps, iterations=1, lam=LAMBDA, final=True, learning_rate=1e-3, **config):
    from skrl.agents.torch.ppo import PPO
    from skrl.memories.torch import RandomMemory
    from skrl.trainers.torch import SequentialTrainer
    from skrl.utils.model_instantiators.torch import deterministic_model, gaussian_model

    from nerd_gym.wrappers import FinalObservations, SkrlEnv

    class TruePPO(FinalObservations, PPO):
        pass

    wrapped = SkrlEnv(env, seed=3)
    spaces = {"observation_space": wrapped.observation_space, "action_space": wrapped.action_space, "device": "cpu"}
    network = [{"name": "net", "input": "OBSERVATIONS", "layers": [8], "activations": "elu"}]
    models = {
        "policy": gaussian_model(**spaces, network=network, output="ACTIONS"),
        "value": deterministic_model(**spaces, network=network, output="ONE"),
    }
    cfg = {
        "rollouts": steps,
        "learning_epochs": 2,
        "mini_batches": 1,
        "learning_rate": learning_rate,
        "discount_factor": GAMMA,
        "gae_lambda": lam,
        "time_limit_bootstrap": True,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        **config,
    }
    for role, model in models.items():
        model.init_state_dict(role=role)
    memory = RandomMemory(memory_size=steps, num_envs=env.num_envs, device="cpu")
    agent = (TruePPO if final else PPO)(models=models, memory=memory, cfg=cfg, **spaces)
    config = {"timesteps": iterations * steps, "disable_progressbar": True, "close_environment_at_exit": False}
    return SequentialTrainer(env=wrapped, agents=agent, cfg={**config, "environment_info": "log"})


def skrl_train(env, steps, iterations, folder):
    trainer = skrl_trainer(env, steps, iterations)
    return changed(trainer.agents.policy, trainer.train)


def skrl_returns(env, steps, weight, bias, lam, folder, final=True):
    trainer = skrl_trainer(env, steps, lam=lam, final=final, learning_rate=0.0)
    agent = trainer.agents

    def value(inputs, role):
        return weight * inputs["observations"].sum(-1, keepdim=True) + bias, {}

    agent.value.compute = value
    trainer.train()
    return agent.memory.get_tensor_by_name("returns")[..., 0].clone()


LIBRARIES = {
    "sb3": SimpleNamespace(package="stable_baselines3", train=sb3_train, returns=sb3_returns),
    "rl_games": SimpleNamespace(package="rl_games", train=rl_games_train, returns=rl_games_returns),
    "rsl_rl": SimpleNamespace(package="rsl_rl", train=rsl_rl_train, returns=rsl_rl_returns),
    "skrl": SimpleNamespace(package="skrl", train=skrl_train, returns=skrl_returns),
}
