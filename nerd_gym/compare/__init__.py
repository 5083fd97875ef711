"""The same policy on several backends: does it behave the same?"""

from .comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
