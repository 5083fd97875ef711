"""Yaml from strangers: plain values only, without what makes a small file large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

LARGEST = 2**20  # bytes; a config has some kB
DEEPEST = 20  # levels


class _PlainLoader(yaml.SafeLoader):
    """A safe loader without aliases, a few of which multiply to gigabytes, and with bounded depth."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise ValueError(f"line {event.start_mark.line + 1} repeats *{event.anchor}; aliases are not read")
        if self._depth >= DEEPEST:
            raise ValueError(f"line {self.peek_event().start_mark.line + 1} is nested more than {DEEPEST} levels deep")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def load_yaml(path: Path) -> Any:
    """The value of a yaml file; an error names the file and the place."""
    if not path.is_file():
        raise FileNotFoundError(f"no config at {path}")
    size = path.stat().st_size
    if size > LARGEST:
        raise ValueError(f"{path.name} has {size} bytes; a config has at most {LARGEST}")
    try:
        return yaml.load(path.read_bytes(), _PlainLoader)  # which is a safe loader
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{path.name} is not a plain yaml file: {error}") from error
