"""NerdVectorEnv as rl-games takes it: torch tensors without a copy."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv
from torch import Tensor

from nerd_gym.utils.optional import require

from .base import StepMeans, mean_names, time_outs, torch_env

IVecEnv = require("rl_games.common.ivecenv", extra="rl-games").IVecEnv


class RlGamesVecEnv(IVecEnv):
    """A batch for rl-games' runners and players.

    ``infos`` is the environment's info with ``time_outs`` [N], from which rl-games bootstraps (with the value of the
    state before the step: it never sees the final observation), and ``episode``, means that its
    ``IsaacAlgoObserver`` logs. An adapter of your own making goes into the config as ``vec_env``, with its
    ``env_info``, through ``Runner.load_config``: ``Runner.load`` would copy it.
    """

    def __init__(self, env: VectorEnv):
        self.env = env
        self.native = torch_env(env)
        self._means = mean_names(self.native)
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self._seed: int | None = None

    def seed(self, seed: int | None) -> None:
        """The seed of the next reset."""
        self._seed = seed

    def reset(self) -> dict[str, Tensor]:
        obs, _ = self.env.reset(seed=self._seed)
        self._seed = None
        return {"obs": obs}

    def step(self, actions: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        infos = info | {"time_outs": time_outs(terminated, truncated), "episode": StepMeans(self._means, info)}
        return {"obs": obs}, reward, info["_final_obs"], infos

    def get_env_info(self) -> dict[str, Any]:
        """Spaces of one row, and that there is one agent in each."""
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "state_space": None,
            "use_global_observations": False,
            "agents": self.get_number_of_agents(),
            "value_size": 1,
        }

    def render(self, mode: str = "human") -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def register_rl_games(name: str = "nerd") -> None:
    """Let rl-games make environments: ``env_name: nerd``, and ``env_config`` with ``env_id`` and its options.

    Training makes ``num_actors`` rows, a player one, or ``num_envs`` of ``player.env_config``.
    """

    def create(env_id: str, num_envs: int = 1, seed: int | None = None, **options: Any) -> RlGamesVecEnv:
        env = RlGamesVecEnv(gymnasium.make_vec(env_id, num_envs=num_envs, array="torch", **options))
        env.seed(seed)
        return env

    def create_batch(config_name: str, num_actors: int, **config: Any) -> RlGamesVecEnv:
        return create(num_envs=num_actors, **config)

    require("rl_games.common.vecenv", extra="rl-games").register("NERD", create_batch)
    configurations = require("rl_games.common.env_configurations", extra="rl-games")
    configurations.register(name, {"vecenv_type": "NERD", "env_creator": create})
