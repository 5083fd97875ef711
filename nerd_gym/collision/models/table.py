"""Columns by name: plain arrays in, one tensor out, or an error that names the column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

Table = Mapping[str, Any] | Tensor  # arrays by name, or a tensor [N, C] with the columns in order
LEAST_SAMPLES = 3


def to_tensor(table: Table, columns: tuple[str, ...], what: str) -> Tensor:
    """[N, C], finite, with these columns in this order; others in a mapping are left out."""
    if isinstance(table, Tensor):
        if table.ndim != 2 or table.shape[1] != len(columns):
            raise ValueError(
                f"{what} has shape {list(table.shape)}; it must be [N, {len(columns)}]: {', '.join(columns)}"
            )
        return table.float()
    if not isinstance(table, Mapping):
        raise ValueError(f"{what} is a {type(table).__name__}; valid: arrays by name, or a tensor [N, {len(columns)}]")
    missing = [name for name in columns if name not in table]
    if missing:
        given = ", ".join(map(str, table)) or "none"
        raise ValueError(
            f"{what} has no column {', '.join(map(repr, missing))}; needed: {', '.join(columns)}; given: {given}"
        )
    arrays = {name: _array(table[name], name, what) for name in columns}
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{what} has columns of several lengths: {', '.join(f'{n} {k}' for n, k in lengths.items())}")
    return torch.stack(list(arrays.values()), -1)


def _array(values: Any, name: str, what: str) -> Tensor:
    try:
        array = values.float() if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values, np.float32))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what} has a column {name!r} that is not numbers: {error}") from error
    if array.ndim != 1:
        raise ValueError(f"{what} has a column {name!r} of shape {list(array.shape)}; it must be [N]")
    return array


def check_finite(values: Tensor, columns: tuple[str, ...], what: str) -> None:
    """Refuse numbers that are none or infinite, with the first row that has one."""
    bad = (~values.isfinite()).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise ValueError(f"{what} has {columns[column]} = {float(values[row, column])} in row {row}; it must be finite")


def check_positive(values: Tensor, columns: tuple[str, ...], names: tuple[str, ...], what: str) -> None:
    """Refuse values of these columns that are not above zero."""
    for name in names:
        column = values[:, columns.index(name)]
        bad = (column <= 0).nonzero()
        if len(bad):
            row = int(bad[0])
            raise ValueError(f"{what} has {name} = {float(column[row]):g} in row {row}; it must be above 0")


def check_samples(pre: Tensor, post: Tensor, columns: tuple[str, ...]) -> None:
    """Refuse samples that tell nothing: too few, of other lengths, or all equal."""
    if len(pre) != len(post):
        raise ValueError(f"pre has {len(pre)} rows and post {len(post)}; a sample is one of each")
    if len(pre) < LEAST_SAMPLES:
        raise ValueError(f"{len(pre)} samples; at least {LEAST_SAMPLES} are needed")
    if bool((pre == pre[0]).all()):
        shown = ", ".join(f"{name} {float(value):g}" for name, value in zip(columns, pre[0], strict=True))
        raise ValueError(f"all {len(pre)} samples have equal columns ({shown}); they must differ to tell anything")
