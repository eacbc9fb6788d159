"""Tests finding the next batch after damage, and which of two neighbours to blame."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.kernels import COMPILED
from kafkafs.storage.format.records.batch import BatchHeader, parse_header
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.segment.extent import Extent
from kafkafs.storage.segment.salvage import after, is_intact, next_batch, suspicion
from tests.building import BatchFields, MessageFields, build_batch, build_messages, put

LIMIT = 1 << 20
# Spans more than one of the pieces in which a file is searched.
FAR = 3_000_000 if COMPILED else 1_100_000


def batch(base: int, size: int = 30) -> bytes:
    return build_batch([SimpleRecord(5, None, b"v" * size)], BatchFields(base_offset=base))


def extent_of(directory: Path, data: bytes, base_offset: int = 0) -> Extent:
    (directory / "log").write_bytes(data)
    file = DirFd(str(directory)).open("log")
    return Extent(file, base_offset, 0, len(data), LIMIT)


# -- the next batch -----------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [0, 1, 16, 60, 61, 4095, (1 << 20) - 30, 1 << 20, FAR])
@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\1"])
def test_a_batch_is_found_wherever_it_begins(tmp_path: Path, gap: int, fill: bytes) -> None:
    """This also holds across the pieces in which the file is searched."""
    extent = extent_of(tmp_path, fill * gap + batch(7) + fill * 100)
    assert next_batch(extent, 0, -1) == gap
    assert next_batch(extent, gap + 1, -1) == extent.end


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_batch_is_found_behind_any_bytes(noise: bytes, start: int) -> None:
    with TemporaryDirectory() as name:
        extent = extent_of(Path(name), noise + batch(7))
        assert next_batch(extent, min(start, len(noise)), -1) == len(noise)


def test_old_messages_are_found_too(tmp_path: Path) -> None:
    for magic in (0, 1):
        message = build_messages([SimpleRecord(5, b"k", b"v")], MessageFields(magic, 7))
        extent = extent_of(tmp_path, b"\xaa" * 99 + message)
        assert next_batch(extent, 0, -1) == 99


def test_only_a_batch_with_a_right_checksum_is_believed(tmp_path: Path) -> None:
    bad = put(batch(7), 17, ">I", 1)
    extent = extent_of(tmp_path, b"\xaa" + bad + b"\xaa" + batch(8))
    assert next_batch(extent, 0, -1) == 2 + len(bad)


def test_only_an_offset_that_can_follow_is_believed(tmp_path: Path) -> None:
    data = batch(500)
    extent = extent_of(tmp_path, data, base_offset=400)
    assert next_batch(extent, 0, 399) == 0
    assert next_batch(extent, 0, 499) == 0
    assert next_batch(extent, 0, 500) == extent.end
    assert next_batch(replace(extent, limit_offset=500), 0, -1) == extent.end
    assert next_batch(replace(extent, limit_offset=501), 0, -1) == 0
    assert next_batch(extent_of(tmp_path, data, base_offset=501), 0, -1) == len(data)
    far = batch(1 << 40)
    assert next_batch(extent_of(tmp_path, far), 0, -1) == len(far)


def test_a_batch_that_goes_past_the_end_is_none(tmp_path: Path) -> None:
    data = batch(7)
    extent = extent_of(tmp_path, data)
    assert next_batch(replace(extent, end=len(data) - 1), 0, -1) == len(data) - 1


@pytest.mark.parametrize("previous", [-1, (1 << 63) - 2, (1 << 63) - 1])
@pytest.mark.parametrize("base", [0, (1 << 63) - 1])
def test_offsets_at_the_end_of_their_range_overflow_nothing(
    tmp_path: Path, previous: int, base: int
) -> None:
    extent = extent_of(tmp_path, b"\xaa" * 50 + batch(7), base)
    expected = 50 if previous < 7 and base < 7 else extent.end
    assert next_batch(extent, 0, previous) == expected


def test_a_hole_is_passed_over(tmp_path: Path) -> None:
    extent = extent_of(tmp_path, batch(7))
    with (tmp_path / "log").open("r+b") as file:
        file.seek(1 << 35)
        file.write(batch(8))
    extent = replace(extent, end=(1 << 35) + len(batch(8)))
    assert next_batch(extent, 1, -1) == 1 << 35


# -- where to resume ----------------------------------------------------------------------------


def test_a_length_is_believed_when_a_header_stands_at_its_end(tmp_path: Path) -> None:
    inner = batch(8)
    outer = build_batch([SimpleRecord(5, None, inner)], BatchFields(base_offset=7))
    data = outer + batch(9)
    extent = extent_of(tmp_path, data)
    assert after(extent, 0, len(outer), -1) == len(outer)
    assert after(extent, 0, len(data), -1) == len(data)
    # A length that leads nowhere is not trusted, nor one to a header whose offset cannot follow.
    for size in (0, -5, 30, len(outer) - 1, len(outer) + 1, 1 << 31):
        assert after(extent, 0, size, -1) == outer.index(inner)
    assert after(extent, 0, len(outer), 9) == len(data)


# -- which batch to blame -----------------------------------------------------------------------

A, B, C = batch(10), batch(11), batch(12)


def blamed(directory: Path, first: bytes, *rest: bytes, before: int = 9) -> str:
    """Returns what is wrong with the first of some batches, "" for nothing."""
    extent = extent_of(directory, first + b"".join(rest))
    fault = suspicion(extent, parse_header(first), before)
    return "" if fault is None else fault.error.what


def test_batches_in_order_are_beyond_suspicion(tmp_path: Path) -> None:
    assert blamed(tmp_path, A) == ""
    assert blamed(tmp_path, A, B) == ""
    assert blamed(tmp_path, A, B, C) == ""
    assert blamed(tmp_path, A, batch(500), C) == ""


def test_a_sound_batch_is_not_blamed_for_what_follows(tmp_path: Path) -> None:
    for following in (bytes(99), b"\xff" * 99, b"\0", put(B, 17, ">I", 1), put(B, 8, ">i", 5)):
        assert blamed(tmp_path, A, following, C) == ""
    assert blamed(tmp_path, A, put(B, 0, ">q", 0), C) == ""


def test_a_batch_with_a_wrong_checksum_is_blamed_for_a_contradiction(tmp_path: Path) -> None:
    assert "crc is" in blamed(tmp_path, put(A, 23, ">i", 99), B, C)
    assert "crc is" in blamed(tmp_path, put(A, 8, ">i", len(A) - 13), B, C)
    assert "crc is" in blamed(tmp_path, put(A, 8, ">i", len(A)), B, C)


def test_of_two_sound_batches_the_third_decides(tmp_path: Path) -> None:
    high = put(A, 0, ">q", 1 << 20)
    assert "its base offset is wrong" in blamed(tmp_path, high, B, C)
    assert "its base offset is wrong" in blamed(tmp_path, high, B)
    for off_by_one in (put(A, 0, ">q", 11), put(A, 0, ">q", 12)):
        assert "its base offset is wrong" in blamed(tmp_path, off_by_one, B, C)
    low = put(B, 0, ">q", 10)
    assert blamed(tmp_path, A, low, C) == ""
    assert blamed(tmp_path, batch(11), put(batch(12), 0, ">q", 11), batch(13), before=10) == ""


def test_a_batch_that_follows_without_a_gap_is_not_blamed(tmp_path: Path) -> None:
    assert blamed(tmp_path, A, put(B, 0, ">q", 10)) == ""
    assert "wrong" in blamed(tmp_path, batch(12), put(batch(13), 0, ">q", 12))


def test_an_offset_past_the_segments_last_is_blamed_at_once(tmp_path: Path) -> None:
    extent = replace(extent_of(tmp_path, A + B + C), limit_offset=11)
    fault = suspicion(extent, parse_header(B, len(A)), 10)
    assert fault is not None
    assert "batch 11-11 goes past 10" in fault.error.what
    assert suspicion(extent, parse_header(A), 9) is None


# -- validity -----------------------------------------------------------------------------------


def test_a_sound_batch_has_all_its_bytes_and_their_checksum(tmp_path: Path) -> None:
    extent = extent_of(tmp_path, A + B)

    def header(data: bytes, position: int) -> BatchHeader:
        return parse_header(data, position)

    assert is_intact(extent, header(A, 0))
    assert is_intact(extent, header(B, len(A)))
    assert not is_intact(extent, header(B, len(A) + 1))
    assert not is_intact(extent, header(put(A, 17, ">I", 5), 0))
    assert not is_intact(replace(extent, max_batch_bytes=len(A) - 1), header(A, 0))


def test_nothing_but_noise_is_searched_to_its_end(tmp_path: Path) -> None:
    extent = extent_of(tmp_path, os.urandom(3 << 20))
    assert next_batch(extent, 0, -1) == extent.end
    with pytest.raises(CorruptError):
        parse_header(extent.file.read(0, 61))
