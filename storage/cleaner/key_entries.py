"""Keys of records in files: by their hashes, with their offsets, those of a slice of all hashes
together. What one process has read of a log another can put into an offset map from there.

A file holds runs of entries, 24 bytes each (two words of the hash and the offset, in the byte order
of the machine), each run in the order of the slices. Behind them are, for each run, the number of
the entry that each slice begins at and the last one ends at, then a note, and how many bytes that
and how many runs there are; all numbers int64.

Of a key that comes again soon only the latest offset is written, if that is all that is wanted.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np

from ..disk import Directory
from ..durable import WritableFile
from ..errors import CorruptError
from ..format.batch import Int64s
from ..format.columns import Columns
from ..format.kernels import offset_map as kernel
from .offset_map import SLOT_BYTES, Entries

#: Entries of a run, which are in memory twice: 50 MB.
RUN_ENTRIES = 1 << 20
# Keys that are recognized when they come again; what knows them should stay in a processor's cache.
_RECENT: Final = 1 << 16
_TRAILER_BYTES: Final = 16

HashKey = tuple[int, int]


def new_hash_key() -> HashKey:
    """One that nobody could have made up colliding keys for."""
    return secrets.randbits(64), secrets.randbits(64)


class EntryWriter:
    """Writes the keys of records to a new file."""

    def __init__(self, file: WritableFile, hash_key: HashKey, slices: int) -> None:
        self._file = file
        self._hash_key = hash_key
        self._slices = slices
        self._run = np.empty((RUN_ENTRIES, 3), dtype=np.uint64)
        self._sorted = np.empty((RUN_ENTRIES, 3), dtype=np.uint64)
        self._recent = np.zeros(_RECENT, dtype=np.uint64)
        self._none = np.zeros(0, dtype=np.uint64)
        self._count = 0
        self._written = 0
        self._ends: list[Int64s] = []

    def put(self, columns: Columns, low: int, high: int, latest: bool) -> None:
        """The keys of rows [`low`, `high`), behind all that came before. `latest`: of each the
        latest offset is enough, also of those before that were put so."""
        recent = self._recent if latest else self._none
        while low < high:
            low, self._count = kernel.hashed(
                *self._hash_key, columns.data, columns.spans, columns.offsets, low, high,
                self._run, self._count, recent,
            )  # fmt: skip
            if low < high:
                self._flush()

    def finish(self, note: bytes) -> None:
        """Nothing more comes; the file is durable."""
        self._flush()
        ends = np.array(self._ends, dtype=np.int64)
        trailer = np.array([len(note), len(self._ends)], dtype=np.int64)
        end = self._written * SLOT_BYTES
        self._file.write(end, ends.tobytes() + note + trailer.tobytes())
        self._file.sync()

    def _flush(self) -> None:
        if not self._count:
            return
        ends = np.empty(self._slices + 2, dtype=np.int64)
        kernel.by_slices(self._run[: self._count], self._sorted, ends)
        data = self._sorted[: self._count].reshape(-1).view(np.uint8).data
        self._file.write(self._written * SLOT_BYTES, data)
        self._ends.append(ends[:-1] + self._written)
        self._written += self._count
        self._count = 0
        self._recent[:] = 0


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
        self._note_bytes, self.runs = np.frombuffer(trailer, dtype=np.int64).tolist()
        self._note_at = size - _TRAILER_BYTES - self._note_bytes
        self._ends_at = self._note_at - self.runs * (slices + 1) * 8
        if self._note_bytes < 0 or self.runs < 0 or self._ends_at < 0:
            raise CorruptError("not a file of keys", self._file.path)

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
