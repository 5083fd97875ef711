"""Right on an accelerator, shown without one: whatever would wait for the host fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SYNCS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero", "item")
HOST_METHODS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__", "__array__")


class NoHostRoundTrips(TorchDispatchMode):
    """Fails on any operation that would make an accelerator wait for the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in SYNCS, f"{name} synchronises with the host"
        if name == "index" or name == "index_put_":
            masks = [i for i in args[1] if i is not None and i.dtype == torch.bool]
            assert not masks, "indexing with a boolean mask synchronises with the host"
        if name in ("_to_copy", "copy_"):
            devices = {a.device for a in args if isinstance(a, torch.Tensor)} | {(kwargs or {}).get("device")}
            assert len(devices - {None}) == 1, f"{name} copies between {devices}"
        return func(*args, **(kwargs or {}))


@contextmanager
def away_from_the_host() -> Iterator[None]:
    """Operations that wait for the host fail, and so do a tensor's methods that bring it there."""

    def refuse(*_, **__):
        raise AssertionError("a tensor was brought to the host")

    with pytest.MonkeyPatch.context() as patch:
        for name in HOST_METHODS:
            patch.setattr(torch.Tensor, name, refuse)
        with NoHostRoundTrips():
            yield
