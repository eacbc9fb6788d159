"""One of Redpanda's segments as the `.log` that a Kafka broker would have of it.

The bytes of the records are the same in both, and so is the size of a batch's header; only the
header differs (`format/kernels/redpanda.py`). A segment also has batches that no producer wrote.
They are left out. Of some types, Kafka's clients do not see the offsets either: those of later
batches are lower in Kafka by as much. Such offsets are called unseen here.

A segment is walked once, header by header. What the walk keeps is a row for about 32 KiB of the
translation, from which any range of it can be made from the segment's bytes.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from struct import Struct
from typing import Final

import numpy as np

from ..errors import CorruptError
from ..format.checksum import crc32c
from ..format.kernels import checksums
from ..format.kernels import redpanda as kernel
from ..format.layout import MAX_INT32, RECORD_BATCH_OVERHEAD
from ..format.records.batch import Int64s
from ..io.assembled import AssembledFile, file_status
from ..io.directory import ReadableFile
from ..io.preallocated import is_zero
from ..segment import offset_index, time_index

#: The size of a batch's header, in Redpanda as in Kafka.
HEADER_BYTES: Final = RECORD_BATCH_OVERHEAD
# About how many bytes of the translation each row is for. A read translates at most so many more.
_INTERVAL: Final = 32 << 10
# What a small read translates, for those that follow.
_WINDOW: Final = 64 << 10
_WALK_BYTES: Final = 256 << 10
_SEARCH_BYTES: Final = 1 << 20
_ROWS: Final = 1024
_HEADER: Final = Struct("<IiqbIhiqqqhii")
_COVERED: Final = Struct(">hiqqqhii")
_TYPE: Final = 16
_NO_TIMESTAMP: Final = -1

_FAULTS: Final = {
    kernel.MORE: "too few bytes for a batch",
    kernel.ZEROS: "zeros before more data",
    kernel.BAD_CHECKSUM: "the header of a batch does not match its checksum",
    kernel.BAD_SIZE: "a batch is smaller than its header",
    kernel.BAD_OFFSET: "the offsets of a batch do not follow those before it",
}


def _steps() -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    steps, powers = np.empty(256, dtype=np.uint32), np.empty((4, 256), dtype=np.uint32)
    checksums.prepare(steps, powers)
    return steps


_STEPS: Final = _steps()


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """Bytes of a translation that are not batches: those of the segment from `position` on, as they
    are. They become [`start`, `end`) of the translation."""

    start: int
    end: int
    position: int
    what: str


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk of a segment has found.

    `rows`: see the kernel. `size`: bytes of the translation. `end`: of the segment's bytes, those
    that are in the translation or left out of it. `unseen`: the number of its unseen offsets.
    `next_offset`: Redpanda's offset after its last batch. `largest`: the largest timestamp (ms, -1
    if none has one), and the last offset of its batch without the unseen ones of this segment.
    `source`: the segment's size and mtime. `mark`: the header at the last row.
    """

    rows: Int64s
    size: int
    end: int
    unseen: int
    next_offset: int
    largest: tuple[int, int]
    damage: tuple[DamagedBytes, ...]
    source: tuple[int, int]
    mark: bytes
    # The first columns of the rows, and the numbers of those that are not batches, for searches.
    positions: array[int]
    translated: array[int]
    raw: array[int]


def walk(file: ReadableFile, status: os.stat_result, known: Walked | None) -> Walked:
    """Walks a segment, of which `known` is what an earlier walk has found."""
    return _Walk(file, status, known).run()


