"""Memory that is lent again: never while somebody can still see it."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.records import buffer_pool as rooms
from kafkafs.storage.format.records.buffer_pool import BufferPool


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.booleans()), max_size=20))
def test_rooms_that_are_lent_never_overlap(wanted: list[tuple[int, bool]]) -> None:
    lender = BufferPool()
    kept: list[tuple[int, memoryview]] = []
    for number, (size, is_kept) in enumerate(wanted):
        room = lender.lend(size)
        assert len(room) == size
        assert not room.readonly
        room[:] = bytes([number]) * size
        if is_kept:
            kept.append((number, room))
        del room
    for number, room in kept:
        assert bytes(room) == bytes([number]) * len(room)


def test_a_room_is_lent_again_when_it_has_been_given_up() -> None:
    lender = BufferPool()
    address = np.frombuffer(lender.lend(1000), dtype=np.uint8).ctypes.data
    assert np.frombuffer(lender.lend(2000), dtype=np.uint8).ctypes.data == address


def test_any_view_keeps_a_room() -> None:
    """Whatever looks at a part of it, and through however many others."""
    lender = BufferPool()
    room = lender.lend(1000)
    room[:] = b"x" * 1000
    part = room[100:].cast("B")[3:20]
    seen = np.frombuffer(part, dtype=np.uint8)[2:]
    del room, part
    gc.collect()
    lender.lend(1000)[:] = b"y" * 1000
    assert seen.tobytes() == b"x" * 15


def test_little_is_kept_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "_LARGEST_IDLE", 1 << 20)
    lender = BufferPool()
    lent = [lender.lend(size) for size in (1 << 20, 1 << 20, 2 << 20, 1, 1, 1, 1)]
    del lent
    assert len(lender._idle) == rooms._IDLE_ROOMS
    assert max(map(len, lender._idle)) <= 1 << 20
    assert not lender._lent
