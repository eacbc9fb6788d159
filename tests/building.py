"""Encodes single batches of magic 2, and messages of magic 0 and 1, from Python values.

Layout and rules: Kafka `DefaultRecordBatch`, `DefaultRecord`, `MemoryRecordsBuilder`,
`LegacyRecord` and `AbstractLegacyRecordBatch`. Input is not validated: gaps between offsets, empty
batches and delete horizons are allowed, so that any batch a broker or its log cleaner may write can
be built. It shares no code with the product's encoder, which it checks, but the codecs.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafkafs.storage.format import layout
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.layout import Codec, ControlType, TimestampType
from kafkafs.storage.format.records.compress import compress
from kafkafs.storage.format.records.record_columns import SimpleRecord

NONE = -1
"""Kafka's sentinel for "no" timestamp, offset, producer id or epoch, sequence, leader epoch."""

_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
_CONTROL_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class BatchFields:
    """The fields of a batch besides its records. Defaults are those of a plain producer.

    `last_offset` -1: that of the last record. `level` None: Kafka's default for the codec.
    `base_timestamp` and `max_timestamp` None: the first record's and the largest (-1 if there are
    no records). With LogAppendTime, `max_timestamp` is the append time. `delete_horizon_ms` -1:
    none; otherwise it replaces the base timestamp.
    """

    base_offset: int = 0
    last_offset: int = NONE
    leader_epoch: int = 0
    codec: Codec = Codec.NONE
    level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    producer_id: int = NONE
    producer_epoch: int = NONE
    base_sequence: int = NONE
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon_ms: int = NONE
    base_timestamp: int | None = None
    max_timestamp: int | None = None

    @property
    def attributes(self) -> int:
        """The batch header's attribute bits."""
        bits = int(self.codec)
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            bits |= layout.TIMESTAMP_TYPE_MASK
        if self.is_transactional:
            bits |= layout.TRANSACTIONAL_MASK
        if self.is_control:
            bits |= layout.CONTROL_MASK
        if self.delete_horizon_ms != NONE:
            bits |= layout.DELETE_HORIZON_MASK
        return bits


def put(data: bytes, at: int, layout: str, *values: int) -> bytes:
    """Returns `data` with other values, as `struct` packs them, at position `at`."""
    out = bytearray(data)
    struct.pack_into(layout, out, at, *values)
    return bytes(out)


def build_batch(records: Sequence[SimpleRecord], fields: BatchFields = BatchFields()) -> bytes:
    """Encodes one batch of magic 2. Without records it is a bare header, as the log cleaner writes.

    Raises ValueError or struct.error if a number does not fit its field.
    """
    offsets = resolve_offsets(records, fields.base_offset)
    base_timestamp = _base_timestamp(records, fields)
    body = b"".join(
        encode_record(record, record.timestamp - base_timestamp, offset - fields.base_offset)
        for record, offset in zip(records, offsets, strict=True)
    )
    if records:
        body = compress(fields.codec, body, 2, fields.level)
    last_offset = fields.last_offset
    if last_offset == NONE:
        last_offset = offsets[-1] if offsets else fields.base_offset
    from_attributes = _FROM_ATTRIBUTES.pack(
        fields.attributes,
        last_offset - fields.base_offset,
        base_timestamp,
        _max_timestamp(records, fields),
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        len(records),
    )
    return frame_batch(fields.base_offset, fields.leader_epoch, from_attributes + body)


def frame_batch(base_offset: int, leader_epoch: int, covered: bytes) -> bytes:
    """Returns a whole batch, given the bytes that its checksum covers (attributes to end)."""
    size = layout.CRC_COVERS_FROM + len(covered)
    head = struct.pack(
        ">qiibI", base_offset, size - layout.LOG_OVERHEAD, leader_epoch, 2, crc32c(covered)
    )
    return head + covered


def encode_record(record: SimpleRecord, timestamp_delta: int, offset_delta: int) -> bytes:
    """Encodes one record of magic 2, with its length prefix (Kafka `DefaultRecord.writeTo`)."""
    parts = [
        b"\x00",
        encode_varlong(timestamp_delta),
        encode_varint(offset_delta),
        *_sized(record.key),
        *_sized(record.value),
        encode_varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts += _sized(name.encode() if isinstance(name, str) else name)
        parts += _sized(value)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def build_end_txn_marker(
    control_type: ControlType, timestamp: int, coordinator_epoch: int, fields: BatchFields
) -> bytes:
    """Encodes a COMMIT or ABORT marker: a control batch of one record, 78 bytes.

    `fields` supplies offset, leader epoch and producer. Rule: Kafka `EndTransactionMarker`.
    """
    value = _END_TXN_VALUE.pack(0, coordinator_epoch)
    key = _CONTROL_KEY.pack(0, control_type)
    marker = replace(fields, is_control=True, is_transactional=True, base_sequence=NONE)
    return build_batch([SimpleRecord(timestamp, key, value)], marker)


def resolve_offsets(records: Sequence[SimpleRecord], base_offset: int) -> list[int]:
    """Returns the absolute offset of each record, resolving -1."""
    offsets: list[int] = []
    following = base_offset
    for record in records:
        offset = following if record.offset == NONE else record.offset
        offsets.append(offset)
        following = offset + 1
    return offsets


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    return (b"\x01", b"") if data is None else (encode_varint(len(data)), data)


def _base_timestamp(records: Sequence[SimpleRecord], fields: BatchFields) -> int:
    if fields.delete_horizon_ms != NONE:
        return fields.delete_horizon_ms
    if fields.base_timestamp is not None:
        return fields.base_timestamp
    return records[0].timestamp if records else NONE


def _max_timestamp(records: Sequence[SimpleRecord], fields: BatchFields) -> int:
    if fields.max_timestamp is not None:
        return fields.max_timestamp
    return max((record.timestamp for record in records), default=NONE)


# -- magic 0 and 1, and their compressed wrappers, which only old logs contain ---------------------


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
    covered = bytes((fields.magic, attributes)) + stamp + _with_size(key) + _with_size(value)
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def _with_size(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


# -- varints: zigzag, then groups of seven bits, lowest first (ByteUtils.writeVarint) --------------


def encode_varint(value: int) -> bytes:
    """Encodes a signed 32-bit number in 1 to 5 bytes. Raises ValueError out of range."""
    if not INT32_MIN <= value <= INT32_MAX:
        raise ValueError(f"{value} does not fit a varint of 32 bits")
    return _groups((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """Encodes a signed 64-bit number in 1 to 10 bytes. Raises ValueError out of range."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{value} does not fit a varint of 64 bits")
    return _groups((value << 1) ^ (value >> 63))


def _groups(unsigned: int) -> bytes:
    # Python's shifts keep the sign, so the zigzag number is never negative here.
    if unsigned < 0x80:
        return bytes((unsigned,))
    out = bytearray()
    while unsigned >= 0x80:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)
