"""Opens a data directory of Redpanda in place of a log directory, and a segment in one."""

from __future__ import annotations

from ..config.kafka import ReaderConfig
from ..errors import LogDirError, SegmentGone
from ..format.files.names import partition_dir
from ..io.directory import Directory
from ..io.opening import open_directory
from .data_directory import RedpandaDirectory, is_data_directory
from .names import KAFKA_NAMESPACE, parse_partition, parse_segment
from .partition import RedpandaPartition


def open_redpanda(directory: Directory, config: ReaderConfig) -> Directory | None:
    """Returns a directory that is no log directory as if it were one, if it is Redpanda's; else
    None."""
    try:
        if not is_data_directory(directory):
            return None
        return RedpandaDirectory(directory, config.kafkafs_redpanda_offsets == "shifted")
    except (SegmentGone, LogDirError, OSError):
        return None


def find_segment(folder: str, name: str) -> tuple[Directory, str] | None:
    """Returns the directory and the name that one of Redpanda's segments has for readers of Kafka's
    files; None if the file `name` in `folder`, an absolute path, is no such segment. Raises
    LogDirError for one without records of Kafka, or if another directory is served in its place."""
    above, _, directory_name = folder.rpartition("/")
    above, _, topic = above.rpartition("/")
    root, _, namespace = above.rpartition("/")
    parsed = parse_partition(directory_name)
    if parsed is None or parse_segment(name) is None:
        return None
    path = f"{folder}/{name}"
    if namespace != KAFKA_NAMESPACE:
        why = f"in Redpanda's namespace {namespace}; `{KAFKA_NAMESPACE}` has the records of topics"
        raise LogDirError(path, why)
    partition = RedpandaDirectory(open_directory(root or "/")).child(
        partition_dir(topic, parsed.partition)
    )
    assert isinstance(partition, RedpandaPartition)
    served = partition.served_as(name) if partition.path == folder else None
    if served is None:
        raise LogDirError(path, "a segment of Redpanda without records that are served")
    return partition, served
