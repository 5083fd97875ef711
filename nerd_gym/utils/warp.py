"""Starting Warp."""

from __future__ import annotations

import warp as wp


def init_warp() -> None:
    """Start Warp without its banner and its line per module; compiling is announced by load_with_notice."""
    if wp.config.log_level == wp.LOG_INFO:  # the user has not asked for another level
        wp.config.log_level = wp.LOG_WARNING
    wp.init()
