"""NerdVectorEnv: a batch of one task on one backend. The only place with Gymnasium's semantics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from nerd_gym.backends import make_backend
from nerd_gym.registration import env_spec
from nerd_gym.robots.state import rows_within
from nerd_gym.utils.device import torch_device

from .options import chosen_backend, split_options
from .random import Starts, draw_starts
from .task import State, make_config

RENDER_MODES = ("rgb_array", "human")
ARRAYS = ("numpy", "torch")
UNIT_TOLERANCE = 0.01  # of the length of a quaternion that a user gives


class NerdVectorEnv(VectorEnv, EzPickle):
    """N environments in one batch of torch tensors.

    Args:
        env_id: one of ``nerd_gym.registration.ENVS``.
        num_envs: N.
        backend: one of ``nerd_gym.backends.BACKENDS``; None for the default.
        physics: the same by another name, for programs that take ``backend=`` for themselves (TorchRL).
        device: where the tensors live.
        array: what step and reset return, ``"numpy"`` or ``"torch"``; on the CPU neither is a copy.
        autoreset_mode: SAME_STEP; NEXT_STEP, where the step after an episode's last one resets the row and ignores its
            action; or DISABLED with resets through ``options={"reset_mask": mask}``.
        max_episode_steps: the horizon; None for none.
        render_mode: None, ``"rgb_array"`` or ``"human"``.
        options: options of the task (its config's fields) and of the backend (its ``options``).

    ``info`` of a step holds ``reward_terms`` [N, K], whose columns ``env.reward_terms`` names (TorchRL takes no
    dict there), ``diverged`` [N], what the backend adds (``model_trust`` [N] of a learned one), and with SAME_STEP
    ``final_obs`` and ``final_info`` with their masks ``_final_obs`` and ``_final_info``: what the step led to before
    the rows of the mask were reset. With NEXT_STEP the step that resets a row reports nothing of it but the start:
    reward and terms 0, not diverged; what the backend adds means nothing there.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        backend: str | None = None,
        physics: str | None = None,
        device: torch.device | str = "cpu",
        array: Literal["numpy", "torch"] = "numpy",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **options: Any,
    ):
        EzPickle.__init__(
            self,
            env_id,
            num_envs,
            backend=backend,
            physics=physics,
            device=device,
            array=array,
            autoreset_mode=autoreset_mode,
            max_episode_steps=max_episode_steps,
            render_mode=render_mode,
            **options,
        )
        spec = env_spec(env_id)
        backend = chosen_backend(spec, backend, physics)
        task_class = spec.task_class()
        task_options, backend_options = split_options(task_class, backend, options)
        config = make_config(task_class.config_class, task_options)
        _one_of("array", array, ARRAYS)
        _one_of("render_mode", render_mode, (None, *RENDER_MODES))
        self.autoreset_mode = _autoreset(autoreset_mode)
        self.array = array
        self.render_mode = render_mode
        self.num_envs = int(num_envs)
        self.horizon = max_episode_steps
        self.device = torch_device(device)

        robot = task_class.robot_of(config)
        self.task = task_class(robot, config, self.device)
        self.backend = make_backend(backend, robot, self.num_envs, self.device, **backend_options)
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": round(1 / self.task.picture_dt),
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.task.obs_size,), np.float32)
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.task.action_size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

        def counter() -> Tensor:
            return torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)

        self._steps, self._episodes = counter(), counter() - 1
        self._ended = counter().bool()  # rows that the next step resets; with NEXT_STEP alone
        self._seeds: Tensor | None = None
        self._ahead: Starts | None = None
        # What the task sees: pass it to the task's functions to ask for an observation, a reward or joint forces.
        self.state = State(self.backend, torch.zeros(self.num_envs, self.task.goal_size, device=self.device))
        self._renderer = None
        self.watch: Callable[[], Any] | None = None  # called for every picture that a film shows within a step
        nothing = torch.zeros(self.num_envs, self.task.action_size, device=self.device)
        force = torch.zeros(self.num_envs, robot.nj, device=self.device)
        self.reward_terms = tuple(self.task.reward(self.state, nothing, force)[1])

    # Gymnasium's methods.

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start anew: every row, or those of ``options["reset_mask"]`` (numpy or torch, [N] bool).

        ``options["state"]``, q [N, nq] and qd [N, nv], is where they start instead of where the task would have them.
        """
        mask = self._reset_mask(options)
        state = self._given_state(options, mask)
        first = seed if isinstance(seed, (int, np.integer)) or seed is None else None
        super().reset(seed=first, options=options)
        self._start_episodes(mask, self._take_seed(seed, mask))
        self._ended = self._ended & ~mask
        if state is not None:
            self.backend.reset(mask, *state)
        info = {"diverged": torch.zeros_like(mask)}
        return self._out(self.task.observe(self.state)), self._out(info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One action for every row, [N, action_size]."""
        seeds = self._seeds
        if seeds is None:
            raise gymnasium.error.ResetNeeded("step() was called before the first reset()")
        task, backend, state = self.task, self.backend, self.state
        action = self._in(actions)
        next_step, ended = self.autoreset_mode is AutoresetMode.NEXT_STEP, self._ended
        resets = next_step and backend.may_hold(ended)
        if resets:
            # The batch moves as a whole: a row to be reset makes a frame too, which is then forgotten.
            action = torch.where(ended[:, None], 0.0, action)
        diverged = torch.zeros_like(backend.healthy)
        any_diverged = False
        for part in task.drive(action, state):
            if part.place is not None:
                backend.reset(*part.place)
            force = part.force
            backend.step(force, part.rows, part.frames)
            if backend.any_unhealthy:
                any_diverged, diverged = True, diverged | ~backend.healthy
            if part.picture and self.watch is not None:
                self.watch()
        self._steps += 1
        reward, parts = task.reward(state, action, force)
        terms = torch.stack(tuple(parts.values()), -1)
        terminated = task.terminated(state)
        truncated = diverged.clone() if self.horizon is None else diverged | (self._steps >= self.horizon)
        if any_diverged:
            # A diverged row stands at its last healthy state, whose reward was already given.
            reward = torch.where(diverged, 0.0, reward)
            terms = torch.where(diverged[:, None], 0.0, terms)
            terminated = terminated & ~diverged
        if (goal := task.next_goal(state)) is not None:
            state.goal = goal
        added = backend.info()
        if resets:
            reward = torch.where(ended, 0.0, reward)
            terms = torch.where(ended[:, None], 0.0, terms)
            terminated, truncated, diverged = (x & ~ended for x in (terminated, truncated, diverged))
            self._start_episodes(ended, seeds)
        if next_step:
            self._ended = terminated | truncated
        obs = task.observe(state)
        info: dict[str, Any] = {"reward_terms": terms, "diverged": diverged, **added}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            done = terminated | truncated
            final = {"diverged": diverged.clone(), "steps": self._steps.clone()}
            info |= {"final_obs": obs, "_final_obs": done, "final_info": final, "_final_info": done.clone()}
            if backend.may_hold(done):
                self._start_episodes(done, seeds)
                obs = torch.where(done[:, None], task.observe(state), obs)
            else:
                obs = obs.clone()
        return tuple(self._out(x) for x in (obs, reward, terminated, truncated, info))

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A frame of every row in the mode rgb_array; a window on the first in the mode human."""
        if self.render_mode is None:
            gymnasium.logger.warn(f"render() was called without a render_mode; valid: {', '.join(RENDER_MODES)}")
            return None
        if self.render_mode == "human":
            self.renderer.show(self, 0)
            return None
        return tuple(self.renderer.frame(self, row) for row in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Give back threads and windows."""
        self.backend.close()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    # Beyond Gymnasium.

    @property
    def episode_steps(self) -> Tensor:
        """Steps [N] of the episodes under way; to write into it is to change their age."""
        return self._steps

    @property
    def renderer(self):
        """Draws the rows; made on first use."""
        if self._renderer is None:
            from .render import Renderer

            self._renderer = Renderer(self.backend.robot)
        return self._renderer

    def measures(self) -> dict[str, Tensor]:
        """How well the task is done at the current state, [N] each."""
        return self.task.measures(self.state)

    @property
    def goal(self) -> Tensor:
        """[N, goal_size] of the episodes under way."""
        return self.state.goal

    def snapshot(self) -> dict[str, Any]:
        """Everything that decides what comes next, for :meth:`restore`."""
        return {
            "backend": self.backend.snapshot(),
            "steps": self._steps.clone(),
            "episodes": self._episodes.clone(),
            "ended": self._ended.clone(),
            "seeds": None if self._seeds is None else self._seeds.clone(),
            "goal": self.state.goal.clone(),
        }

    def restore(self, snapshot: dict[str, Any]) -> Any:
        """Go back to a snapshot, to the bit; returns the observation there."""
        self.backend.restore(snapshot["backend"])
        self._steps.copy_(snapshot["steps"])
        self._episodes.copy_(snapshot["episodes"])
        self._ended = snapshot.get("ended", torch.zeros_like(self._ended)).clone()  # runs of before have none
        self._seeds = None if snapshot["seeds"] is None else snapshot["seeds"].clone()
        self._ahead = None
        self.state.goal = snapshot["goal"].clone()
        return self._out(self.task.observe(self.state))

    # Within.

    def _start_episodes(self, mask: Tensor, seeds: Tensor) -> None:
        task, backend = self.task, self.backend
        self._episodes += mask
        self._steps.masked_fill_(mask, 0)
        starts = self._starts(mask, seeds) if backend.host_checks else draw_starts(task, seeds, self._episodes)
        if starts.goal is not None:
            self.state.goal = torch.where(mask[:, None], starts.goal, self.state.goal)
        backend.reset(mask, starts.q, starts.qd, starts.ground)

    @torch.inference_mode(False)  # or nobody could write to them outside that mode later
    def _starts(self, mask: Tensor, seeds: Tensor) -> Starts:
        """Where the masked rows start their episodes.

        Most often few rows start anew, and drawing for one costs as much as for all. So the next start of every row is
        drawn ahead, again for all rows that need one as soon as a row has none; where it costs nothing to ask.
        """
        if self._ahead is None:
            self._ahead = draw_starts(self.task, seeds, self._episodes + ~mask)
        elif bool((mask & (self._ahead.episode != self._episodes)).any()):
            due = self._episodes + ~mask
            rows = (self._ahead.episode != due).nonzero().squeeze(1)
            self._ahead.put(rows, draw_starts(self.task, seeds[rows], due[rows]))
        return self._ahead

    def _take_seed(self, seed: int | Sequence[int] | None, mask: Tensor) -> Tensor:
        """The seeds [N] of the rows, those of the mask from now on by `seed` if one is given."""
        if seed is None and self._seeds is not None:
            return self._seeds
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        if isinstance(seed, (int, np.integer)):
            seeds = int(seed) + torch.arange(self.num_envs)
        else:
            if len(seed) != self.num_envs:
                raise ValueError(f"{len(seed)} seeds were given for {self.num_envs} environments")
            drawn = self.np_random.integers(2**31, size=self.num_envs)
            seeds = torch.tensor([int(drawn[i]) if s is None else int(s) for i, s in enumerate(seed)])
        seeds = seeds.to(self.device)
        self._seeds = seeds = seeds if self._seeds is None else torch.where(mask, seeds, self._seeds)
        self._episodes.masked_fill_(mask, -1)
        self._ahead = None
        return seeds

    def _reset_mask(self, options: dict[str, Any] | None) -> Tensor:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        mask = torch.as_tensor(mask, device=self.device)
        if mask.shape != (self.num_envs,) or mask.dtype != torch.bool:
            shape, dtype = tuple(mask.shape), mask.dtype
            raise ValueError(f"reset_mask is {dtype} of shape {shape}; it must be bool of shape ({self.num_envs},)")
        if self._seeds is None and self.backend.may_hold(~mask):
            raise gymnasium.error.ResetNeeded("the first reset() must be of every environment")
        return mask

    def _given_state(self, options: dict[str, Any] | None, mask: Tensor) -> tuple[Tensor, Tensor] | None:
        """``options["state"]``, if the masked rows may start there."""
        if (state := (options or {}).get("state")) is None:
            return None
        q, qd = (torch.as_tensor(x, dtype=torch.float32, device=self.device) for x in state)
        for name, given, shape in (("q", q, self.backend.q.shape), ("qd", qd, self.backend.qd.shape)):
            if given.shape != shape:
                raise ValueError(f"{name} of the state has shape {tuple(given.shape)}; it must have {tuple(shape)}")
        healthy = rows_within(q, qd, self.backend.q_limit, self.backend.qd_limit)
        if self.task.robot.free_base:
            healthy &= (q[:, 3:7].norm(dim=-1) - 1).abs() < UNIT_TOLERANCE
        wrong = mask & ~healthy
        if bool(wrong.any()):  # whoever gives states to start from can wait for the answer
            row = int(wrong.nonzero()[0])
            raise ValueError(
                f"the state of row {row} is not a start: it must be finite, within the backend's range, and have a "
                f"quaternion of length 1; it is q = {q[row].tolist()}, qd = {qd[row].tolist()}"
            )
        refused = self.task.refused_start(q, qd)
        if refused is not None and bool((wrong := mask & refused[0]).any()):
            row = int(wrong.nonzero()[0])
            raise ValueError(f"the state of row {row} is not a start: {refused[1]}; it is q = {q[row].tolist()}")
        return q, qd

    def _in(self, actions: Any) -> Tensor:
        action = torch.as_tensor(actions, dtype=torch.float32, device=self.device)
        if action.shape != self.action_space.shape:
            raise ValueError(f"actions have shape {tuple(action.shape)}; they must have {self.action_space.shape}")
        return action

    def _out(self, value: Any) -> Any:
        if self.array == "torch":
            return value
        if isinstance(value, dict):
            return {key: self._out(item) for key, item in value.items()}
        return value.cpu().numpy()


def _autoreset(mode: AutoresetMode | str) -> AutoresetMode:
    valid = {m.value: m for m in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)}
    value = mode.value if isinstance(mode, AutoresetMode) else mode
    if value not in valid:
        raise ValueError(f"unknown autoreset_mode {mode!r}; valid: {', '.join(valid)}")
    return valid[value]


def _one_of(what: str, value: Any, valid: Sequence[Any]) -> None:
    if value not in valid:
        raise ValueError(f"unknown {what} {value!r}; valid: {', '.join(map(repr, valid))}")
