"""Joins the staged parts of a small write into one batch, to be appended to the active segment.

A single batch, because it is in a log completely or not at all, whoever looks: a reader at the same
moment, or a broker after a crash, which ignores commit records and truncates a torn batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ..config.kafka import TopicConfig
from ..format.layout import CODEC_MASK, NO_PRODUCER_ID, TIMESTAMP_TYPE_MASK, TimestampType
from ..format.records import batch as b
from ..format.records.batch import BatchTable
from ..format.records.decoder import BadBatch, Decoder
from ..format.records.encoder import BatchPlan, encode
from ..format.records.record_columns import RecordColumns
from ..format.records.validate import ValidationResult
from ..log.append.preparing import admit_rules
from .commit_file import StagedPart
from .segment_series import SealedSegment

# A batch is read as a whole for any one of its records. So even if max.message.bytes allows more, a
# joined one is not larger than a producer's largest by default, and can be decompressed in some ms.
_MOST: Final = 1 << 20
_MOST_DECOMPRESSED: Final = 4 << 20

#: Yields the batches of a staged segment, some at a time, each valid until the next is requested.
ReadBatches = Callable[[StagedPart, SealedSegment], Iterator[ValidationResult]]


def joined_batch(
    parts: Sequence[StagedPart], config: TopicConfig, read: ReadBatches
) -> ValidationResult | None:
    """Returns all records of the parts, in order, as a single batch. Returns None if it would have
    more than `max.message.bytes` or 1 MiB, or 4 MiB decompressed, or if the batches must stay as
    they are: their offsets are kept, or a producer wrote them. Raises what `read` raises."""
    most = min(_MOST, config.max_message_bytes)
    if sum(part.size for part in parts) > most or any(part.keeps_offsets for part in parts):
        return None
    batches = _in_memory(parts, read)
    rows = batches.table.rows
    attributes = int(rows[0, b.ATTRIBUTES])
    if (
        (rows[:, b.PRODUCER_ID] != NO_PRODUCER_ID).any()
        or (rows[:, b.ATTRIBUTES] != attributes).any()
        or attributes & ~(CODEC_MASK | TIMESTAMP_TYPE_MASK)
    ):
        return None
    return batches if len(rows) == 1 else _one_batch(batches, config, most)


def _in_memory(parts: Sequence[StagedPart], read: ReadBatches) -> ValidationResult:
    """Returns all batches of the parts, with positions relative to the first."""
    data, rows = bytearray(), []
    for part in parts:
        for segment in part.segments:
            for run in read(part, segment):
                table = run.table.rows.copy()
                start = int(table[0, b.POSITION])
                end = int(table[-1, b.POSITION] + table[-1, b.SIZE])
                table[:, b.POSITION] += len(data) - start
                data += run.data[start:end]
                rows.append(table)
    return ValidationResult(memoryview(data), BatchTable(np.concatenate(rows)))


def _one_batch(
    batches: ValidationResult, config: TopicConfig, most: int
) -> ValidationResult | None:
    """Encodes the records of several batches with the same attributes as one; None if they do not
    fit or cannot be decoded."""
    records = []
    for part in Decoder(_MOST_DECOMPRESSED).decode(batches.data, 0, batches.table, ""):
        if isinstance(part, BadBatch):
            return None
        records.append(RecordColumns.joined([RecordColumns.from_columns(part)]))
    found = encode(RecordColumns.joined(records), _plan(batches.table, config))
    if len(found.table) > 1 or len(found.data) > most:
        return None
    return ValidationResult(found.data, found.table)


def _plan(table: BatchTable, config: TopicConfig) -> BatchPlan:
    header = table[0]
    plan = BatchPlan(
        batch_bytes=_MOST_DECOMPRESSED,
        codec=header.codec,
        level=admit_rules(config).level,
        timestamp_type=header.timestamp_type,
    )
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return replace(plan, append_time=int(table.column(b.MAX_TIMESTAMP).max()))
    return plan