class _Walk:
    """A walk of a segment in progress, at `_position` of it."""

    def __init__(self, file: ReadableFile, status: os.stat_result, known: Walked | None) -> None:
        self._file = file
        self._end = status.st_size
        self._source = (status.st_size, status.st_mtime_ns)
        self._state: Int64s = np.array([0, 0, 0, -1, _NO_TIMESTAMP, 0], dtype=np.int64)
        self._position = 0
        self._found: list[Int64s] = []
        self._damage: list[DamagedBytes] = []
        if known is not None:
            self._resume(known)

    def _resume(self, known: Walked) -> None:
        """Continues at the last row of an earlier walk, if the batch there is still the same: a
        replica truncates its log when a new leader does not have its last batches."""
        sound = np.flatnonzero(known.rows[:, kernel.IS_RAW] == 0)
        if not len(sound):
            return
        number = int(sound[-1])
        row = known.rows[number]
        position, translated, unseen = (int(field) for field in row[:3])
        if self._file.read(position, HEADER_BYTES) != known.mark:
            return
        self._position = position
        self._state[kernel.OUT], self._state[kernel.UNSEEN] = translated, unseen
        self._state[kernel.LARGEST :] = row[kernel.LARGEST_TIMESTAMP : kernel.IS_RAW]
        self._found.append(known.rows[:number])
        self._damage += [each for each in known.damage if each.start < translated]

    def run(self) -> Walked:
        buffer, room = bytearray(_WALK_BYTES), np.empty((_ROWS, kernel.COLUMNS), dtype=np.int64)
        while self._position < self._end:
            wanted = min(len(buffer), self._end - self._position)
            got = self._file.read_into(self._position, memoryview(buffer)[:wanted])
            if got == 0:  # it has been truncated meanwhile
                break
            count, walked, why = kernel.walk(
                buffer, got, self._position, self._end, _INTERVAL, _STEPS, self._state, room
            )
            self._found.append(room[:count].copy())
            self._position += walked
            if why in (kernel.DONE, kernel.FULL) or (why == kernel.MORE and walked):
                continue
            if why == kernel.CUT or is_zero(self._file, self._position, self._end):
                break
            self._skip(why, bytes(buffer[walked : walked + HEADER_BYTES]))
        return self._result()

    def _result(self) -> Walked:
        rows = np.concatenate([np.empty((0, kernel.COLUMNS), dtype=np.int64), *self._found])
        sound = rows[rows[:, kernel.IS_RAW] == 0]
        mark = b""
        if len(sound):
            mark = self._file.read(int(sound[-1, kernel.POSITION]), HEADER_BYTES)
        size, unseen, following, _, timestamp, offset = self._state.tolist()
        return Walked(
            rows,
            size,
            self._position,
            unseen,
            following,
            (timestamp, offset),
            tuple(self._damage),
            self._source,
            mark,
            array("q", rows[:, kernel.POSITION].tobytes()),
            array("q", rows[:, kernel.TRANSLATED].tobytes()),
            array("q", np.flatnonzero(rows[:, kernel.IS_RAW]).tobytes()),
        )

    def _skip(self, why: int, header: bytes) -> None:
        """Passes bytes that are no batch: up to the next that is one, or all."""
        start, translated = self._position, int(self._state[kernel.OUT])
        what, first = _FAULTS.get(why, ""), start + 1
        if why == kernel.BAD_TYPE:
            fields = _HEADER.unpack(header)
            size, kind, count = fields[1], fields[3], fields[6] + 1
            what = f"a batch of unknown type {kind}, with {count} offsets, which Kafka may not see"
            first = start + size
        resume = self._next_header(first)
        row = np.zeros((1, kernel.COLUMNS), dtype=np.int64)
        row[0, :3] = start, translated, self._state[kernel.UNSEEN]
        row[0, kernel.IS_RAW] = 1
        self._found.append(row)
        self._position = resume
        self._state[kernel.OUT] += resume - start
        self._state[kernel.INDEXED] = -1  # so that the next batch gets a row
        if resume < self._end:
            what += "; later offsets are too high by the number of those in it that Kafka hides"
        self._damage.append(DamagedBytes(translated, int(self._state[kernel.OUT]), start, what))

    def _next_header(self, position: int) -> int:
        """Returns the position of the first batch from `position` on, that of the end if there is
        none."""
        following = int(self._state[kernel.NEXT])
        while position + HEADER_BYTES <= self._end:
            data = self._file.read(position, min(_SEARCH_BYTES, self._end - position))
            if len(data) < HEADER_BYTES:
                break
            left = self._end - position
            found: int = kernel.find_header(data, 0, len(data), left, following, _STEPS)
            if found >= 0:
                return position + found
            position += len(data) - HEADER_BYTES + 1
        return self._end


class Translation:
    """The translation of one segment, as of its last walk. Any thread may use it."""

    def __init__(self, file: ReadableFile, status: os.stat_result) -> None:
        self._lock = threading.Lock()  # guards walks
        self.walked = walk(file, status, None)

    def refreshed(self, file: ReadableFile, status: os.stat_result) -> Walked:
        """Returns what a walk of the segment finds now, which is `file` and has `status`."""
        source = (status.st_size, status.st_mtime_ns)
        walked = self.walked
        if walked.source != source:
            with self._lock:
                if self.walked.source != source:
                    self.walked = walk(file, status, self.walked)
                walked = self.walked
        return walked


