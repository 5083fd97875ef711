"""Policies: files that are kept, conversions from RL libraries, agents."""

from .policy import Memory, Policy
from .torch_file import UnsafePolicy

__all__ = ["Memory", "Policy", "UnsafePolicy"]
