"""Measured samples from a file: a CSV with a line of names, an NPZ with an array by name, or a generated HDF5."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import numpy as np

from nerd_gym.collision.scenes.columns import COLUMNS, OUTCOME, WIDE
from nerd_gym.data.hdf5 import array_in, attributes, open_hdf5

FORMATS = (".csv", ".npz", ".h5")
MOST_ROWS = 10**7


def read_samples(path: Path) -> dict[str, np.ndarray]:
    """Columns by name, [N] each."""
    if not path.is_file():
        raise FileNotFoundError(f"no samples at {path}")
    if path.suffix not in FORMATS:
        raise ValueError(f"{path} ends with {path.suffix!r}; samples are read from {', '.join(FORMATS)}")
    return {".csv": _csv, ".npz": _npz, ".h5": _hdf5}[path.suffix](path)


def _csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV: {error}") from error
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise ValueError(f"{path} has {len(rows)} lines; it must have one of names and at least one of numbers")
    names = [name.strip() for name in rows[0]]
    if len(set(names)) < len(names):
        raise ValueError(f"{path} has a column twice: {', '.join(names)}")
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise ValueError(f"{path} has {len(row)} numbers in line {number}; its first line has {len(names)} names")
    columns = {}
    for k, name in enumerate(names):
        try:
            columns[name] = np.array([float(row[k]) for row in rows[1:]])
        except ValueError as error:
            raise ValueError(f"{path} has a column {name!r} that is not numbers: {error}") from error
    return columns


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an NPZ of plain arrays: {error}") from error
    for name, values in columns.items():
        if values.ndim != 1 or values.dtype.kind not in "iuf" or len(values) > MOST_ROWS:
            raise ValueError(f"{path} has an array {name!r} of {values.dtype} {list(values.shape)}; valid: numbers [N]")
    return columns


def _hdf5(path: Path) -> dict[str, np.ndarray]:
    with open_hdf5(path) as file:
        names = WIDE if attributes(file).get("wide") else COLUMNS
        pre, post = (array_in(file, field, (None, len(n))) for field, n in (("pre", names), ("post", OUTCOME)))
    return dict(zip((*names, *OUTCOME), (*pre.T, *post.T), strict=True))
