"""Reads the transaction index (`.txnindex`): the transactions whose ABORT marker is in a segment.

An entry is appended together with its marker, so entries ascend by marker. The index has only
transactions that wrote data to the partition; without one, there is no file. Recovery rebuilds it
from the `.log`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from ..errors import CorruptError
from ..io.directory import Directory, ReadableFile

ENTRY = Struct(">b x q q q q")  # version, an unused byte, then the fields of AbortedTxn
HIGHEST_VERSION = 0
_BLOCK_BYTES = ENTRY.size * 1024


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    """An aborted transaction: its producer's records in [first_offset, last_offset).

    `last_offset` is the offset of the ABORT marker. `last_stable_offset` is the partition's LSO
    after the marker was written: all transactions below it were decided.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def format_aborted_txns(entries: Iterable[AbortedTxn]) -> bytes:
    """Returns the bytes of the entries in the file."""
    return b"".join(
        ENTRY.pack(
            HIGHEST_VERSION,
            entry.producer_id,
            entry.first_offset,
            entry.last_offset,
            entry.last_stable_offset,
        )
        for entry in entries
    )


class TransactionIndex:
    """The entries of one file. Each call reads its current contents: it grows in the active
    segment."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file

    @classmethod
    def open(cls, directory: Directory, name: str) -> TransactionIndex:
        """Opens the index in file `name`. Raises SegmentGone if there is no such file."""
        return cls(directory.open(name))

    @property
    def path(self) -> str:
        return self._file.path

    def __len__(self) -> int:
        """Returns the current number of whole entries."""
        return self._file.size() // ENTRY.size

    @property
    def has_stray_bytes(self) -> bool:
        """Whether the file ends with an incomplete entry."""
        return self._file.size() % ENTRY.size != 0

    def entries(self, first: int = 0) -> Iterator[AbortedTxn]:
        """Yields the entries in file order from entry number `first` on. Ignores an incomplete
        entry at the end.

        Raises CorruptError at an entry of a version that Kafka does not know.
        """
        position = first * ENTRY.size
        while data := self._file.read(position, _BLOCK_BYTES):
            whole = data[: len(data) // ENTRY.size * ENTRY.size]
            for version, *fields in ENTRY.iter_unpack(whole):
                # Kafka's AbortedTxn writes the version as two bytes and checks only the first.
                if version > HIGHEST_VERSION:
                    what = f"aborted transaction of version {version}, expected {HIGHEST_VERSION}"
                    raise CorruptError(what, self.path, position)
                yield AbortedTxn(*fields)
                position += ENTRY.size
            if len(whole) < _BLOCK_BYTES:
                return
