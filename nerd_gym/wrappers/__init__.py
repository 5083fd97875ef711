"""Wrappers around NerdVectorEnv and NerdEnv."""

from .record_video import RecordVideo
from .reference_observation import ReferenceObservation, SingleReferenceObservation
from .statistics import RecordEpisodeStatistics

__all__ = ["RecordEpisodeStatistics", "RecordVideo", "ReferenceObservation", "SingleReferenceObservation"]
