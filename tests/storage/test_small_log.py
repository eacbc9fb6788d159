"""Tests of the view of a small log: it is the one of `Log`, or none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.files.names import FileKind, segment_file
from kafkafs.storage.format.layout import MAX_INT32
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.read.context import ReadContext, ReadLimits
from kafkafs.storage.log.read.small_log import SmallLogs
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from tests.batches import MUTATIONS, damaged_logs, logs, mutated, v2_batches
from tests.building import BatchFields, build_batch
from tests.reading import open_view

KEY = ("topic", 0)
LOG = segment_file(0, FileKind.LOG)
PLAIN = BatchFields()


def look(partition: Path, start: int = 0, limits: ReadLimits | None = None) -> View | None:
    directory = DirFd(str(partition.parent)).child(partition.name)
    return SmallLogs(ReadContext(limits)).view(KEY, directory, directory.hold(), start)


def facts(view: View) -> tuple[object, ...]:
    """Returns everything that a view shows, except where its files are open."""
    segments = [(s.path, s.files.identity, s.state, s.next_base) for s in view.segments]
    bounds = [view.bound(isolation) for isolation in Isolation]
    return (
        view.topic, view.partition, view.start_offset, view.end_offset, bounds, segments,
        view.tail, view.cuts, view.is_complete, view.ended_at_ms,
    )  # fmt: skip


def batch(base_offset: int, fields: BatchFields = PLAIN) -> bytes:
    records = [SimpleRecord(1000, b"k", b"v", offset=base_offset)]
    return build_batch(records, replace(fields, base_offset=base_offset))


@st.composite
def modern_logs(draw: st.DrawFn) -> bytes:
    """Draws batches of magic 2 from a small offset on."""
    data, offset = b"", draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 4))):
        drawn, records = draw(v2_batches(offset))
        data += drawn
        offset += len(records) + 4
    return data


@given(
    modern_logs() | st.builds(mutated, modern_logs(), MUTATIONS) | logs() | damaged_logs(),
    st.integers(0, 9),
)
def test_a_small_log_is_seen_as_any_log(data: bytes, start: int) -> None:
    with TemporaryDirectory() as place:
        Path(place, LOG).write_bytes(data)
        os.utime(Path(place, LOG), ns=(0, 10**18))  # so long ago that damage is not a write
        found = look(Path(place), start)
        if found is not None:
            assert facts(found) == facts(open_view(Path(place), start))


def test_a_sound_log_is_seen(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(batch(0) + batch(1) + batch(7))
    found = look(tmp_path, 3)
    assert found is not None
    assert (found.start_offset, found.end_offset, found.last_stable_offset) == (3, 8, 8)
    assert [part.offsets.tolist() for part in found.read()] == [[7]]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        batch(0) + batch(1)[:-1],
        batch(0) + bytes(100),
        batch(0, BatchFields(is_transactional=True)),
        batch(0, BatchFields(is_control=True)),
        batch(MAX_INT32 + 1),
        batch(0) * 500,
    ],
    ids=["empty", "cut off", "preallocated", "transaction", "marker", "too far", "large"],
)
def test_what_is_unusual_is_left_to_others(tmp_path: Path, data: bytes) -> None:
    (tmp_path / LOG).write_bytes(data)
    assert look(tmp_path) is None


def test_other_files_are_noticed(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(batch(0))
    assert look(tmp_path) is not None
    assert look(tmp_path, limits=ReadLimits(max_batch_bytes=69)) is None
    for name in (segment_file(9, FileKind.LOG), f"{LOG}.swap"):
        (tmp_path / name).write_bytes(batch(9))
        (tmp_path / LOG).write_bytes(b"" if name.endswith("swap") else batch(0))
        assert look(tmp_path) is None
        (tmp_path / name).unlink()
    (tmp_path / LOG).rename(tmp_path / "other")
    (tmp_path / LOG).symlink_to(tmp_path / "other")
    assert look(tmp_path) is None
