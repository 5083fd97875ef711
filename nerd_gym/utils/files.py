"""Files that people keep: they appear when they are whole, and tensors carry their facts with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` if the block ends well, and is removed if it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """A safetensors file with facts as json in its metadata."""
    from safetensors.torch import save

    with atomic_write(path) as part:  # not save_file, which keeps the file from everyone but its owner
        part.write_bytes(
            save({name: value.cpu().contiguous() for name, value in tensors.items()}, {"facts": json.dumps(facts)})
        )


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts; no code is run."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file, or is damaged: {error}") from error


def file_hash(path: Path) -> str:
    """Sixteen hex digits that tell a file's content from any other."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def strip_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name starts with `prefix`, by the rest of it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
