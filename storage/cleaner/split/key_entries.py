"""Files of hashed record keys and their offsets, grouped by slices of the hash range. A process
puts the keys that another one has read into its offset map from such a file.

A file contains runs of entries of 24 bytes (two words of the hash and the offset, in the machine's
byte order); each run is sorted by slice. After them follow, for each run, the entry numbers at
which each slice begins and the last one ends; a note; the length of the note and the number of
runs; and the CRC-32C of everything before it. All numbers are int64.

If only the latest offsets are needed and keys mostly repeat, only the latest offset of a key that
soon repeats is written. Files are not made durable: the checksum reveals a file that a power
failure has damaged.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import Final

import numpy as np

from ...errors import CorruptError
from ...format.checksum import crc32c
from ...format.kernels import offset_map as kernel
from ...format.records.batch import Int64s
from ...format.records.columns import Columns
from ...io.directory import Directory, ReadableFile
from ...io.durable import WritableFile
from ..offset_map import SLOT_BYTES, Entries

#: Entries of a run; two buffers of this size are in memory: 50 MB.
RUN_ENTRIES = 1 << 20
# The number of keys whose repetition is detected; their table should fit in a processor's cache.
_RECENT: Final = 1 << 16
# Detection pays off only if it leaves less than this part of the rows as entries.
_WORTH: Final = 0.8
_TRAILER_BYTES: Final = 24
_CHECKED_AT_ONCE: Final = 4 << 20

HashKey = tuple[int, int]


def checksum(file: ReadableFile, size: int) -> int:
    """Returns the CRC-32C of the first `size` bytes."""
    crc = 0
    for position in range(0, size, _CHECKED_AT_ONCE):
        crc = crc32c(file.read(position, min(_CHECKED_AT_ONCE, size - position)), crc)
    return crc


def new_hash_key() -> HashKey:
    """Returns a random hash key, so that nobody can prepare colliding keys."""
    return secrets.randbits(64), secrets.randbits(64)


@lru_cache(maxsize=1)
def _rooms(entries: int) -> tuple[Entries, Entries]:
    """Returns two buffers for a run; they are reused because touching new memory is slow."""
    return np.empty((entries, 3), dtype=np.uint64), np.empty((entries, 3), dtype=np.uint64)


class EntryWriter:
    """Writes the keys of records to a new file. Only one may be in use in a process, as all share
    buffers."""

    def __init__(self, file: WritableFile, hash_key: HashKey, slices: int) -> None:
        self._file = file
        self._hash_key = hash_key
        self._slices = slices
        self._run, self._sorted = _rooms(RUN_ENTRIES)
        self._recent = np.zeros(_RECENT, dtype=np.uint64)
        self._none = np.zeros(0, dtype=np.uint64)
        self._count = 0
        self._rows = 0  # put into the current run
        self._written = 0
        self._crc = 0
        self._ends: list[Int64s] = []

    def put(self, columns: Columns, low: int, high: int, latest: bool) -> None:
        """Writes the keys of rows [`low`, `high`), which must follow all earlier ones. `latest`:
        only the latest offset of each key is needed, and that may also replace earlier ones put
        so."""
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
        """Completes the file."""
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
    """A readable file of entries."""

    def __init__(self, directory: Directory, name: str, slices: int) -> None:
        """Raises CorruptError if the file is not a key entry file or has another number of
        slices."""
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
        """Returns whether the checksum matches; reads the whole file."""
        return bool(checksum(self._file, self._file.size() - 8) == self._crc)

    def note(self) -> bytes:
        return self._file.read(self._note_at, self._note_bytes)

    def entries(self, run: int, number: int) -> Entries:
        """Returns the entries of one slice in one run."""
        at = self._ends_at + (run * (self._slices + 1) + number) * 8
        low, high = np.frombuffer(self._file.read(at, 16), dtype=np.int64).tolist()
        if not 0 <= low <= high <= self._ends_at // SLOT_BYTES:
            raise CorruptError("not a file of keys", self._file.path, at)
        found: Entries = np.empty((high - low, 3), dtype=np.uint64)
        if low == high:
            return found
        room = found.reshape(-1).view(np.uint8).data
        if self._file.read_into(low * SLOT_BYTES, room) < found.nbytes:
            raise CorruptError("the file is truncated", self._file.path)
        return found
