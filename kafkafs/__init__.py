"""kafkafs: a Kafka-compatible storage engine with a filesystem in front of it.

`kafkafs.open` opens log directories for reading and writing in Python. The command line is in
`kafkafs.cli`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkafs.storage import (
        ConfigError,
        ConfigsNotRemoved,
        CorruptError,
        InRemoteStorage,
        LogDirError,
        LogDirLocked,
        LogDirOffline,
        MetadataUnavailable,
        NoClusterMetadata,
        NotClosed,
        OffsetNotFound,
        PartitionNotOpened,
        Refused,
        SchemaError,
        SegmentGone,
        StorageError,
        TopicExists,
        UnknownGroup,
        UnknownPartition,
        UnknownSchema,
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
    "InRemoteStorage",
    "LogDirError",
    "LogDirLocked",
    "LogDirOffline",
    "LogDirectories",
    "MetadataUnavailable",
    "NoClusterMetadata",
    "NotClosed",
    "OffsetNotFound",
    "Partition",
    "PartitionNotOpened",
    "ProducerRecord",
    "Refused",
    "SchemaError",
    "SegmentGone",
    "StorageError",
    "TopicExists",
    "Transaction",
    "UnknownGroup",
    "UnknownPartition",
    "UnknownSchema",
    "UnknownTopic",
    "WritableLogDirectories",
    "WritablePartition",
    "__version__",
    "open",
]


def __getattr__(name: str) -> object:
    """Imports the API, or an error, when it is first used: the command line does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    api = import_module("kafkafs.api")
    return getattr(api if name in api.__all__ else import_module("kafkafs.storage"), name)


def __dir__() -> list[str]:
    return __all__
