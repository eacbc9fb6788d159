"""Formats kafka-dump-log's lines for batches, records, aborted transactions and producers.

They are the lines that `DumpLogSegments` of Kafka 4.3 prints, whichever broker wrote the files.
Those of batches and records are many, and written by a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np

from ...errors import CorruptError
from ...format.files.snapshot import ProducerSnapshotEntry
from ...format.kernels import dump as kernel
from ...format.layout import CONTROL_MASK, MAX_INT32, Codec, ControlType, TimestampType
from ...format.messages.control import quorum_message
from ...format.messages.internal_topics import RecordDecoder
from ...format.records import batch as b
from ...format.records.batch import BatchTable, Int32s, Int64s
from ...format.records.buffer_pool import BUFFERS
from ...format.records.columns import Columns
from ...format.records.decoder import inner_messages
from ..txn_index import AbortedTxn

# The size of a piece of text, unless a line is longer.
_PIECE_BYTES: Final = 1 << 20
# Lines of the smaller files that are joined to one piece.
_PIECE_LINES: Final = 1024
_NOTHING: Final = np.empty(0, dtype=np.int64)
# The constant texts of the lines, in the kernel's order.
_TEXTS: Final = [
    text.encode()
    for text in (
        *("baseOffset: ", " lastOffset: ", " count: ", " baseSequence: ", " lastSequence: "),
        *(" producerId: ", " producerEpoch: ", " partitionLeaderEpoch: "),
        *(" isTransactional: true", " isTransactional: false"),
        *(" isControl: true", " isControl: false"),
        *(" deleteHorizonMs: OptionalLong[", " deleteHorizonMs: OptionalLong.empty"),
        *("offset: ", " position: "),
        *(f" {TimestampType(number).kafka_name}: " for number in (-1, 0, 1)),
        *(" size: ", " magic: "),
        *(f" compresscodec: {codec.kafka_name}" for codec in Codec),
        *(" crc: ", " isvalid: true\n", " isvalid: false\n"),
        *("| offset: ", " keySize: ", " valueSize: ", " sequence: ", " headerKeys: ["),
        *(" isValid: true crc: ", " key: ", " payload: "),
    )
]
_CONSTANTS: Final = (
    b"".join(_TEXTS),
    np.cumsum([0, *map(len, _TEXTS)]).astype(np.int32),
)


def batch_text(table: BatchTable, is_valid: bool = True) -> Iterator[memoryview]:
    """Yields a line per batch, in pieces."""
    first = 0
    while first < len(table):
        out = BUFFERS.acquire(_PIECE_BYTES)
        batches, size = kernel.write_batches(table.rows, first, is_valid, *_CONSTANTS, out)
        first += batches
        yield out[:size]


def record_text(
    columns: Columns, decoder: RecordDecoder, has_metadata: bool, has_contents: bool
) -> Iterator[memoryview]:
    """Yields a line per batch, each followed by one per record of it, in pieces."""
    contents, spans = decoder.contents(columns) if has_contents else (b"", _no_spans())
    rows = (
        columns.data, columns.batches.rows, columns.first_row, columns.offsets, columns.timestamps,
        columns.spans, contents, spans, _legacy_checksums(columns), *_control_texts(columns),
        has_metadata, has_contents, *_CONSTANTS,
    )  # fmt: skip
    batch, row, room = 0, 0, _PIECE_BYTES
    while batch < len(columns.batches) or row < len(columns):
        out = BUFFERS.acquire(room)
        batch, row, size = kernel.write_records(*rows, batch, row, out)
        if size < 0:
            raise CorruptError("records changed while they were written out", columns.file)
        if size:
            yield out[:size]
        room = _PIECE_BYTES if size else 2 * room


def line_text(lines: Iterable[str]) -> Iterator[bytes]:
    """Yields lines in pieces. File names among them keep their bytes even if they are not UTF-8."""
    rest = iter(lines)
    while some := list(islice(rest, _PIECE_LINES)):
        yield "\n".join([*some, ""]).encode("utf-8", "surrogateescape")


def _no_spans() -> Int32s:
    return np.empty((0, 4), dtype=np.int32)


def _legacy_checksums(columns: Columns) -> Int64s:
    """Returns the CRCs of messages of magic 0 or 1, nothing for magic 2. The columns of a wrapper
    hold its inner messages."""
    batches = columns.batches
    if int(batches.column(b.MAGIC)[0]) > 1:
        return _NOTHING
    if len(batches) == 1 and batches[0].codec:
        batches = inner_messages(memoryview(columns.data), batches[0])
    return np.ascontiguousarray(batches.column(b.CRC))


def _control_texts(columns: Columns) -> tuple[bytes, Int64s]:
    """Returns what describes the control records, concatenated, and for each row the end of its
    part; nothing if there is none."""
    batches = np.flatnonzero(columns.batches.flagged(CONTROL_MASK)).tolist()
    if not batches:
        return b"", _NOTHING
    texts = {
        row: _control(columns, row).encode()
        for batch in batches
        for row in range(*columns.first_row[batch : batch + 2].tolist())
    }
    sizes = np.zeros(len(columns), dtype=np.int64)
    for row, text in texts.items():
        sizes[row] = len(text)
    return b"".join(texts.values()), np.cumsum(sizes)


def _control(columns: Columns, row: int) -> str:
    """Returns the part of the line that describes a control record (`ControlRecordType`)."""
    key, value = columns.key(row) or b"", columns.value(row) or b""
    number = int.from_bytes(key[2:4], "big", signed=True) if len(key) >= 4 else -1
    if number in (ControlType.ABORT, ControlType.COMMIT):
        epoch = int.from_bytes(value[2:6], "big", signed=True)
        return f" endTxnMarker: {ControlType(number).name} coordinatorEpoch: {epoch}"
    return f" {quorum_message(number, value)}"


def txn_line(txn: AbortedTxn) -> str:
    return (
        f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
        f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
    )


def producer_line(entry: ProducerSnapshotEntry) -> str:
    first = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(first if first >= 0 else None)} "
        f"lastTimestamp: {entry.timestamp}"
    )
    if entry.has_batch:
        first_sequence = (entry.last_sequence - entry.offset_delta) & MAX_INT32
        line += (
            f" firstSequence: {first_sequence} lastSequence: {entry.last_sequence} "
            f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
            f"timestamp: {entry.timestamp}"
        )
    return line


def _optional(value: int | None) -> str:
    """Formats a number as Java prints an OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
