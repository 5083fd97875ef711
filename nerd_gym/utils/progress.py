"""One kind of progress bar: lively on a terminal, quiet in a log."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def progress(iterable: Any = None, **kwargs: Any) -> tqdm:
    """A tqdm bar with an estimate of the time left; in a log a line every ten seconds at most."""
    live = sys.stderr.isatty()
    return tqdm(iterable, mininterval=0.1 if live else 10.0, dynamic_ncols=live, **kwargs)
