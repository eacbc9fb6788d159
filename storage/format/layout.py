"""Constants of Kafka's record formats. ``FORMAT.md`` has them as tables; change both together.

Sources: ``DefaultRecordBatch``, ``LegacyRecord``, ``Records`` and ``CompressionType`` of Apache
Kafka; KIP-98 (magic 2), KIP-32 (magic 1), KIP-405 and KIP-534 (delete horizon).
"""

from enum import IntEnum
from typing import Final

# A batch of any magic starts with int64 offset and int32 size, the number of bytes that follow.
LOG_OVERHEAD: Final = 12
# Shortest prefix that includes the magic: offset, size, leader epoch (v2) or CRC (v0, v1), magic.
MAGIC_END: Final = 17

# Magic 2: offset 0 int64 base offset, 8 int32 length, 12 int32 leader epoch, 16 int8 magic,
# 17 uint32 CRC-32C of [21, end), 21 int16 attributes, 23 int32 last offset delta, 27 int64 base
# timestamp, 35 int64 max timestamp, 43 int64 producer id, 51 int16 producer epoch, 53 int32 base
# sequence, 57 int32 record count, 61 records.
RECORD_BATCH_OVERHEAD: Final = 61
CRC_POSITION: Final = 17
CRC_COVERS_FROM: Final = 21
# Null key, null value, no headers: length, attributes, four one-byte varints, header count.
MIN_RECORD_BYTES: Final = 7

# Magic 0 and 1: 12 uint32 CRC-32 of [16, end), 16 int8 magic, 17 int8 attributes, (magic 1:
# 18 int64 timestamp), int32 key length, key, int32 value length, value.
LEGACY_CRC_COVERS_FROM: Final = 16
V0_KEY_SIZE_POSITION: Final = 18
V1_KEY_SIZE_POSITION: Final = 26
V0_MIN_SIZE: Final = 14
V1_MIN_SIZE: Final = 22
# The smallest batch of any magic: a message of magic 0 with null key and value.
MIN_BATCH_BYTES: Final = LOG_OVERHEAD + V0_MIN_SIZE

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

MAX_OFFSET: Final = 2**63 - 1
MAX_INT32: Final = 2**31 - 1


class Codec(IntEnum):
    """Compression of a batch: bits 0-2 of its attributes (``CompressionType``)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def kafka_name(self) -> str:
        return self.name.lower()


class TimestampType(IntEnum):
    """The source of a timestamp (``org.apache.kafka.common.record.TimestampType``)."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def kafka_name(self) -> str:
        return _TIMESTAMP_TYPE_NAMES[self]


_TIMESTAMP_TYPE_NAMES: Final = {
    TimestampType.NO_TIMESTAMP: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class ControlType(IntEnum):
    """Type of a control record: int16 at byte 2 of its key (``ControlRecordType``)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
