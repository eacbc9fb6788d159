"""Rewrites batches without the records that compaction discards.

Rule: Kafka's MemoryRecords.filterTo. A batch is copied byte for byte if all of its records are
retained and its tombstones already have their delete horizon. Any other batch is rebuilt with the
fields of its header: records keep offset and timestamp, and the batch keeps its first and last
offset, from which its producer's last sequence number follows. A batch that is retained without
records is a bare header.

Header keys are copied unchanged; in a batch that Kafka rebuilds, it replaces invalid UTF-8 in them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from .. import layout
from ..checksum import crc32
from ..kernels import rewrite as kernel
from ..layout import Codec
from . import batch as b
from .batch import BatchHeader, BatchTable, Bytes, Int64s
from .buffer_pool import BUFFERS
from .columns import Columns
from .compress import compress
from .encoder import put_checksums

UInt8s = NDArray[np.uint8]
Int8s = NDArray[np.int8]

# Kafka's BatchRetention. DROP discards the batch with all records, KEEP (DELETE_EMPTY in Kafka)
# discards it if no record is retained, RETAIN_EMPTY retains it even then.
DROP: Final[int] = kernel.DROP
KEEP: Final[int] = kernel.KEEP
RETAIN_EMPTY: Final[int] = kernel.RETAIN_EMPTY
NO_HORIZON: Final = -1

# The most bytes by which a record may grow if its batch gets another base timestamp: 9 for the
# timestamp delta, 4 for the length.
_GROWTH: Final = 13
# The most bytes of a message without its key and value.
_MESSAGE_OVERHEAD: Final = 34
_SIZE: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_CRC_OF_MESSAGE: Final = 12


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Consecutive batches in ``data``, and their headers with positions relative to ``data``."""

    data: memoryview
    table: BatchTable


def rewrite(
    data: memoryview,
    base: int,
    columns: Columns,
    keep: UInt8s,
    actions: Int8s,
    horizons: Int64s,
    *,
    checked: bool = True,
) -> Rewritten:
    """Returns the retained part of the batches from which a ``Decoder`` made ``columns``. The bytes
    of the batches are in ``data`` (``data[0]`` is at file position ``base``).

    ``keep`` (n rows) is nonzero for a record to retain. ``actions`` (b batches) is DROP, KEEP or
    RETAIN_EMPTY. ``horizons`` (b batches) is the delete horizon in ms to set if a record is
    retained; -1 leaves the existing one, if any. If ``checked`` is false, batches get no checksums,
    which is enough to measure them. Raises CorruptError for a batch of magic 0 or 1 to be retained
    without records, which Kafka cannot write.
    """
    if _loses_messages(columns, keep, actions):
        return _rewrite_wrapper(columns.batches[0], columns, keep)
    room = int(columns.batches.column(b.SIZE).sum()) + _GROWTH * len(keep)
    if columns.data is not data:
        room += len(columns.data)
    out = BUFFERS.acquire(room)
    table = BatchTable.empty(len(columns.batches))
    is_made = np.empty(len(table), dtype=np.uint8)
    count, used, batch, why = kernel.rewrite_batches(
        data,
        base,
        columns.batches.rows,
        columns.data,
        columns.offsets,
        columns.timestamps,
        columns.spans,
        columns.first_row,
        keep,
        actions,
        horizons,
        out,
        table.rows,
        is_made,
    )
    if why != kernel.DONE:
        raise _refusal(why, columns, batch)
    return _completed(out[:used], table.select(slice(0, count)), is_made[:count], checked)


def _loses_messages(columns: Columns, keep: UInt8s, actions: Int8s) -> bool:
    """Returns whether this is a compressed message (always decoded alone), partly retained."""
    if len(columns.batches) != 1:
        return False
    header = columns.batches[0]
    is_wrapper = header.magic < 2 and header.codec is not Codec.NONE
    return is_wrapper and actions[0] != DROP and bool(keep.any()) and not keep.all()


