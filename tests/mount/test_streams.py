"""A stream returns the same bytes in any order of reads, and damage fails once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.mount.streams import streams
from kafkafs.mount.streams.reported import Reported
from kafkafs.mount.streams.streams import StreamHandle, StreamPiece
from kafkafs.mount.vfs.errnos import DamageAhead, Outgrown, PastEnd
from kafkafs.storage.errors import CorruptError
from tests.threads import running

Part = bytes | CorruptError


class ListSource:
    """A stream of prepared parts that can be started at each part, identified by its index."""

    def __init__(self, parts: list[Part], *, restartable: bool = True) -> None:
        self.parts = parts
        self.restartable = restartable
        self.starts: list[int] = []

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        self.starts.append(restart)
        for at, part in enumerate(self.parts):
            if at < restart:
                continue
            if isinstance(part, CorruptError):
                yield part
            else:
                yield StreamPiece(part, at if self.restartable else -1)


def handle_of(source: ListSource, noted: list[CorruptError] | None = None) -> StreamHandle:
    return StreamHandle(source, noted.append if noted is not None else lambda error: None)


def read_through(handle: StreamHandle, size: int) -> bytes:
    """Reads everything that can be read, past damage."""
    found = b""
    while True:
        try:
            part = bytes(handle.read(len(found), size))
        except CorruptError:
            continue
        if not part:
            return found
        found += part


PARTS = st.lists(st.binary(max_size=40), max_size=12)
READS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 80)), max_size=20)


@given(PARTS, READS, st.integers(0, 30), st.booleans())
def test_any_read_is_a_slice(
    parts: list[bytes], reads: list[tuple[int, int]], distance: int, restartable: bool
) -> None:
    whole = b"".join(parts)
    with small(distance):
        handle = handle_of(ListSource(list(parts), restartable=restartable))
        for position, size in reads:
            assert bytes(handle.read(position, size)) == whole[position : position + size]
        assert read_through(handle, 7) == whole


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.just(None)), max_size=12),
    st.integers(1, 50),
    READS,
)
def test_damage_fails_once_and_hides_nothing(
    parts: list[bytes | None], size: int, reads: list[tuple[int, int]]
) -> None:
    whole = b"".join(part or b"" for part in parts)
    made: list[Part] = [CorruptError("x") if part is None else part for part in parts]
    places = {
        len(b"".join(part or b"" for part in parts[:at]))
        for at, part in enumerate(parts)
        if part is None
    }
    with small(5):
        handle = handle_of(ListSource(made))
        failed = []
        for position, count in [*reads, *[(0, size)]]:
            try:
                found = bytes(handle.read(position, count))
            except CorruptError:
                failed.append(position)
                continue
            assert whole[position:].startswith(found)
            # short reads happen only at the end, or before damage not yet reported
            if len(found) < count and position + len(found) < len(whole):
                assert position + len(found) in places - set(failed)
        assert len(failed) == len(set(failed))
        assert set(failed) <= places
        assert read_through(handle, size) == whole


class small:  # noqa: N801
    """Windows and distances so small that a test reaches their limits."""

    def __init__(self, distance: int) -> None:
        self._patch = pytest.MonkeyPatch()
        self._distance = distance

    def __enter__(self) -> None:
        self._patch.setattr(streams, "_KEPT_BEHIND", self._distance)
        self._patch.setattr(streams, "_CHECKPOINT_DISTANCE", self._distance)
        self._patch.setattr(streams, "_MAX_CHECKPOINTS", 4)
        self._patch.setattr(streams, "READ_AHEAD", 3 * self._distance + 1)

    def __exit__(self, *exc: object) -> None:
        self._patch.undo()


def test_bytes_before_damage_then_an_error_then_the_rest() -> None:
    noted: list[CorruptError] = []
    error = CorruptError("crc", "00.log", 7)
    handle = handle_of(ListSource([b"before", error, b"after"]), noted)
    assert bytes(handle.read(0, 100)) == b"before"
    with pytest.raises(CorruptError, match="crc"):
        handle.read(6, 100)
    assert bytes(handle.read(6, 100)) == b"after"
    assert bytes(handle.read(0, 100)) == b"beforeafter"
    assert noted == [error]


def test_damage_at_both_ends() -> None:
    handle = handle_of(ListSource([CorruptError("a"), b"x", CorruptError("b"), CorruptError("c")]))
    with pytest.raises(CorruptError, match="a"):
        handle.read(0, 10)
    assert bytes(handle.read(0, 10)) == b"x"
    with pytest.raises(CorruptError, match="b"):
        handle.read(1, 10)
    assert bytes(handle.read(1, 10)) == b""


def test_going_back_starts_at_a_checkpoint() -> None:
    with small(10):
        source = ListSource([b"%09d\n" % at for at in range(100)])
        handle = handle_of(source)
        assert len(bytes(handle.read(900, 10))) == 10
        assert source.starts == [-1]
        assert bytes(handle.read(500, 10)) == b"%09d\n" % 50
        assert len(source.starts) == 2
        assert source.starts[1] > 0


def test_a_failing_disk_is_met_again_and_then_not() -> None:
    class Failing(ListSource):
        def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
            yield from super().pieces(restart)
            if len(self.starts) == 1:
                raise OSError(5, "Input/output error")
            yield StreamPiece(b"end")

    handle = handle_of(Failing([b"begin"]))
    with pytest.raises(OSError, match="Input"):
        handle.read(0, 100)
    assert bytes(handle.read(0, 100)) == b"beginend"


def test_a_thread_stays_ahead_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_PAUSE_SECONDS", 0.0)
    made = []
    with small(100):
        handle = handle_of(ListSource([b"x" * 50] * 100))
        assert bytes(handle.read(0, 50)) == b"x" * 50
        handle.keep_ahead(lambda: made.append(1))
        assert len(made) == 7  # 301 bytes ahead of 50 is the first distance that suffices
        assert handle.at_hand(50, 300) == b"x" * 300
        assert handle.at_hand(400, 100) is None


def test_a_thread_ends_when_the_reader_goes_elsewhere() -> None:
    with small(100):
        handle = handle_of(ListSource([b"x" * 50] * 100))
        handle.read(2000, 50)
        assert handle.at_hand(0, 50) is None
        handle.keep_ahead(lambda: pytest.fail("the reader has moved on"))


def test_a_thread_ends_when_the_disk_fails() -> None:
    class Failing(ListSource):
        def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
            yield from super().pieces(restart)
            raise OSError(5, "Input/output error")

    handle = handle_of(Failing([b"begin"]))
    assert bytes(handle.read(0, 5)) == b"begin"
    handle.keep_ahead(lambda: None)
    with pytest.raises(OSError, match="Input"):
        handle.read(5, 100)


def test_reading_while_another_thread_stays_ahead() -> None:
    parts: list[Part] = [b"%06d\n" % at for at in range(20_000)]
    whole = b"".join(part for part in parts if isinstance(part, bytes))
    with small(1000):
        handle = handle_of(ListSource(parts))
        with running(partial(handle.keep_ahead, lambda: None)):
            assert read_through(handle, 1234) == whole
            assert bytes(handle.read(70_000, 70)) == whole[70_000:70_070]
            handle.close()


@dataclass
class Told:
    """A stream's size of which only the reported bound is known."""

    reported: Reported
    exact: int | None = None
    is_damaged: bool = False

    def before(self, position: int) -> tuple[int, int]:
        return 0, -1


