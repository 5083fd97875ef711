"""Policies from RL libraries: one command trains in any backend with any of them.

``train.py`` is the run (resumable, seeded, with a curve), ``configs.py`` reads what a library is told, one yaml per
library in its own format, and one file per library drives it.
"""
