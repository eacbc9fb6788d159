"""Inode numbers: every part can be decoded, and no number is given twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.mount.vfs import inodes
from kafkafs.mount.vfs.errnos import Stale, TooManyInodes
from kafkafs.mount.vfs.inodes import (
    Inode,
    InodeKind,
    Places,
    RecentPlaces,
    pack,
    segment_file_name,
    segment_kind,
    unpack,
)
from kafkafs.storage.format.files.names import FileKind, FileState, SegmentFileName

FILES = [
    SegmentFileName(base, kind, state)
    for base in (0, 522)
    for kind in FileKind
    for state in FileState
]


@given(st.integers(0, 31), st.integers(0, inodes.MAX_PLACES - 1), st.integers(0, 2**36 - 1))
def test_parts_come_back(kind: int, place: int, number: int) -> None:
    assert unpack(pack(kind, place, number)) == Inode(kind, place, number)
    assert pack(kind, place, number) < 2**63


def test_segment_files_have_kinds_of_their_own() -> None:
    kinds = {segment_kind(name) for name in FILES}
    assert len(kinds) == len(FileKind) * len(FileState)
    assert min(kinds) == InodeKind.SEGMENT_FILE
    assert max(kinds) < 32
    for name in FILES:
        assert segment_file_name(segment_kind(name), name.base_offset) == name


def test_a_kind_that_no_segment_file_has() -> None:
    with pytest.raises(Stale):
        segment_file_name(InodeKind.SEGMENT_FILE + len(FileKind) * len(FileState), 0)


def test_a_place_keeps_its_number() -> None:
    places: Places[str] = Places()
    assert [places.number(name) for name in ("a", "b", "a")] == [0, 1, 0]
    assert places[1] == "b"
    with pytest.raises(Stale):
        places[2]


def test_places_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inodes, "MAX_PLACES", 2)
    places: Places[int] = Places()
    places.number(1)
    places.number(2)
    with pytest.raises(TooManyInodes):
        places.number(3)
    assert places.number(2) == 1


def test_recent_places_keep_their_numbers_while_they_are_used() -> None:
    places: RecentPlaces[str] = RecentPlaces(2)
    assert [places.number(name) for name in ("a", "b", "a")] == [0, 1, 0]
    assert places.number("c") == 2  # replaces b, the least recently used
    assert (places[0], places[2]) == ("a", "c")
    with pytest.raises(Stale):
        places[1]


def test_a_forgotten_place_gets_another_number() -> None:
    places: RecentPlaces[int] = RecentPlaces(3)
    numbers = [places.number(place) for place in [*range(10), *range(10)]]
    assert numbers == list(range(20))