def told(bound: int) -> Told:
    reported = Reported("t/0/values")
    reported.report(bound)
    return Told(reported)


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.just(None)), max_size=12),
    st.integers(1, 150),
    st.lists(st.integers(1, 60), min_size=1),
    READS,
    st.booleans(),
)
def test_a_program_that_stops_at_the_reported_size_has_all_bytes_or_an_error(
    parts: list[bytes | None],
    bound: int,
    sizes: list[int],
    before: list[tuple[int, int]],
    is_measured: bool,
) -> None:
    whole = b"".join(part or b"" for part in parts)
    made: list[Part] = [CorruptError("x") if part is None else part for part in parts]
    size = told(bound)
    if is_measured and None not in parts:  # by another reader, since the bound was reported
        size.reported.note_reached(len(whole))
        size.exact = len(whole)
    with small(5):
        handle = StreamHandle(ListSource(made), lambda error: None, size=size)
        failures = 0
        for position, count in before:
            try:
                assert whole[position:].startswith(bytes(handle.read(position, count)))
            except (Outgrown, CorruptError, PastEnd):
                failures += 1
        found = b""
        try:
            for count in cycle(sizes):
                data = bytes(handle.read(len(found), min(count, bound - len(found))))
                found += data
                if not data or len(found) == bound:
                    break
        except (Outgrown, CorruptError):
            return
        assert found == whole
        assert failures or None not in parts


def test_a_program_that_reads_past_a_reported_size_gets_an_error_each_time() -> None:
    handle = StreamHandle(ListSource([b"x" * 10] * 3), lambda error: None, size=told(15))
    assert bytes(handle.read(0, 14)) == b"x" * 14
    for _ in range(3):
        with pytest.raises(Outgrown, match="t/0/values: it is larger than 15 bytes"):
            handle.read(0, 15)
    assert bytes(handle.read(15, 100)) == b"x" * 15


@pytest.mark.parametrize("ends", [4096 + 100, 8192])
def test_a_page_cache_does_not_take_damage_for_the_end(ends: int) -> None:
    """Retried reads return the bytes before damage; no page after it is returned."""
    made: list[Part] = [b"x" * ends, CorruptError("crc"), b"y" * 9000]
    handle = StreamHandle(ListSource(made), lambda error: None, size=told(1 << 20))
    handle.guards_page_cache = True
    assert bytes(handle.read(0, 4096)) == b"x" * 4096
    for _ in range(10):
        with pytest.raises(DamageAhead):
            handle.read(4096, 8192)
    while True:
        try:
            data = bytes(handle.read(4096, 8192))
            break
        except DamageAhead:
            continue
    assert data == b"x" * (ends - 4096)
    assert handle.was_cut(4096, len(data))
    behind = -(-(ends + 1) // 4096) * 4096
    for _ in range(3):
        with pytest.raises(CorruptError):
            handle.read(behind, 4096)
    while True:  # a program that continues at the damage gets the error, and can go on
        try:
            handle.read(ends, 4096)
        except DamageAhead:
            continue
        except CorruptError:
            break
    assert bytes(handle.read(ends, 100)) == b"y" * 100
