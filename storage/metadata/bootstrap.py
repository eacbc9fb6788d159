"""Formats `bootstrap.checkpoint`: the records that a controller appends to an empty metadata log
when it becomes active for the first time (BootstrapDirectory, BatchFileWriter).

The file is laid out as a snapshot of the metadata log: a control batch with the header, batches of
records, a control batch with the footer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..format.layout import ControlType
from ..format.messages.control import quorum_record
from ..format.messages.message import Message
from ..format.messages.metadata import RecordType, format_metadata_record
from ..format.records.encoder import BatchPlan, encode
from ..format.records.record_columns import RecordColumns, SimpleRecord

# Kafka's reader takes batches of any size up to 8 MiB (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
_BATCH_BYTES: Final = 1 << 20


class NewRecord(NamedTuple):
    """A record to be written: its type, the version of its schema, and its message."""

    number: RecordType
    version: int
    message: Message


def format_bootstrap(records: Sequence[NewRecord], now_ms: int) -> bytes:
    """Returns the content of the file. Raises ValueError if a message does not fit its schema."""
    header = quorum_record(
        ControlType.SNAPSHOT_HEADER, {"version": 0, "lastContainedLogTimestamp": 0}
    )
    footer = quorum_record(ControlType.SNAPSHOT_FOOTER, {"version": 0})
    values = [format_metadata_record(*record) for record in records]
    parts = [
        ([SimpleRecord(now_ms, *header)], True),
        ([SimpleRecord(now_ms, None, value) for value in values], False),
        ([SimpleRecord(now_ms, *footer)], True),
    ]
    out = bytearray()
    offset = 0
    for part, is_control in parts:
        plan = BatchPlan(offset, batch_bytes=_BATCH_BYTES, is_control=is_control)
        out += encode(RecordColumns.from_records(part), plan).data
        offset += len(part)
    return bytes(out)
