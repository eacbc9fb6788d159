"""Encodes messages of magic 0 and 1 and their compressed wrappers, which only old logs contain.

Layout and rules: Kafka `LegacyRecord` and `AbstractLegacyRecordBatch`.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from .. import layout
from ..layout import Codec, TimestampType
from .builder import NONE, resolve_offsets
from .compress import compress
from .record_columns import SimpleRecord


@dataclass(frozen=True, slots=True)
class MessageFields:
    """The fields of messages besides their records.

    `magic` is 0 or 1; with a codec, one wrapper holds all records. `inner_absolute` None: the
    default of the magic (0 absolute, 1 relative to the first record). `wrapper_offset` -1: the last
    record's offset. `log_append_time` -1: CreateTime, each record with its own timestamp.
    """

    magic: int = 1
    base_offset: int = 0
    codec: Codec = Codec.NONE
    level: int | None = None
    log_append_time: int = NONE
    inner_absolute: bool | None = None
    wrapper_offset: int = NONE

    @property
    def timestamp_type(self) -> TimestampType:
        """LogAppendTime if `log_append_time` is set; magic 0 has no timestamps."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP
        if self.log_append_time == NONE:
            return TimestampType.CREATE_TIME
        return TimestampType.LOG_APPEND_TIME


def build_messages(records: Sequence[SimpleRecord], fields: MessageFields) -> bytes:
    """Encodes the records as consecutive messages, or as one wrapper if there is a codec."""
    if fields.codec is not Codec.NONE:
        return _build_wrapper(records, fields)
    out = []
    for record, offset in zip(records, resolve_offsets(records, fields.base_offset), strict=True):
        timestamp = record.timestamp if fields.log_append_time == NONE else fields.log_append_time
        out.append(_message(record.key, record.value, offset, timestamp, fields))
    return b"".join(out)


def _build_wrapper(records: Sequence[SimpleRecord], fields: MessageFields) -> bytes:
    offsets = resolve_offsets(records, fields.base_offset)
    absolute = fields.inner_absolute
    if absolute is None:
        absolute = fields.magic == 0
    first = 0 if absolute else offsets[0]
    plain = MessageFields(magic=fields.magic)
    inner = b"".join(
        _message(record.key, record.value, offset - first, record.timestamp, plain)
        for record, offset in zip(records, offsets, strict=True)
    )
    timestamp = fields.log_append_time
    if timestamp == NONE:
        timestamp = max(record.timestamp for record in records)
    offset = offsets[-1] if fields.wrapper_offset == NONE else fields.wrapper_offset
    value = compress(fields.codec, inner, fields.magic, fields.level)
    return _message(None, value, offset, timestamp, fields)


def _message(
    key: bytes | None, value: bytes | None, offset: int, timestamp: int, fields: MessageFields
) -> bytes:
    attributes = int(fields.codec)
    if fields.timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= layout.TIMESTAMP_TYPE_MASK
    stamp = struct.pack(">q", timestamp) if fields.magic == 1 else b""
    covered = bytes((fields.magic, attributes)) + stamp + _sized(key) + _sized(value)
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
