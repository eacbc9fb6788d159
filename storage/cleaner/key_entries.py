"""Keys of records in files: by their hashes, with their offsets, those of a slice of all hashes
together. What one process has read of a log another can put into an offset map from there.

A file holds runs of entries, 24 bytes each (two words of the hash and the offset, in the byte order
of the machine), each run in the order of the slices. Behind them are, for each run, the number of
the entry that each slice begins at and the last one ends at, then a note, how many bytes that and
how many runs there are, and the CRC-32C of all that; all numbers int64.

Of a key that comes again soon only the latest offset is written, if that is all that is wanted, and
if keys mostly do. A file is not made durable: what a power cut has left of one, its checksum tells.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import Final

import numpy as np

from ..disk import Directory, OpenFile
from ..durable import WritableFile
from ..errors import CorruptError
from ..format.batch import Int64s
from ..format.checksum import crc32c
from ..format.columns import Columns
from ..format.kernels import offset_map as kernel
from .offset_map import SLOT_BYTES, Entries

#: Entries of a run, which are in memory twice: 50 MB.
RUN_ENTRIES = 1 << 20
# Keys that are recognized when they come again; what knows them should stay in a processor's cache.
_RECENT: Final = 1 << 16
# Less than this part of the rows must be left as entries for that to be worth the search.
_WORTH: Final = 0.8
_TRAILER_BYTES: Final = 24
_CHECKED_AT_ONCE: Final = 4 << 20

HashKey = tuple[int, int]


def checksum(file: OpenFile, size: int) -> int:
    """The CRC-32C of the first `size` bytes."""
    crc = 0
    for position in range(0, size, _CHECKED_AT_ONCE):
        crc = crc32c(file.read(position, min(_CHECKED_AT_ONCE, size - position)), crc)
    return crc


def new_hash_key() -> HashKey:
    """One that nobody could have made up colliding keys for."""
    return secrets.randbits(64), secrets.randbits(64)


@lru_cache(maxsize=1)
def _rooms(entries: int) -> tuple[Entries, Entries]:
    """Room for a run, twice: memory is dear to touch for the first time."""
    return np.empty((entries, 3), dtype=np.uint64), np.empty((entries, 3), dtype=np.uint64)


class EntryWriter:
    """Writes the keys of records to a new file. One at a time in a process."""

    def __init__(self, file: WritableFile, hash_key: HashKey, slices: int) -> None:
        self._file = file
        self._hash_key = hash_key
        self._slices = slices
        self._run, self._sorted = _rooms(RUN_ENTRIES)
        self._recent = np.zeros(_RECENT, dtype=np.uint64)
        self._none = np.zeros(0, dtype=np.uint64)
        self._count = 0
        self._rows = 0  # of the run, those that were looked for
        self._written = 0
        self._crc = 0
        self._ends: list[Int64s] = []

    def put(self, columns: Columns, low: int, high: int, latest: bool) -> None:
        """The keys of rows [`low`, `high`), behind all that came before. `latest`: of each the
        latest offset is enough, also of those before that were put so."""
        recent = self._recent if latest else self._none
        self._rows += high - low
        while low < high:
            low, self._count = kernel.hashed(
                *self._hash_key, columns.data, columns.spans, columns.offsets, low, high,
                self._run, self._count, recent,
            )  # fmt: skip
            if low < high:
                self._flush()
        if self._rows >= _RECENT and self._count > _WORTH * self._rows:
            self._recent = self._none

    def finish(self, note: bytes) -> None:
        """Nothing more comes."""
        self._flush()
        ends = np.array(self._ends, dtype=np.int64)
        counts = np.array([len(note), len(self._ends)], dtype=np.int64)
        behind = ends.tobytes() + note + counts.tobytes()
        crc = np.array([crc32c(behind, self._crc)], dtype=np.int64)
        self._file.write(self._written * SLOT_BYTES, behind, crc.tobytes())

    def _flush(self) -> None:
        if not self._count:
            return
        ends = np.empty(self._slices + 2, dtype=np.int64)
        kernel.by_slices(self._run[: self._count], self._sorted, ends)
        data = self._sorted[: self._count].reshape(-1).view(np.uint8).data
        self._file.write(self._written * SLOT_BYTES, data)
        self._ends.append(ends[:-1] + self._written)
        self._crc = crc32c(data, self._crc)
        self._written += self._count
        self._recent[:] = 0
        self._count = self._rows = 0


class EntryFile:
    """A file of entries, to read."""

    def __init__(self, directory: Directory, name: str, slices: int) -> None:
        """CorruptError when it is none, or one of another number of slices."""
        self._file = directory.open(name)
        self._slices = slices
        size = self._file.size()
        trailer = self._file.read(max(size - _TRAILER_BYTES, 0), _TRAILER_BYTES)
        if len(trailer) < _TRAILER_BYTES:
            raise CorruptError("not a file of keys", self._file.path)
        self._note_bytes, self.runs, self._crc = np.frombuffer(trailer, dtype=np.int64).tolist()
        self._note_at = size - _TRAILER_BYTES - self._note_bytes
        self._ends_at = self._note_at - self.runs * (slices + 1) * 8
        if self._note_bytes < 0 or self.runs < 0 or self._ends_at < 0:
            raise CorruptError("not a file of keys", self._file.path)

    def is_whole(self) -> bool:
        """Whether it is as it was written; reads all of it."""
        return bool(checksum(self._file, self._file.size() - 8) == self._crc)

    def note(self) -> bytes:
        return self._file.read(self._note_at, self._note_bytes)

    def entries(self, run: int, number: int) -> Entries:
        """Those of one slice in one run."""
        at = self._ends_at + (run * (self._slices + 1) + number) * 8
        low, high = np.frombuffer(self._file.read(at, 16), dtype=np.int64).tolist()
        if not 0 <= low <= high <= self._ends_at // SLOT_BYTES:
            raise CorruptError("not a file of keys", self._file.path, at)
        found: Entries = np.empty((high - low, 3), dtype=np.uint64)
        if low == high:
            return found
        room = found.reshape(-1).view(np.uint8).data
        if self._file.read_into(low * SLOT_BYTES, room) < found.nbytes:
            raise CorruptError("the file was cut", self._file.path)
        return found
