"""HDF5 files of strangers: nothing of another file is read, and nothing that the file does not hold."""

import resource
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from nerd_gym.data.hdf5 import array_in, attributes, open_hdf5

SHAPE = (None, 4)


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.h5"
    with h5py.File(path, "w") as file:
        file["q"] = np.ones((8, 4), np.float32)
    (tmp_path / "secret.bin").write_bytes(np.ones((8, 4), np.float32).tobytes())
    return path


def soft_link(file, secret):
    file["own"] = np.ones((8, 4), np.float32)
    file["q"] = h5py.SoftLink("/own")


def external_link(file, secret):
    file["q"] = h5py.ExternalLink(str(secret), "q")


def virtual(file, secret):
    layout = h5py.VirtualLayout((8, 4), np.float32)
    layout[:] = h5py.VirtualSource(str(secret), "q", (8, 4))
    file.create_virtual_dataset("q", layout)


def external_storage(file, secret):
    raw = [(str(secret.with_suffix(".bin")), 0, h5py.h5f.UNLIMITED)]
    file.create_dataset("q", (8, 4), np.float32, external=raw)


def unwritten(file, secret):
    file.create_dataset("q", (300_000_000_000, 4), np.float32, chunks=(1024, 4))  # 4.8 TB of nothing


def bomb(file, secret):
    data = file.create_dataset("q", (40_000_000, 4), np.float32, chunks=(4_000_000, 4), compression="gzip")
    data[:4_000_000] = np.zeros((4_000_000, 4), np.float32)


def group(file, secret):
    file.create_group("q")


def integers(file, secret):
    file["q"] = np.ones((8, 4), np.int32)


def objects(file, secret):
    file.create_dataset("q", (8, 4), h5py.vlen_dtype(np.float32))


def other_shape(file, secret):
    file["q"] = np.ones((8, 5), np.float32)


def not_finite(file, secret):
    file["q"] = np.full((8, 4), np.nan, np.float32)


def missing(file, secret):
    file["other"] = np.ones((8, 4), np.float32)


WRONG = (soft_link, external_link, virtual, external_storage, unwritten, bomb, group, integers, objects, other_shape)
WRONG += (not_finite, missing)


@pytest.mark.parametrize("write", WRONG, ids=lambda function: function.__name__)
def test_arrays_that_are_not_plain_are_refused(write, secret, tmp_path):
    path = tmp_path / "stranger.h5"
    with h5py.File(path, "w") as file:
        write(file, secret)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"stranger\.h5 has"), open_hdf5(path) as file:
        array_in(file, "q", SHAPE)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_plain_ones_are_read(tmp_path):
    values = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["q"] = values
        file.create_dataset("packed", data=values, chunks=(64, 4), compression="gzip", shuffle=True)
        file.attrs.update({"name": "x", "count": 3, "rate": 0.5, "yes": True})
    with open_hdf5(tmp_path / "a.h5") as file:
        assert all(np.array_equal(array_in(file, name, SHAPE), values) for name in ("q", "packed"))
        assert attributes(file) == {"name": "x", "count": 3, "rate": 0.5, "yes": True}


@pytest.mark.parametrize("value", [np.zeros(3), h5py.Empty("f4"), np.zeros((2, 2), "i4"), 1 + 2j])
def test_attributes_are_texts_and_numbers(value, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["odd"] = value
    with pytest.raises(ValueError, match=r"a\.h5 has an attribute 'odd'"), open_hdf5(tmp_path / "a.h5") as file:
        attributes(file)


def test_too_many_attributes_are_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs.update({f"fact{k}": k for k in range(65)})
    with pytest.raises(ValueError, match="65 attributes"), open_hdf5(tmp_path / "a.h5") as file:
        attributes(file)


@pytest.fixture
def endless(tmp_path):
    """A file in whose heap of texts one has no length: the HDF5 library looks for the next one for ever."""
    path = tmp_path / "endless.h5"
    with h5py.File(path, "w") as file:
        file.attrs.update({"first": "abc", "second": "[]"})
        file["q"] = np.ones((8, 4), np.float32)
    data = bytearray(path.read_bytes())
    at = data.index(b"[]") - 8
    data[at : at + 8] = bytes(8)
    path.write_bytes(data)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reader is ended after a minute")
def test_a_file_that_the_library_cannot_end_with_is_refused(endless):
    with pytest.raises(ValueError, match=r"endless\.h5 is damaged: .* not come to an end"), open_hdf5(endless) as file:
        attributes(file)


def children() -> set[str]:
    """Ids of this process's children."""
    return set(" ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split())


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes as Linux shows them")
def test_no_process_is_left_behind(tmp_path):
    path, before = tmp_path / "a.h5", children()
    with h5py.File(path, "w") as file:
        file["q"] = np.ones((8, 4), np.float32)
    with open_hdf5(path) as file:
        assert len(children() - before) == 1
        array_in(file, "q", SHAPE)
    with pytest.raises(ZeroDivisionError), open_hdf5(path):
        raise ZeroDivisionError
    assert children() == before


def test_an_array_arrives_whole_whatever_its_layout(tmp_path):
    """Pieces are sent of 16 MB or of whole chunks."""
    values = np.arange(1_500_001, dtype=np.float32)[:, None].repeat(4, 1)  # 24 MB
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["plain"] = values
        file["double"] = values[:1000].astype(np.float64)
        file.create_dataset("chunked", data=values, chunks=(200_001, 3), maxshape=(None, 4))
        file["empty"] = values[:0]
    with open_hdf5(tmp_path / "a.h5") as file:
        assert np.array_equal(array_in(file, "plain", SHAPE), values)
        assert np.array_equal(array_in(file, "chunked", SHAPE), values)
        assert np.array_equal(array_in(file, "double", SHAPE), values[:1000])
        assert array_in(file, "empty", SHAPE).shape == (0, 4)
