"""Tests files of keys: they return what was put, by slices; also the kernels, in both forms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap
from kafkafs.storage.cleaner.split import key_entries
from kafkafs.storage.cleaner.split.key_entries import EntryFile, EntryWriter
from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.records.batch import BatchTable
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.io.durable import WritableDirFd, replaced
from tests import kernel_forms
from tests.profiles import percent
from tests.writing import Unsynced

KEY = 0x0706050403020100, 0x0F0E0D0C0B0A0908
KEYS = st.none() | st.integers(0, 20).map(lambda n: b"k%d" % n)


def columns(keys: Sequence[bytes | None], base: int = 0) -> Columns:
    """Returns columns with a row for each key, at the offsets from `base` on."""
    data = b"".join(key or b"" for key in keys)
    spans = np.full((len(keys), 6), -1, dtype=np.int32)
    at = 0
    for row, key in enumerate(keys):
        if key is not None:
            spans[row, :2] = at, len(key)
            at += len(key)
    offsets = np.arange(base, base + len(keys), dtype=np.int64)
    return Columns(
        data, offsets, offsets, spans, BatchTable.empty(0), np.zeros(1, dtype=np.int64), ""
    )


def write(directory: Path, keys: Sequence[bytes | None], slices: int, latest: bool) -> EntryFile:
    place = WritableDirFd(str(directory))
    writer = EntryWriter(place.create("f"), KEY, slices)
    half = len(keys) // 2
    writer.put(columns(keys[:half]), 0, half, latest)
    writer.put(columns(keys[half:], half), 0, len(keys) - half, latest)
    writer.finish(b"a note")
    return EntryFile(place, "f", slices)


@settings(max_examples=percent(40))
@given(st.lists(KEYS, max_size=120), st.integers(1, 7), st.integers(2, 50), st.booleans())
def test_what_was_put_comes_out(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[bytes | None],
    slices: int,
    run: int,
    latest: bool,
) -> None:
    """The file has each key's offsets, or only some of a repeated key, but always the latest."""
    wanted: dict[bytes, set[int]] = {}
    for offset, key in enumerate(keys):
        if key is not None:
            wanted.setdefault(key, set()).add(offset)
    with replaced(Unsynced()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_entries, "RUN_ENTRIES", run)
        file = write(tmp_path_factory.mktemp("keys"), keys, slices, latest)
    assert file.is_whole()
    assert file.note() == b"a note"
    found: dict[tuple[int, int], set[int]] = {}
    for number in range(slices):
        for each in range(file.runs):
            for first, second, offset in file.entries(each, number).tolist():
                assert (first >> 32) * slices >> 32 == number
                found.setdefault((first, second), set()).add(offset)
    hashes = {key: kernel_forms.in_use("offset_map").siphash(key, *KEY) for key in wanted}
    assert {hashes[key] for key in wanted} == found.keys()
    for key, offsets in wanted.items():
        there = found[hashes[key]]
        assert there <= offsets
        assert max(there) == max(offsets)
        assert latest or there == offsets


def test_a_file_that_is_not_as_it_was_written_is_known(tmp_path: Path) -> None:
    write(tmp_path, [b"a", b"b"] * 20, 3, latest=False)
    path, place = tmp_path / "f", WritableDirFd(str(tmp_path))
    data = path.read_bytes()
    for at in (0, len(data) // 2, len(data) - 40):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert not EntryFile(place, "f", 3).is_whole()
    path.write_bytes(bytes(len(data)))
    assert not EntryFile(place, "f", 3).is_whole()
    for size in (0, 10, 30):
        path.write_bytes(b"\xff" * size)
        with pytest.raises(CorruptError):
            EntryFile(place, "f", 3)


@pytest.mark.parametrize(
    "module",
    [kernel_forms.in_use("offset_map"), kernel_forms.uncompiled("offset_map")],
    ids=["in use", "uncompiled"],
)
def test_a_map_of_entries_is_one_of_keys(module: ModuleType) -> None:
    keys = [b"k%d" % (n * 7 % 40) for n in range(100)]
    given_columns = columns(keys)
    entries = np.zeros((100, 3), dtype=np.uint64)
    none = np.zeros(0, dtype=np.uint64)
    spans, offsets = given_columns.spans, given_columns.offsets
    assert module.hashed(*KEY, given_columns.data, spans, offsets, 0, 100, entries, 0, none) == (
        100,
        100,
    )
    table, scratch = np.zeros(3 * 64, dtype=np.uint64), np.empty((9, 3), dtype=np.uint64)
    row, added = module.put_entries(table, 64, entries, 0, 10, 30, scratch)
    assert (row, added) == (40, 30)  # from offset 10 on, until that many are added
    row, added = module.put_entries(table, 64, entries, row, 10, 30, scratch)
    assert (row, added) == (100, 10)
    newest = np.empty(100, dtype=np.int64)
    module.get_entries(table, 64, entries, newest)
    assert newest.tolist() == [max(n for n in range(100) if keys[n] == key) for key in keys]
    sliced, ends = np.zeros((100, 3), dtype=np.uint64), np.zeros(6, dtype=np.int64)
    module.by_slices(entries, sliced, ends)
    assert sorted(sliced.tolist()) == sorted(entries.tolist())
    assert ends[:5].tolist() == sorted(ends[:5].tolist())
    assert (ends[0], ends[4]) == (0, 100)
    for number in range(4):
        words = sliced[ends[number] : ends[number + 1], 0].tolist()
        assert all((word >> 32) * 4 >> 32 == number for word in words)


def test_a_map_tells_its_offsets() -> None:
    offset_map = OffsetMap(20 * SLOT_BYTES, 1.0)
    entries = np.array([[n, n << 40, n + 5] for n in range(10)], dtype=np.uint64)
    assert offset_map.put_entries(entries, 2, 9) == 10
    assert sorted(offset_map.offsets().tolist()) == [9, 10, 11, 12, 13, 14]
    assert offset_map.get_entries(entries).tolist() == [-1] * 4 + [9, 10, 11, 12, 13, 14]
    assert len(offset_map) == 6


def test_kernels_refuse_what_is_out_of_bounds() -> None:
    module = kernel_forms.in_use("offset_map")
    one = columns([b"a"])
    entries, none = np.zeros((1, 3), dtype=np.uint64), np.zeros(0, dtype=np.uint64)
    bad = one.spans.copy()
    bad[0, 1] = 2
    for spans, high, count, recent in (
        (bad, 1, 0, none),
        (one.spans, 2, 0, none),
        (one.spans, 1, 2, none),
        (one.spans, 1, 0, np.zeros(3, dtype=np.uint64)),
    ):
        with pytest.raises(ValueError, match=r"key|rows|entries|places"):
            module.hashed(*KEY, one.data, spans, one.offsets, 0, high, entries, count, recent)
    with pytest.raises(ValueError, match="slots"):
        module.put_entries(none, 1, entries, 0, 0, 1, entries)
    with pytest.raises(ValueError, match="slots"):
        module.get_entries(none, 1, entries, np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="room"):
        module.by_slices(entries, np.zeros((0, 3), dtype=np.uint64), np.zeros(3, dtype=np.int64))
