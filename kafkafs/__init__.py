"""kafkafs: a Kafka-compatible storage engine with a filesystem in front of it.

`kafkafs.open` opens log directories for reading and writing in Python. The command line is in
`kafkafs.cli`.
"""

from kafkafs.storage import (
    ConfigError,
    ConfigsNotRemoved,
    CorruptError,
    LogDirError,
    LogDirLocked,
    LogDirOffline,
    NotClosed,
    OffsetNotFound,
    PartitionNotOpened,
    Refused,
    SegmentGone,
    StorageError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)

from .api import (
    LogDirectories,
    Partition,
    ProducerRecord,
    Transaction,
    WritableLogDirectories,
    WritablePartition,
    open,
)

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "ConfigsNotRemoved",
    "CorruptError",
    "LogDirError",
    "LogDirLocked",
    "LogDirOffline",
    "LogDirectories",
    "NotClosed",
    "OffsetNotFound",
    "Partition",
    "PartitionNotOpened",
    "ProducerRecord",
    "Refused",
    "SegmentGone",
    "StorageError",
    "TopicExists",
    "Transaction",
    "UnknownPartition",
    "UnknownTopic",
    "WritableLogDirectories",
    "WritablePartition",
    "__version__",
    "open",
]
