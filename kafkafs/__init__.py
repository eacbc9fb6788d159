"""kafkafs: a Kafka-compatible storage engine with a filesystem in front of it.

`kafkafs.open` reads log directories from Python; the command line is in `kafkafs.cli`.
"""

from kafkafs.storage.errors import (
    ConfigError,
    CorruptError,
    LogDirError,
    OffsetNotFound,
    SegmentGone,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)

from .api import Directory, Partition, open

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "CorruptError",
    "Directory",
    "LogDirError",
    "OffsetNotFound",
    "Partition",
    "SegmentGone",
    "StorageError",
    "UnknownPartition",
    "UnknownTopic",
    "__version__",
    "open",
]
