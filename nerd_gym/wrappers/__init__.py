"""Wrappers around NerdVectorEnv and NerdEnv, and adapters to RL libraries, which are imported on first use."""

from importlib import import_module

from .record_video import RecordVideo
from .reference_observation import ReferenceObservation, SingleReferenceObservation
from .statistics import RecordEpisodeStatistics

_ADAPTERS = {
    "Sb3VecEnv": "sb3",
    "RlGamesVecEnv": "rl_games",
    "register_rl_games": "rl_games",
    "RslRlVecEnv": "rsl_rl",
    "SkrlEnv": "skrl",
    "FinalObservations": "skrl",
}
# Without the adapters: a star import shall not need every RL library.
__all__ = ["RecordEpisodeStatistics", "RecordVideo", "ReferenceObservation", "SingleReferenceObservation"]


def __getattr__(name: str):
    if name in _ADAPTERS:
        return getattr(import_module(f".{_ADAPTERS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join((*__all__, *_ADAPTERS))}")
