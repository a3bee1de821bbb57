"""Bytes and back: the same bits, or a clear error."""

from __future__ import annotations

import errno
import json
import os
import struct
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rankloop.core import codec, files, registry
from rankloop.core.errors import CodecError
from rankloop.core.types import Array

DTYPES = [np.dtype(name) for name in ("f8", "f4", "i8", "u1", "?", "<U5")]
arrays: st.SearchStrategy[Array] = hnp.arrays(
    dtype=st.sampled_from(DTYPES),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(st.dictionaries(st.text(max_size=8), arrays, max_size=4))
def test_the_same_bits_come_back(named: dict[str, Array]) -> None:
    back, meta = codec.loads(codec.dumps(named, {"n": 1, "text": "é"}))
    assert meta == {"n": 1, "text": "é"}
    assert list(back) == list(named)
    for name, array in named.items():
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()
        assert back[name].flags.writeable


@given(st.dictionaries(st.text(max_size=8), arrays, max_size=4), st.booleans())
def test_the_bytes_are_those_that_were_always_written(named: dict[str, Array], turned: bool) -> None:
    """Logs hold them, and states are compared by them: as the first release wrote them, said again in plain words."""
    if turned:
        named = {name: np.asfortranarray(array) for name, array in named.items()}
    specs = [
        {"name": name, "dtype": array.dtype.newbyteorder("<").str, "shape": list(array.shape)}
        for name, array in named.items()
    ]
    header = json.dumps({"meta": {"query": 'é"'}, "arrays": specs}).encode()
    blobs = [array.astype(array.dtype.newbyteorder("<")).tobytes("C") for array in named.values()]
    body = b"".join([struct.pack("<8sII", b"RANKLOOP", 1, len(header)), header, *blobs])
    assert codec.dumps(named, {"query": 'é"'}) == body + blake2b(body, digest_size=16).digest()


@given(st.data())
def test_any_flipped_bit_or_cut_is_noticed(data: st.DataObject) -> None:
    whole = codec.dumps({"theta_": np.arange(3.0)}, {"learner": "pdgd"})
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    for bad in (bytes(damaged), whole[:at]):
        with pytest.raises(CodecError, match=r"not a rankloop file|format version|damaged or cut short"):
            codec.loads(bad)


def test_foreign_newer_and_mislabelled_files_are_told_apart() -> None:
    with pytest.raises(CodecError, match=r"model\.bin: not a rankloop file"):
        codec.loads(b"PK\x03\x04 a zip file, say, longer than a header", "model.bin")
    newer = bytearray(codec.dumps({}))
    struct.pack_into("<I", newer, 8, 99)
    with pytest.raises(CodecError, match="format version 99, but this release reads versions 1 and 2"):
        codec.loads(bytes(newer))
    with pytest.raises(CodecError, match="not a learner"):
        registry.loads(codec.dumps({"x": np.zeros(1)}))
    with pytest.raises(CodecError, match="not an impression"):
        codec.load_impression(codec.dumps({"x": np.zeros(1)}))


def test_a_header_with_a_right_checksum_can_still_lie() -> None:
    header = b'{"meta": {}, "arrays": [{"name": "x", "dtype": "<f8", "shape": [1000]}]}'
    body = struct.pack("<8sII", codec.MAGIC, codec.VERSION, len(header)) + header
    with pytest.raises(CodecError, match="header cannot be read"):
        codec.loads(body + blake2b(body, digest_size=16).digest())


def test_objects_are_never_written() -> None:
    with pytest.raises(CodecError, match="array 'x' has type object"):
        codec.dumps({"x": np.array([{}])})


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "state"
    files.write(target, b"old")

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        files.write(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
