"""Torch devices that are there."""

from __future__ import annotations

import torch


def torch_device(value: torch.device | str) -> torch.device:
    """The device of a name, or an error that names those that this machine has."""
    there = ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"unknown device {str(value)!r}; this machine has: {', '.join(there)}") from error
    named = device.type if device.index is None else str(device)
    if named not in ("cpu", "cpu:0", *there, *(["cuda"] if len(there) > 1 else [])):
        raise ValueError(f"no device {str(value)!r}; this machine has: {', '.join(there)}")
    return device
