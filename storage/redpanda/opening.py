"""Opens a data directory of Redpanda in place of a log directory."""

from __future__ import annotations

from ..config.kafka import ReaderConfig
from ..errors import LogDirError, SegmentGone
from ..io.directory import Directory
from .data_directory import RedpandaDirectory, is_data_directory


def open_redpanda(directory: Directory, config: ReaderConfig) -> Directory | None:
    """Returns a directory that is no log directory as if it were one, if it is Redpanda's; else
    None."""
    try:
        if not is_data_directory(directory):
            return None
        return RedpandaDirectory(directory, config.kafkafs_redpanda_offsets == "own")
    except (SegmentGone, LogDirError, OSError):
        return None