def unseen_below(file: ReadableFile, walked: Walked, offset: int) -> int:
    """Returns the number of unseen offsets of a segment that are below Redpanda's `offset`."""
    rows = walked.rows
    last = rows[:, kernel.LAST_OFFSET] + rows[:, kernel.UNSEEN_BEFORE]
    below = np.flatnonzero((rows[:, kernel.IS_RAW] == 0) & (last < offset))
    position = unseen = 0
    if len(below):
        position, _, unseen = (int(field) for field in rows[below[-1], :3])
    while position < walked.end:
        header = file.read(position, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            break
        checksum, size, base, kind, _, _, delta, *_ = _HEADER.unpack(header)
        is_sound = size >= HEADER_BYTES and crc32c(header[4:]) == checksum
        if base >= offset or not is_sound:
            break
        unseen += delta + 1 if kernel.is_unseen(kind) else 0
        position += size
    return unseen


class TranslatedFile(ReadableFile):
    """The translation of a segment, to be read like a `.log`. `shift` is what is subtracted from
    Redpanda's first offset in it."""

    __slots__ = ("_epoch", "_file", "_shift", "_translation", "_window")

    may_shrink = True

    def __init__(
        self, file: ReadableFile, translation: Translation, shift: int, epoch: int
    ) -> None:
        self.path = file.path
        self.identity = file.identity
        self._file = file
        self._translation = translation
        self._shift = shift
        self._epoch = epoch
        # What a small read has translated last, as of which walk, and where it begins.
        self._window: tuple[Walked | None, int, memoryview] = (None, 0, memoryview(b""))

    def stat(self) -> os.stat_result:
        status = self._file.stat()
        walked = self._translation.refreshed(self._file, status)
        return file_status(self.identity, walked.size, status.st_mtime_ns)

    def size(self) -> int:
        return self.stat().st_size

    def is_removed(self) -> bool:
        return self._file.is_removed()

    def next_data(self, position: int) -> int:
        return min(position, self.size())

    def read(self, position: int, size: int) -> bytes:
        parts = list(self._parts(position, size))
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        view = memoryview(buffer).cast("B")
        filled = 0
        for part in self._parts(position, len(view)):
            view[filled : filled + len(part)] = part
            filled += len(part)
        return filled

    def content(self, size: int) -> mmap | bytes:
        if size > self.size():
            raise ValueError(f"{self.path}: its translation has fewer than {size} bytes")
        return self.read(0, size)

    def error_between(self, start: int, end: int) -> CorruptError | None:
        walked = self._translation.walked
        for damage in walked.damage:
            if damage.start < end and start < damage.end:
                return CorruptError(damage.what, self.path, damage.position)
        return self._file_error(walked, start)

    def _file_error(self, walked: Walked, start: int) -> CorruptError | None:
        """Returns what is wrong in the segment with the batch that begins at `start` of the
        translation, None if nothing is found."""
        position = self._position_of(walked, start)
        header = b"" if position is None else self._file.read(position, HEADER_BYTES)
        if position is None or len(header) < HEADER_BYTES:
            return None
        _, size, _, _, crc, *covered = _HEADER.unpack(header)
        records = self._file.read(position + HEADER_BYTES, size - HEADER_BYTES)
        left = HEADER_BYTES + len(records)
        if left < size:
            what = f"batch of {size} bytes is cut off: {left} are left"
            return CorruptError(what, self.path, position)
        if crc32c(records, crc32c(_COVERED.pack(*covered))) != crc:
            return CorruptError("a batch does not match its checksum", self.path, position)
        return None

    def _position_of(self, walked: Walked, start: int) -> int | None:
        """Returns where in the segment the batch begins that is at `start` of the translation."""
        if not 0 <= start < walked.size:
            return None
        row = walked.rows[_row_at(walked, start)]
        position, translated = int(row[kernel.POSITION]), int(row[kernel.TRANSLATED])
        while translated < start and not row[kernel.IS_RAW]:
            header = self._file.read(position, HEADER_BYTES)
            if len(header) < HEADER_BYTES:
                return None
            size = _HEADER.unpack(header)[1]
            if size < HEADER_BYTES:
                return None
            translated += size if header[_TYPE] == kernel.DATA else 0
            position += size
        while translated == start:  # the batches before it that are left out
            header = self._file.read(position, HEADER_BYTES)
            if len(header) < HEADER_BYTES or header[_TYPE] == kernel.DATA:
                break
            position += max(_HEADER.unpack(header)[1], HEADER_BYTES)
        return position

    def _parts(self, position: int, size: int) -> list[memoryview | bytes]:
        """Returns `size` bytes from `position` of the translation, or those that there are."""
        walked = self._translation.walked
        stop = min(position + size, walked.size)
        parts: list[memoryview | bytes] = []
        while 0 <= position < stop:
            part = self._part(walked, position, stop)
            if not part:
                break
            parts.append(part)
            position += len(part)
        return parts

    def _part(self, walked: Walked, position: int, stop: int) -> memoryview | bytes:
        """Returns bytes of the translation from `position` on, at most up to `stop`."""
        of, start, data = self._window
        if of is walked and start <= position < start + len(data):
            return data[position - start : stop - start]
        number = _row_at(walked, position)
        source, translated = walked.positions[number], walked.translated[number]
        limit, until = _end_of_run(walked, number)
        if walked.rows[number, kernel.IS_RAW]:
            return self._file.read(source + position - translated, min(stop, until) - position)
        skipped = position - translated
        if skipped >= HEADER_BYTES:
            header = self._file.read(source, HEADER_BYTES)
            size = _HEADER.unpack(header)[1] if len(header) == HEADER_BYTES else 0
            if skipped < size and size >= _INTERVAL:  # in the middle of a large batch
                return self._file.read(source + skipped, min(size - skipped, stop - position))
        is_small = stop - position <= _INTERVAL
        wanted = min(max(stop, translated + _WINDOW) if is_small else stop, until)
        after = bisect_left(walked.translated, wanted)
        if after < len(walked.translated) and walked.positions[after] < limit:
            limit, until = walked.positions[after], walked.translated[after]
        if limit - source == until - translated:  # nothing is left out in between
            limit = min(limit, source + wanted - translated + HEADER_BYTES - 1)
        room = bytearray(limit - source)
        got = self._file.read_into(source, room)
        unseen = int(walked.rows[number, kernel.UNSEEN_BEFORE])
        size = kernel.translate(room, 0, got, self._shift + unseen, self._epoch)
        found = memoryview(room)[: min(size, wanted - translated)]
        if is_small:
            self._window = walked, translated, found
        return found[skipped : stop - translated]


def _row_at(walked: Walked, position: int) -> int:
    """Returns the number of the row at or before a position of the translation."""
    return bisect_right(walked.translated, position) - 1


def _end_of_run(walked: Walked, number: int) -> tuple[int, int]:
    """Returns where what begins at a row ends, in the segment and in the translation: the batches
    up to the next bytes that are none, or such bytes."""
    if walked.rows[number, kernel.IS_RAW]:
        following = number + 1
    else:
        raw = bisect_right(walked.raw, number)
        following = walked.raw[raw] if raw < len(walked.raw) else len(walked.positions)
    if following < len(walked.positions):
        return walked.positions[following], walked.translated[following]
    return walked.end, walked.size


def identity_of(status: os.stat_result, what: str) -> tuple[int, int]:
    """Returns a device and inode number for a file that is made of another one, or in a directory,
    with that `status`; no file of a disk has them."""
    from hashlib import blake2b  # which few commands need

    text = f"{status.st_dev} {status.st_ino} {what}".encode()
    return -1, int.from_bytes(blake2b(text, digest_size=7).digest())


class TranslatedIndex(AssembledFile):
    """The offset index or time index of a translation, made of the rows of its walk."""

    __slots__ = ("_entries",)

    def __init__(self, path: str, status: os.stat_result, entries: Callable[[], bytes]) -> None:
        super().__init__(path, status)
        self._entries = entries

    def size(self) -> int:
        return len(self._entries())

    def stat(self) -> os.stat_result:
        status = self._status
        return file_status((status.st_dev, status.st_ino), self.size(), status.st_mtime_ns)

    def pread(self, position: int, size: int) -> bytes:
        return self._entries()[position : position + size]


def offset_entries(walked: Walked, base: int, shift: int) -> bytes:
    """Returns the offset index of a translation whose base offset is `base`."""
    rows = walked.rows
    rows = rows[(rows[:, kernel.IS_RAW] == 0) & (rows[:, kernel.TRANSLATED] > 0)]
    pairs = rows[:, [kernel.LAST_OFFSET, kernel.TRANSLATED]] - (shift + base, 0)
    fitting = pairs[(pairs > 0).all(axis=1) & (pairs <= MAX_INT32).all(axis=1)]
    assert offset_index.ENTRY.size == 8
    return bytes(fitting.astype(">i4").tobytes())


def time_entries(walked: Walked, base: int, shift: int, is_rolled: bool) -> bytes:
    """Returns the time index of a translation. `is_rolled`: of one that gets no more batches, whose
    largest timestamp is in the index."""
    rows = walked.rows
    rows = rows[(rows[:, kernel.IS_RAW] == 0) & (rows[:, kernel.TRANSLATED] > 0)]
    pairs = rows[:, [kernel.LARGEST_TIMESTAMP, kernel.LARGEST_TIMESTAMP_OFFSET]].tolist()
    if is_rolled:
        pairs.append(list(walked.largest))
    entries, last = [], _NO_TIMESTAMP
    for timestamp, offset in pairs:
        relative = offset - shift - base
        if timestamp > last and 0 <= relative <= MAX_INT32:
            entries.append(time_index.ENTRY.pack(timestamp, relative))
            last = timestamp
    return b"".join(entries)