def _completed(data: memoryview, table: BatchTable, is_made: UInt8s, checked: bool) -> Rewritten:
    """Compresses the rebuilt batches and, if ``checked``, sets their checksums."""
    made = np.flatnonzero(is_made)
    if not len(made):
        return Rewritten(data, table)
    compressed = made[(table.rows[made, b.ATTRIBUTES] & layout.CODEC_MASK) != 0]
    if len(compressed):
        data = _compress(data, table, compressed)
    if not checked:
        return Rewritten(data, table)
    changed = table.select(made)
    put_checksums(data, changed)
    table.rows[made] = changed.rows
    return Rewritten(data, table)


def _compress(data: memoryview, table: BatchTable, chosen: NDArray[np.intp]) -> memoryview:
    """Compresses the records of the ``chosen`` batches, and updates the table to match."""
    parts: list[Bytes] = []
    done = 0
    for index in chosen.tolist():
        position, size, attributes = table.rows[index, [b.POSITION, b.SIZE, b.ATTRIBUTES]].tolist()
        start, end = position + layout.RECORD_BATCH_OVERHEAD, position + size
        body = compress(Codec(attributes & layout.CODEC_MASK), bytes(data[start:end]))
        size = layout.RECORD_BATCH_OVERHEAD + len(body)
        _SIZE.pack_into(data, position + 8, size - layout.LOG_OVERHEAD)
        table.rows[index, b.SIZE] = size
        parts += data[done:start], body
        done = end
    parts.append(data[done:])
    sizes = table.column(b.SIZE)
    table.rows[:, b.POSITION] = np.cumsum(sizes) - sizes
    return memoryview(bytearray().join(parts))


def _rewrite_wrapper(header: BatchHeader, columns: Columns, keep: UInt8s) -> Rewritten:
    """Rewrites a compressed message of magic 0 or 1 that retains some of its messages. Its offset
    becomes the last retained message's; in magic 1, inner offsets are relative to the first."""
    kept = np.flatnonzero(keep)
    offset, timestamp = int(columns.offsets[kept[-1]]), int(columns.timestamps[kept].max())
    first = int(columns.offsets[kept[0]]) if header.magic else 0
    type_bit = header.attributes & layout.TIMESTAMP_TYPE_MASK if header.magic else 0
    inner = _messages(
        columns.data, columns.offsets, columns.timestamps, columns.spans, keep,
        first, header.magic, type_bit,
    )  # fmt: skip
    body = compress(header.codec, bytes(inner), header.magic)
    wrapper = _messages(
        body,
        np.array([offset], dtype=np.int64),
        np.array([timestamp], dtype=np.int64),
        np.array([[0, -1, 0, len(body), 0, 0]], dtype=np.int32),
        np.ones(1, dtype=np.uint8),
        0,
        header.magic,
        header.codec | type_bit,
    )
    table, _ = b.scan(wrapper, len(wrapper), 0, BatchTable.empty(1), whole=True)
    return Rewritten(wrapper, table)


def _messages(
    data: Bytes,
    offsets: Int64s,
    timestamps: Int64s,
    spans: NDArray[np.int32],
    keep: UInt8s,
    first_offset: int,
    magic: int,
    attributes: int,
) -> memoryview:
    """Encodes the retained rows as messages of magic 0 or 1, with checksums."""
    out = memoryview(bytearray(len(data) + _MESSAGE_OVERHEAD * len(keep)))
    ends = np.empty(len(keep), dtype=np.int64)
    count, why = kernel.encode_messages(
        data, offsets, timestamps, spans, keep, first_offset, magic, attributes, out, ends
    )
    if why != kernel.DONE:
        raise ValueError("a key or value lies outside its buffer")
    start = 0
    for end in ends[:count].tolist():
        crc = crc32(out[start + layout.LEGACY_CRC_COVERS_FROM : end])
        _CRC.pack_into(out, start + _CRC_OF_MESSAGE, crc)
        start = end
    return out[:start]


def _refusal(why: int, columns: Columns, batch: int) -> Exception:
    if why == kernel.EMPTY_MESSAGE:
        header = columns.batches[batch]
        what = (
            f"batch {header.base_offset}-{header.last_offset}: none of its records is "
            f"retained, but it must be, and a batch of magic {header.magic} cannot be empty"
        )
        return CorruptError(what, columns.file, header.position)
    return ValueError(f"batch {batch}: outside its buffers (reason {why})")
