"""Open files as the event loop reads them: a reader, and the thread that reads ahead."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from typing import cast

import pytest
import trio

from kafkafs.mount.fuse.measuring import Measuring
from kafkafs.mount.fuse.readers import AheadThreads, StreamReader
from kafkafs.mount.node import Node
from kafkafs.mount.streams import streams
from kafkafs.mount.streams.streams import StreamHandle, StreamPiece
from kafkafs.storage.errors import CorruptError

PIECE = bytes(range(100))
PIECES = 2000
READ = 250


class SlowSource:
    """A source of pieces, some of them slow."""

    def __init__(self, slow: float) -> None:
        """`slow` is the share of slow pieces."""
        self._slow = slow

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        chance = random.Random(7)
        for number in range(max(restart, 0), PIECES):
            if chance.random() < self._slow:
                time.sleep(0.001)
            yield StreamPiece(PIECE, number)


class CountingReader(StreamReader):
    wakings = 0

    def _note_progress(self) -> None:
        self.wakings += 1
        super()._note_progress()


async def read_through(slow: float, *, lags: bool) -> tuple[bytes, int]:
    """Returns what a reader gets, and how often the loop was woken. If it `lags`, it reads only
    what is at hand, once the thread that reads ahead runs."""
    handle = StreamHandle(SlowSource(slow), lambda error: None)
    found = bytearray()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            threads, measuring = AheadThreads(), Measuring(nursery)
            reader = CountingReader(cast(Node, None), handle, nursery, threads, measuring)
            while data := await reader.read(len(found), READ):
                found += data
                await trio.sleep(0)
                while lags and handle.at_hand(len(found), READ) is None and reader._is_kept_ahead:
                    await trio.sleep(0.001)
            await reader.close()
    return bytes(found), reader.wakings


@pytest.mark.parametrize("slow", [0, 0.02, 0.5])
def test_who_waits_for_a_piece_is_told_of_it(slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is read ahead, so sometimes the reader waits and sometimes the thread."""
    monkeypatch.setattr(streams, "READ_AHEAD", 3 * len(PIECE))
    for _ in range(3):
        found, _ = trio.run(partial(read_through, slow, lags=False))
        assert found == PIECE * PIECES


def test_nobody_is_woken_who_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "READ_AHEAD", 40 * len(PIECE))
    found, wakings = trio.run(partial(read_through, 1, lags=True))
    assert found == PIECE * PIECES
    assert wakings < 10  # at the start, and when the thread ends
