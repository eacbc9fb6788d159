"""Transaction markers: the control records that end a producer's transaction.

They are read from the log itself, where a checksum covers them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ...format.layout import CONTROL_MASK, TRANSACTIONAL_MASK, ControlType
from ...format.messages.control import EndTxnMarker, control_type, parse_end_txn_marker
from ...format.records.batch import BatchHeader, BatchTable
from ...format.records.decoder import checksum_is_right
from ...io.directory import ReadableFile

# Kafka writes a marker's batch with 78 bytes; a larger one than this is not a readable marker.
_MARKER_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction: its control record's ``offset``, and whether it was aborted."""

    offset: int
    is_abort: bool


# The markers of each producer id, by ascending offset.
Markers = Mapping[int, list[Marker]]


def end_transaction_batches(table: BatchTable) -> Iterator[BatchHeader]:
    """Yields the batches of a table that hold transaction markers."""
    control = table.flagged(CONTROL_MASK) & table.flagged(TRANSACTIONAL_MASK)
    if control.any():
        yield from table.select(control)


def read_marker(log: ReadableFile, header: BatchHeader) -> Marker | None:
    """Reads the marker in a batch of ``log``; None if the batch is damaged or neither COMMIT nor
    ABORT."""
    data = memoryview(_read(log, header))
    if len(data) < header.size or not checksum_is_right(data, header, header.position):
        return None
    kind = control_type(data)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return Marker(header.base_offset, kind is ControlType.ABORT)


def read_end_txn_marker(log: ReadableFile, header: BatchHeader) -> EndTxnMarker | None:
    """Reads the marker in a batch of ``log``, without verifying its checksum; None if the batch is
    empty, truncated or of another type."""
    return parse_end_txn_marker(_read(log, header))


def _read(log: ReadableFile, header: BatchHeader) -> bytes:
    return log.read(header.position, min(header.size, _MARKER_BYTES))
