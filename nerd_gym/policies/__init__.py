"""Policies: files that are kept, conversions from RL libraries, agents."""

from .policy import Memory, Policy, UnsafePolicy

__all__ = ["Memory", "Policy", "UnsafePolicy"]
