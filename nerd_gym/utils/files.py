"""Files that people keep: they appear when they are whole, and tensors carry their facts with them."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
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


def check_output(path: Path | None, folder: bool = False) -> None:
    """Refuse a path that no file, or folder, can be written to; told before the work that would fill it."""
    if path is None:
        return
    if path.exists() and path.is_dir() != folder:
        raise ValueError(f"{path} is {'no folder' if folder else 'a folder'}; choose another path to write to")
    there = path
    while not there.is_dir():
        if there.exists() and there != path:
            raise ValueError(f"cannot write to {path}: {there} is no folder")
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            return
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error} in {there}") from error


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
            text = (file.metadata() or {}).get("facts", "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, RuntimeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path.name} is not a safetensors file, or is damaged: {error}") from error
    return tensors, parse_facts(text, path.name)


def parse_facts(text: str, name: str) -> dict[str, Any]:
    """Facts of a file that errors call `name`: a json object, in which no number is none or infinite."""

    try:
        facts = plain_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} has facts that are not json: {error}") from error
    if not isinstance(facts, dict):
        raise ValueError(f"{name} has facts that are a {type(facts).__name__}; they must be a json object")
    return facts


def plain_json(text: str) -> Any:
    """A json value in which no number is none or infinite; RecursionError if it is nested too deeply."""
    return json.loads(text, parse_constant=lambda _: None, parse_float=lambda number: finite(float(number)))


def finite(value: Any) -> Any:
    """A nest of dicts and lists as json takes it: a number that is none or infinite becomes None."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_facts(name: str, facts: dict[str, Any], kinds: dict[str, tuple[type, ...]], needed: bool = True) -> None:
    """Refuse facts of the file `name` that miss one of these, or have it of another type (None: left out)."""
    for key, valid in kinds.items():
        value = facts.get(key)
        if value is None and not needed:
            continue
        if not isinstance(value, valid) or (isinstance(value, bool) and bool not in valid):
            words = " or ".join(kind.__name__ for kind in valid)
            raise ValueError(f"{name} has the fact {key} = {_short(value)}; it must be of type {words}")


def check_numbers(name: str, tensors: dict[str, Tensor], infinite: tuple[str, ...] = ()) -> None:
    """Refuse tensors of the file `name` that are no numbers, or infinite unless their name ends with one of these."""
    for key, value in tensors.items():
        if not value.is_floating_point():
            continue
        fine = ~value.isnan() if key.endswith(infinite) and infinite else value.isfinite()
        if not bool(fine.all()):
            raise ValueError(f"{name} has numbers in {key!r} that are not finite")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def file_hash(path: Path) -> str:
    """Sixteen hex digits that tell a file's content from any other."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def strip_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name starts with `prefix`, by the rest of it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
