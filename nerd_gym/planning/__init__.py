"""Plans: the best of many action sequences from one start, on any backend.

``rollouts.py`` carries out a batch of candidates, ``search.py`` proposes them (CMA-ES, CEM, random shooting),
``planner.py`` brings both together, ``result.py`` is what comes out, ``execution.py`` carries a plan out elsewhere.
"""

from .planner import plan
from .result import Plan

__all__ = ["Plan", "plan"]
