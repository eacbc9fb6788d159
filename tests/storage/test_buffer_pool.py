"""Tests the buffer pool: memory is reused, but never while a view of it exists."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.records import buffer_pool
from kafkafs.storage.format.records.buffer_pool import BufferPool


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.booleans()), max_size=20))
def test_acquired_buffers_never_overlap(wanted: list[tuple[int, bool]]) -> None:
    pool = BufferPool()
    kept: list[tuple[int, memoryview]] = []
    for number, (size, is_kept) in enumerate(wanted):
        buffer = pool.acquire(size)
        assert len(buffer) == size
        assert not buffer.readonly
        buffer[:] = bytes([number]) * size
        if is_kept:
            kept.append((number, buffer))
        del buffer
    for number, buffer in kept:
        assert bytes(buffer) == bytes([number]) * len(buffer)


def test_a_buffer_is_reused_when_its_last_view_is_deleted() -> None:
    pool = BufferPool()
    address = np.frombuffer(pool.acquire(1000), dtype=np.uint8).ctypes.data
    assert np.frombuffer(pool.acquire(2000), dtype=np.uint8).ctypes.data == address


def test_any_view_keeps_a_buffer() -> None:
    """Any view counts, whether of a part or derived from other views."""
    pool = BufferPool()
    buffer = pool.acquire(1000)
    buffer[:] = b"x" * 1000
    part = buffer[100:].cast("B")[3:20]
    seen = np.frombuffer(part, dtype=np.uint8)[2:]
    del buffer, part
    gc.collect()
    pool.acquire(1000)[:] = b"y" * 1000
    assert seen.tobytes() == b"x" * 15


def test_little_is_kept_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_LARGEST_IDLE", 1 << 20)
    pool = BufferPool()
    acquired = [pool.acquire(size) for size in (1 << 20, 1 << 20, 2 << 20, *(30 * [1]))]
    del acquired
    assert len(pool._idle) == buffer_pool._MAX_IDLE
    assert max(map(len, pool._idle)) <= 1 << 20
    assert not pool._acquired
    monkeypatch.setattr(buffer_pool, "_MOST_IDLE_BYTES", 3 << 20)
    pool = BufferPool()
    acquired = [pool.acquire(1 << 20) for _ in range(4)]
    del acquired
    assert sum(map(len, pool._idle)) == 3 << 20
