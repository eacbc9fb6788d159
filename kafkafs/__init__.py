"""kafkafs: a Kafka-compatible storage engine with a filesystem in front of it.

`kafkafs.open` opens log directories for reading and writing in Python. The command line is in
`kafkafs.cli`.
"""

from kafkafs.storage.errors import (
    ConfigError,
    CorruptError,
    LogDirError,
    LogDirLocked,
    LogDirOffline,
    NotClosed,
    OffsetNotFound,
    Refused,
    SegmentGone,
    SettingsStay,
    StorageError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)

from .api import Directory, Partition, open
from .writing import ProducerRecord, Transaction, WritableDirectory, WritablePartition

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "CorruptError",
    "Directory",
    "LogDirError",
    "LogDirLocked",
    "LogDirOffline",
    "NotClosed",
    "OffsetNotFound",
    "Partition",
    "ProducerRecord",
    "Refused",
    "SegmentGone",
    "SettingsStay",
    "StorageError",
    "TopicExists",
    "Transaction",
    "UnknownPartition",
    "UnknownTopic",
    "WritableDirectory",
    "WritablePartition",
    "__version__",
    "open",
]
