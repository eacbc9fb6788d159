"""`.txnindex`: the aborted transactions whose ABORT marker is in this segment.

Entries are appended when the marker is, so they ascend by marker. Only transactions that wrote data
to the partition are there, and without one there is no file. Recovery rebuilds it from the `.log`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from ..disk import Directory, OpenFile
from ..errors import CorruptError

ENTRY = Struct(">b x q q q q")  # version, an unused byte, then the fields of AbortedTxn
HIGHEST_VERSION = 0
_BLOCK_BYTES = ENTRY.size * 1024


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    """A transaction that was rolled back: its producer's records in [first_offset, last_offset).

    `last_offset` is that of the ABORT marker. `last_stable_offset` is the partition's once the
    marker was written: nothing below it was undecided any more.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def format_aborted_txns(entries: Iterable[AbortedTxn]) -> bytes:
    """Entries as they follow in the file."""
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
    """The entries of one file. It grows in the active segment: each call reads what is there
    then."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file

    @classmethod
    def open(cls, directory: Directory, name: str) -> TransactionIndex:
        """The index in file `name`. SegmentGone when there is no such file."""
        return cls(directory.open(name))

    @property
    def path(self) -> str:
        return self._file.path

    def __len__(self) -> int:
        """The number of whole entries now."""
        return self._file.size() // ENTRY.size

    @property
    def has_stray_bytes(self) -> bool:
        """Whether the file does not end with a whole entry."""
        return self._file.size() % ENTRY.size != 0

    def entries(self, first: int = 0) -> Iterator[AbortedTxn]:
        """The entries in file order, from entry number `first`. A tail shorter than one is ignored.

        CorruptError at an entry of a version that Kafka does not know.
        """
        position = first * ENTRY.size
        while data := self._file.read(position, _BLOCK_BYTES):
            whole = data[: len(data) // ENTRY.size * ENTRY.size]
            for version, *fields in ENTRY.iter_unpack(whole):
                # Kafka's AbortedTxn writes the version as two bytes and looks at the first alone.
                if version > HIGHEST_VERSION:
                    what = f"version {version} of an aborted transaction, not {HIGHEST_VERSION}"
                    raise CorruptError(what, self.path, position)
                yield AbortedTxn(*fields)
                position += ENTRY.size
            if len(whole) < _BLOCK_BYTES:
                return
