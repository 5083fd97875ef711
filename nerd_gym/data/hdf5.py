"""HDF5 files of strangers: plain arrays and plain attributes of this very file, as large as the file itself at most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

PLAIN_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}  # no plugins
LARGEST_RATIO = 1000  # of numbers to compressed bytes
MOST_ATTRIBUTES, LONGEST_TEXT = 64, 2**20


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """A file to read; what the library finds wrong with it is a ValueError that names it."""
    if not path.is_file():
        raise FileNotFoundError(f"no file at {path}")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, RuntimeError, TypeError, OverflowError, MemoryError, UnicodeError) as error:
        raise ValueError(f"{path} is not a dataset in HDF5, or is damaged: {error}") from error


def attributes(file: h5py.File) -> dict[str, Any]:
    """What a file says of itself: texts and numbers."""
    if len(file.attrs) > MOST_ATTRIBUTES:
        raise ValueError(f"{file.filename} has {len(file.attrs)} attributes; at most {MOST_ATTRIBUTES} are read")
    out: dict[str, Any] = {}
    for name in file.attrs:
        kind = file.attrs.get_id(name)
        text = h5py.check_string_dtype(kind.dtype)
        if kind.shape != () or (text is None and kind.dtype.kind not in "iufb"):
            raise ValueError(f"{file.filename} has an attribute {name!r} that is neither a text nor a number")
        value = file.attrs[name]
        value = value.decode() if isinstance(value, bytes) else value
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise ValueError(f"{file.filename} has an attribute {name!r} of {len(value)} characters")
        out[str(name)] = value.item() if isinstance(value, np.generic) else value
    return out


def array_in(file: h5py.File, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """A float32 array of the file, finite and of this shape; None stands for any length."""
    where = f"{file.filename} has an array {name!r}"
    if name not in file or not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"{file.filename} has no array {name!r} of its own")
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise ValueError(f"{file.filename} has no array {name!r}, but a {type(found).__name__} of that name")
    if found.is_virtual or found.external:
        raise ValueError(f"{where} whose numbers are in other files, which are not read")
    if found.dtype.kind != "f" or found.dtype.itemsize > 8:
        raise ValueError(f"{where} of type {found.dtype}; it must be float32")
    if (
        found.shape is None
        or len(found.shape) != len(shape)
        or any(s not in (None, n) for s, n in zip(shape, found.shape))
    ):
        words = ", ".join("any" if s is None else str(s) for s in shape)
        raise ValueError(f"{where} of shape {found.shape}; it must have [{words}]")
    plist = found.id.get_create_plist()
    filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
    if filters - PLAIN_FILTERS:
        raise ValueError(f"{where} with filters {sorted(filters)}; valid: {sorted(PLAIN_FILTERS)}")
    stored = found.id.get_storage_size() * (LARGEST_RATIO if filters else 1)
    if found.nbytes > stored:
        raise ValueError(f"{where} of {found.nbytes} bytes, of which the file holds {found.id.get_storage_size()}")
    values = np.asarray(found[()], np.float32)
    if not np.isfinite(values).all():
        raise ValueError(f"{where} with numbers that are not finite")
    return values
